"""Kernels: pure functions over iterators, arrays and files. They know nothing of Dagster."""

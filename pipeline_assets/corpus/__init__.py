"""Kernels: pure functions over iterators, arrays and files, without Dagster."""

"""Kernels that write rows in the formats of other programs' data loaders."""

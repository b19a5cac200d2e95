"""Training-data systems as Dagster assets, built from kernels in `corpus`."""

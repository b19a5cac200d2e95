"""Training-data systems as Dagster assets; the kernels beneath them are in `pipeline_assets.corpus`."""

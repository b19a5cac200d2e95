"""The commands of `corpusmill`, assembled by `pipeline_assets.cli`."""

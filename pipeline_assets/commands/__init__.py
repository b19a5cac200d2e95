"""The commands of `corpusmill`, a file a group. `pipeline_assets.cli` puts them together."""

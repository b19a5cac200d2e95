"""Dagster resources: store of artifacts, hub, tokenizer and launchers."""

"""Dagster resources: the store of artifacts, the hub, the tokenizer, and launchers."""

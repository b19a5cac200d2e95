"""Dagster resources: the store of artifacts, the hub, the tokenizer, launchers; and the hub on loopback."""

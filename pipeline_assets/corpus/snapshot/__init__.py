"""Snapshots: samples of a hub dataset at one commit as Document shards."""

"""A snapshot: a sample of a hub dataset at one commit as Document shards, each row accounted for."""

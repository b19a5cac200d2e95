"""Normalization of sources of every kind into Document shards of one schema."""

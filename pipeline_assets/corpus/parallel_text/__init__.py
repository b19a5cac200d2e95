"""Parallel text: sentence pairs of a hub translation set, sampled once, encoded once, read in batches."""

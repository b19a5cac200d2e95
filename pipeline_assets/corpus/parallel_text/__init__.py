"""Parallel text: sentence pairs that are sampled, encoded and read in batches."""

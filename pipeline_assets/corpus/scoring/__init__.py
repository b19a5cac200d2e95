"""Scoring: how likely a causal language model finds completions, and which rows are chosen by that."""

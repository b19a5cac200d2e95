"""Sampling: which rows are read, which split they belong to, how many fit a budget."""

"""Nemotron: raw rows of the five datasets to conversations as text, with what is known of each."""

"""Tracing: from a token to its row of a hub file and back, from sealed artifacts alone, and a look at one row."""

"""Tokenizers with files pinned by hash, which encode Documents into token runs."""

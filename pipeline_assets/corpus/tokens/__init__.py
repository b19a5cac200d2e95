"""Tokenizers with files pinned by hash, which encode Documents to token ids."""

"""Tokenizers, pinned by the hash of their file, and the stage that turns Documents into token runs."""

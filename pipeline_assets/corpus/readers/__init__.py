"""Readers: from a source as the world has it to rows."""

"""Counts with their nouns in messages."""


def pluralize(count: int, noun: str) -> str:
    """Format a count with its noun: `1 file`, `1,200 files`."""
    return f"{count:,} {noun}" + "s" * (count != 1)

"""Formats of source files, known by their names."""

from collections.abc import Sequence
from typing import Literal

Format = Literal["lines", "parquet", "text"]
FORMATS: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".json": "lines",
    ".parquet": "parquet",
    ".txt": "text",
    ".md": "text",
}
COMPRESSED = (".gz", ".zst", ".zstd", ".bz2", ".xz")


def detect_format(name: str, text_endings: Sequence[str] = ()) -> Format | None:
    """By the name, compressed or not: nothing in a text file says that its lines are not meant to be JSON.

    Args:
        text_endings: further endings of names of texts, in lower case.
    """
    name = name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    known = next((kind for suffix, kind in FORMATS.items() if name.endswith(suffix)), None)
    return "text" if known is None and name.endswith(tuple(text_endings)) else known

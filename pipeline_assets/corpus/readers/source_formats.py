"""Formats of source files by file name."""

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
    """Return the format of a file by its name, without compression; None if unknown.

    `text_endings` are endings of further text files, in lower case.
    """
    name = name.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    known = next((format_ for suffix, format_ in FORMATS.items() if name.endswith(suffix)), None)
    return "text" if known is None and name.endswith(tuple(text_endings)) else known

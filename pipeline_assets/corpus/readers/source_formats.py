"""Formats of source files by file name."""

from collections.abc import Sequence
from typing import Literal

Format = Literal["lines", "parquet", "csv", "text", "html", "notebook", "docx", "pdf"]
FORMATS: dict[str, Format] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".ndjsonl": "lines",
    ".json": "lines",
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".md": "text",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".ipynb": "notebook",
    ".docx": "docx",
    ".pdf": "pdf",
}
COLUMN_FORMATS = frozenset({"lines", "parquet", "csv"})  # formats with columns; files of other formats are texts
COMPRESSION_SUFFIXES = (".gz", ".zst", ".zstd", ".bz2", ".xz")


def strip_compression_suffix(name: str) -> str:
    """Return a file's name without the suffix of its compression."""
    for suffix in COMPRESSION_SUFFIXES:
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name


def detect_format(name: str, text_endings: Sequence[str] = ()) -> Format | None:
    """Detect a file's format from its name, compressed or not; None if unknown.

    `text_endings` are lower-case endings of further text files, such as `.html`; they have priority over `FORMATS`.
    """
    name = strip_compression_suffix(name).lower()
    if name.endswith(tuple(text_endings)):
        return "text"
    return next((format_ for suffix, format_ in FORMATS.items() if name.endswith(suffix)), None)

"""Markdown: tables, and texts from elsewhere that can't leave their place."""

import re
from collections.abc import Sequence

_MARKS = re.compile(r"([\\`*_\[\]<>#|~$&!])")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose cells are Markdown already; without rows, one that says so."""
    if not rows:
        return ["(none)"]
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def code(text: str) -> str:
    """Text as code, in a cell or outside."""
    return f"`{cell(text)}`"


def cell(text: str) -> str:
    """Text that can't leave its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def plain(text: str) -> str:
    """Text on one line in which nothing is a mark."""
    return _MARKS.sub(r"\\\1", " ".join(text.split()))

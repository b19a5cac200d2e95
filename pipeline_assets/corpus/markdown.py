"""Markdown: tables, and texts from elsewhere that can't leave their place."""

import re
from collections.abc import Sequence

_MARKS = re.compile(r"[\\`*\[\]<>#|~$&!]|(?<![^\W_])_|_(?![^\W_])")  # inside a word `_` is none
_ADDRESS = re.compile(r"://|www\.|@|mailto:|xmpp:", re.IGNORECASE)
_PIPE = re.compile(r"(\\*)\|")


def table(head: Sequence[str], rows: Sequence[Sequence[str | int]]) -> list[str]:
    """The lines of a table whose cells are Markdown already, or numbers, which are grouped; without rows, one that says
    so.
    """
    if not rows:
        return ["(none)"]
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *cells)]


def code(text: str) -> str:
    """Text as code, in a cell or outside."""
    return f"`{cell(text)}`"


def cell(text: str) -> str:
    """Text that can't leave its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def plain(text: str) -> str:
    """Text on one line, in a cell or outside, of which nothing is a mark, so that nothing of it is fetched or clicked.

    One that holds what may be an address is shown as code: those who read GitHub's Markdown, such as the UI, make links
    of addresses after escapes are gone, but none of code.
    """
    line = " ".join(text.split())
    if not _ADDRESS.search(line):
        return _MARKS.sub(r"\\\g<0>", line)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if "`" in (line[0], line[-1]) else ""
    # A pipe ends a cell in code too, unless it is escaped; before it a backslash is one only if it is escaped itself.
    return fence + pad + _PIPE.sub(r"\1\1\\|", line) + pad + fence

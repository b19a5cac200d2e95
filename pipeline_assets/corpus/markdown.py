"""Formatting of untrusted texts as Markdown tables, code or escaped text."""

import re
from collections.abc import Sequence

from pipeline_assets.spine.visible import VISIBLE_TABLE

_MARKS = re.compile(r"[\\`*\[\]<>#|~$&!]|(?<![^\W_])_|_(?![^\W_])")  # `_` within a word is not a mark
_BLOCK_MARK = re.compile(r"^(\d*)([-+.)](?= |$)|--|==)")  # a list item, rule or heading starts with it
_ADDRESS = re.compile(r"://|www\.|@|mailto:|xmpp:", re.IGNORECASE)
_PIPE = re.compile(r"(\\*)\|")


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str | int]]) -> list[str]:
    """Format a Markdown table as lines, or as `(none)` if it has no rows.

    Texts must be escaped already. Integers get thousands separators.
    """
    if not rows:
        return ["(none)"]
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *cells)]


def code(text: str) -> str:
    """Format a text as code on one line, for a table cell; backticks become quotes."""
    return f"`{escape_cell(text)}`"


def escape_cell(text: str) -> str:
    """Escape pipes, backticks and tags of a text for a table cell, on one line."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def escape(text: str) -> str:
    """Put a text on one line, escaped so that it has no formatting, image or link.

    Text that may contain an address becomes code, because GitHub-style renderers link addresses outside of code.
    """
    line = " ".join(text.split()).translate(VISIBLE_TABLE)
    if not _ADDRESS.search(line):
        return _BLOCK_MARK.sub(r"\1\\\2", _MARKS.sub(r"\\\g<0>", line))
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if "`" in (line[0], line[-1]) else ""
    # A pipe ends a cell even in code, unless it is escaped; backslashes before it must be escaped as well.
    return fence + pad + _PIPE.sub(r"\1\1\\|", line) + pad + fence

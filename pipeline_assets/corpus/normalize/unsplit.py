"""Text files that became one document each, though they look like a document per line."""

import itertools
import logging
from collections.abc import Iterable, Iterator
from typing import TypeVar

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.spine.staging import Receipt

UNSPLIT = "unsplit"
_SHOWN = 3  # files, per shard and per source
_MIN_LINES, _MIN_LINE_CHARACTERS = 10, 100
logger = logging.getLogger("corpusmill")
R = TypeVar("R")


def note_unsplit(rows: Iterable[R], unsplit: dict[str, int]) -> Iterator[R]:
    """Yield the rows of whole text files unchanged, and note files that look unsplit.

    Such a file has 10 lines or more, none blank, of at least 100 characters on average. `unsplit` receives its number
    of lines, for at most `_SHOWN` files.
    """
    for row in rows:
        if isinstance(row, Document) and len(unsplit) < _SHOWN:
            lines = row.text.count("\n")
            if lines >= _MIN_LINES and len(row.text) >= _MIN_LINE_CHARACTERS * lines and "\n\n" not in row.text:
                unsplit[row.meta.source_file] = lines
        yield row


def warn_unsplit(receipts: Iterable[Receipt]) -> None:
    """Warn about the first `_SHOWN` files that the receipts of shards name in their `UNSPLIT` notes."""
    unsplit = {file: lines for receipt in receipts for file, lines in receipt.notes.get(UNSPLIT, {}).items()}
    for file, lines in itertools.islice(unsplit.items(), _SHOWN):
        fix = "if each line is a document, set `text_unit: line`"
        logger.warning("%s: %d lines, none blank, became one document; %s", file, lines, fix)

"""Sizes of the documents of a source, which show documents that were not split.

A file of one document per line that is read as one document is thousands of times larger than its neighbours. Such a
document loses nothing but its boundaries, so it is a warning.
"""

import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.source_folder import format_of
from pipeline_assets.corpus.spine.artifact import Artifact, Verdict
from pipeline_assets.corpus.spine.staging import Receipt

SIZES, UNSPLIT, OUTSIZED = "document_sizes", "unsplit", "outsized_documents"
LARGE_BYTES = 1_000_000
TIMES_MEDIAN = 100
_SHOWN = 3  # documents, or unsplit files, per shard and per source
_LEADING_BITS = 5  # kept of a size: a median is at most 1/16 too low
_MIN_LINES, _MIN_LINE_CHARACTERS = 10, 100
SPLIT_LINES = "if each line is a document, set `text_unit: line`"


logger = logging.getLogger("corpusmill")
R = TypeVar("R")


class LargeDocument(NamedTuple):
    """Document above `LARGE_BYTES`, with its source file and row."""

    bytes: int
    doc_id: str
    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.doc_id} ({self.file}, {self.bytes:,} bytes)"


@dataclass
class DocumentSizes:
    """Sizes of the documents of a shard in UTF-8 bytes: a histogram, and the largest.

    Attributes:
        bins: number of documents by size in bytes, rounded down to its `_LEADING_BITS` leading bits.
        large: the largest documents above `LARGE_BYTES`, at most `_SHOWN`.
    """

    bins: Counter[int] = field(default_factory=Counter)
    large: list[LargeDocument] = field(default_factory=list)

    def add(self, documents: Iterable[Document], sizes: Iterable[int]) -> None:
        """Count documents with their sizes in bytes."""
        for document, size in zip(documents, sizes, strict=True):
            shift = max(size.bit_length() - _LEADING_BITS, 0)
            self.bins[size >> shift << shift] += 1
            if size > LARGE_BYTES:
                place = document.meta.source_file, document.meta.source_row
                self.large = heapq.nlargest(_SHOWN, [*self.large, LargeDocument(size, document.doc_id, *place)])

    def to_json(self) -> dict[str, Any]:
        """Return the sizes as notes for a receipt."""
        return {"bins": {str(size): count for size, count in sorted(self.bins.items())}, "large": self.large}


def outsized_documents(shards: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the three largest of the outsized documents, for the provenance.

    Outsized documents have more than `LARGE_BYTES` and at least `TIMES_MEDIAN` times the median size. The result is
    empty without such documents.

    Args:
        shards: `DocumentSizes.to_json` of each shard; empty for a shard that an earlier version wrote.
    """
    bins, large = Counter[int](), list[LargeDocument]()
    for notes in shards:
        bins.update({int(size): count for size, count in notes.get("bins", {}).items()})
        large += [LargeDocument(*entry) for entry in notes.get("large", ())]
    median = _median(bins)
    outsized = [document for document in heapq.nlargest(_SHOWN, large) if document.bytes >= TIMES_MEDIAN * median]
    if not outsized:
        return {}
    return {OUTSIZED: {"median_bytes": median, "largest": [document._asdict() for document in outsized]}}


def _median(bins: Mapping[int, int]) -> int:
    middle, counted = sum(bins.values()) // 2, 0
    for size, count in sorted(bins.items()):
        counted += count
        if counted > middle:
            return size
    return 0


def read_outsized(corpus: Artifact) -> list[LargeDocument]:
    """Return the outsized documents that a corpus' manifest lists, largest first."""
    notes = corpus.manifest.provenance.get(OUTSIZED, {})
    return [LargeDocument(**entry) for entry in notes.get("largest", [])]


def no_document_is_outsized(corpus: Artifact) -> Verdict:
    """Check for documents above 1 MB and 100 times the median: maybe unsplit files.

    Such a document may be a file that was not split into its documents.
    """
    outsized = read_outsized(corpus)
    if not outsized:
        return Verdict(True, "no document above 1 MB is 100 times the median")
    median = corpus.manifest.provenance[OUTSIZED]["median_bytes"]
    largest = ", ".join(map(str, outsized))
    why = f"above 1 MB and 100 times the median of about {median:,} bytes: {largest}"
    recipe = corpus.manifest.identity.recipe
    if recipe.get("kind") == "local" and format_of(outsized[0].file, recipe.get("text_endings", ())) == "text":
        why += f"; {SPLIT_LINES}"
    return Verdict(False, why, {"median_bytes": median, "largest_bytes": outsized[0].bytes})


def note_unsplit(rows: Iterable[R], unsplit: dict[str, int]) -> Iterator[R]:
    """Yield the rows of whole text files unchanged, and note files that look unsplit.

    Such a file looks like one document per line. `unsplit` receives its number of lines, for at most `_SHOWN` files.
    """
    for row in rows:
        if isinstance(row, Document) and len(unsplit) < _SHOWN and (lines := _count_unsplit(row.text)):
            unsplit[row.meta.source_file] = lines
        yield row


def _count_unsplit(text: str) -> int:
    """Count the lines of a text that looks like one document per line.

    Such a text has 10 lines or more, none blank, of at least 100 characters on average. The count is 0 for any other
    text.
    """
    lines = text.count("\n")
    is_lined = lines >= _MIN_LINES and len(text) >= _MIN_LINE_CHARACTERS * lines and "\n\n" not in text
    return lines if is_lined else 0


def warn_unsplit(receipts: Iterable[Receipt]) -> None:
    """Warn about the first `_SHOWN` text files that look unsplit.

    The receipts of shards name these files in their `UNSPLIT` notes.
    """
    unsplit = {file: lines for receipt in receipts for file, lines in receipt.notes.get(UNSPLIT, {}).items()}
    for file, lines in itertools.islice(unsplit.items(), _SHOWN):
        logger.warning("%s: %d lines, none blank, became one document; %s", file, lines, SPLIT_LINES)

"""Sizes of a source's documents, to detect a file that should have been split.

If a file with one document per line is read as a single document, that document is thousands of times the usual size.
Such a document causes a warning, not an error: its text is complete, and only boundaries are missing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from pipeline_assets.corpus.document import Document

SIZES_NOTE = "document_sizes"
OUTSIZED_MIN_BYTES = 1_000_000
OUTSIZED_MEDIAN_FACTOR = 100
OUTSIZED = "outsized_document"
_LEADING_BITS = 5  # bits of a size that its bin keeps, so a median is at most 1/16 too low


@dataclass
class DocumentSizes:
    """Histogram of a shard's document sizes in UTF-8 bytes, with the largest document.

    `bins` counts documents by size. Of each size, the `_LEADING_BITS` leading bits are kept; the other bits become 0.
    """

    bins: Counter[int] = field(default_factory=Counter)
    largest: tuple[int, str, str, int] = (0, "", "", 0)  # size, doc_id, source file and source row

    def add(self, documents: Iterable[Document], sizes: Iterable[int]) -> None:
        """Add documents to the histogram; `sizes` are in bytes."""
        for document, size in zip(documents, sizes, strict=True):
            shift = max(size.bit_length() - _LEADING_BITS, 0)  # number of low bits, which become 0
            self.bins[size >> shift << shift] += 1
            if size > self.largest[0]:
                self.largest = size, document.doc_id, document.meta.source_file, document.meta.source_row

    def to_json(self) -> dict[str, Any]:
        """Return the sizes as notes for a receipt."""
        return {"bins": {str(size): count for size, count in sorted(self.bins.items())}, "largest": self.largest}


def describe_outsized_document(shard_notes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a provenance entry on the largest document if it is outsized, else {}.

    An outsized document is larger than `OUTSIZED_MIN_BYTES`, and at least `OUTSIZED_MEDIAN_FACTOR` times as large as
    the median. `shard_notes` has an item per shard: the result of `DocumentSizes.to_json`, or {} if an earlier version
    built the shard.
    """
    bins, largest = Counter[int](), DocumentSizes().largest
    for notes in shard_notes:
        bins.update({int(size): count for size, count in notes.get("bins", {}).items()})
        largest = max(largest, tuple(notes.get("largest", largest)))
    size, doc_id, file, row = largest
    seen = accumulate(bins[size] for size in sorted(bins))
    median = next((size for size, count in zip(sorted(bins), seen, strict=True) if 2 * count > bins.total()), 0)
    if size <= OUTSIZED_MIN_BYTES or size < OUTSIZED_MEDIAN_FACTOR * median:
        return {}
    return {OUTSIZED: {"bytes": size, "median_bytes": median, "doc_id": doc_id, "file": file, "row": row}}

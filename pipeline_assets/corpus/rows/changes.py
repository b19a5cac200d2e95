"""Which rows two sealed artifacts of one kind hold: in one of them only, in both, or changed.

Rows are compared by 128 bits of the sha256 of their id and of their content. The hashes go to a temporary folder,
parted by the id's hash, and one part of both sides is sorted at a time: no text is held, and memory stays bounded
however many rows there are.
"""

import hashlib
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.rows.store import Content, RowStore
from pipeline_assets.corpus.rows.trace import rows_of
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact

EXAMPLES = 5
PART_DOCUMENTS = 4_000_000  # sorted at once: about 400 MB with the sort's copies
_BLOCK_ROWS = 4096
_HASHED = np.dtype([(name, "<u8") for name in ("high", "low", "text_high", "text_low", "labels")] + [("row", "<i8")])
Hashed = NDArray[np.void]


@dataclass(frozen=True)
class Found:
    """How many documents, and the ids of the first few in manifest order."""

    documents: int
    examples: Sequence[str]


@dataclass(frozen=True)
class DocumentChanges:
    """Documents by id.

    Attributes:
        part: the partition whose documents these are; None for the artifact's own.
        in_both: of one id, whatever their content.
        changed: those of them whose text, or tokens, are not the same.
        labels: what besides the text is compared, in words; nothing of tokens.
        relabelled: those of the same text where that is not the same.
    """

    part: str | None
    only_in_a: Found
    only_in_b: Found
    in_both: Found
    changed: Found
    labels: str
    relabelled: Found


def document_changes(a: Artifact, b: Artifact, part_documents: int = PART_DOCUMENTS) -> Iterator[DocumentChanges]:
    """How the rows of B differ from those of A, an artifact of its kind; nothing where the kind has none, or has
    several documents in a row. Of a dataset, how those of its members of one name do.

    Args:
        part_documents: how many documents' hashes are sorted at once, about.
    Raises:
        InputError: a file that is read is damaged.
    """
    left, right = rows_of(a), rows_of(b)
    if left is not None and right is not None and not left.holds_several:
        yield _compare(left, right, None, part_documents)
    ours, theirs = _members(a), _members(b)
    for part in (part for part in ours if part in theirs):
        left, right = rows_of(ours[part]), rows_of(theirs[part])
        if left is not None and right is not None:
            yield _compare(left, right, part, part_documents)


def _members(dataset: Artifact) -> dict[str, Artifact]:
    """The artifacts inside a dataset, as it was sealed with them."""
    entries = [entry for entry in dataset.manifest.identity.inputs if "member" in entry]
    return {entry["member"]: open_artifact(dataset.folder / entry["member"], entry["digest"]) for entry in entries}


def _hashed(store: RowStore) -> Iterator[Hashed]:
    rows, first_row = iter(store), 0
    while block := list(itertools.islice(rows, _BLOCK_ROWS)):
        yield _records(block, first_row)
        first_row += len(block)


def _records(rows: Sequence[Content], first_row: int) -> Hashed:
    records = np.empty(len(rows), _HASHED)
    ids = _halves([hashlib.sha256(row.id.encode("utf-8")).digest() for row in rows])
    texts = _halves([hashlib.sha256(row.content).digest() for row in rows])
    records["high"], records["low"] = ids[:, 0], ids[:, 1]
    records["text_high"], records["text_low"] = texts[:, 0], texts[:, 1]
    records["labels"] = _halves([hashlib.sha256(row.labels).digest() for row in rows])[:, 0]
    records["row"] = np.arange(first_row, first_row + len(rows))
    return records


def _halves(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    """The first 128 bits of each digest as two numbers, shape (digests, 2)."""
    return np.frombuffer(b"".join(digest[:16] for digest in digests), ">u8").reshape(-1, 2).astype(np.uint64)


@dataclass
class _Tally:
    """Rows counted over the parts, and the first few of them."""

    documents: int = 0
    rows: tuple[int, ...] = ()

    def add(self, records: Hashed) -> None:
        self.documents += len(records)
        first = np.sort(records["row"])[:EXAMPLES].tolist()
        self.rows = tuple(sorted([*self.rows, *first])[:EXAMPLES])

    def found(self, store: RowStore) -> Found:
        return Found(self.documents, [store.at(row).parts[0].id for row in self.rows])


def _compare(a: RowStore, b: RowStore, part: str | None, part_documents: int) -> DocumentChanges:
    only_in_a, only_in_b, in_both, changed, relabelled = (_Tally() for _ in range(5))
    parts = max(1, -(-(len(a) + len(b)) // part_documents))
    with tempfile.TemporaryDirectory(prefix="corpusmill-diff-") as folder:
        for side, store in (("a", a), ("b", b)):
            for records in _hashed(store):
                _write_parts(Path(folder), side, records, parts)
        for number in range(parts):
            left, right = (_read_part(Path(folder, f"{side}.{number}")) for side in "ab")
            left_matches, right_matches = _matches(left, right)
            only_in_a.add(np.delete(left, left_matches))
            only_in_b.add(np.delete(right, right_matches))
            one, other = left[left_matches], right[right_matches]
            in_both.add(one)
            is_other_text = (one["text_high"] != other["text_high"]) | (one["text_low"] != other["text_low"])
            changed.add(one[is_other_text])
            relabelled.add(one[~is_other_text & (one["labels"] != other["labels"])])
    return DocumentChanges(
        part=part,
        only_in_a=only_in_a.found(a),
        only_in_b=only_in_b.found(b),
        in_both=in_both.found(a),
        changed=changed.found(a),
        labels=a.labels.besides,
        relabelled=relabelled.found(a),
    )


def _write_parts(folder: Path, side: str, records: Hashed, parts: int) -> None:
    """Appends each record to the file of its part: the parts are of about one size, since hashes are spread evenly."""
    number = (records["high"] >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)
    for part in np.unique(number):
        with open(folder / f"{side}.{part}", "ab") as file:
            file.write(records[number == part].tobytes())


def _read_part(path: Path) -> Hashed:
    return np.fromfile(path, _HASHED) if path.exists() else np.empty(0, _HASHED)


def _matches(a: Hashed, b: Hashed) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the ids are that both have, in A and in B, in the same order. Ids are unique in a sealed artifact."""
    high, low = np.concatenate([a["high"], b["high"]]), np.concatenate([a["low"], b["low"]])
    order = np.lexsort((low, high))  # stable: of equal ids, A's comes first
    same = (high[order[1:]] == high[order[:-1]]) & (low[order[1:]] == low[order[:-1]])
    pairs = np.flatnonzero(same)
    return order[pairs], order[pairs + 1] - len(a)

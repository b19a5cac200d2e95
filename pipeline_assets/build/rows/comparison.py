"""What makes two sealed artifacts of one kind differ: what was asked, what they are made from, what they count, and
which rows they hold: in one of them only, in both, or changed.

Rows are compared by 128 bits of the sha256 of their id and of their content. The hashes go to a temporary folder,
parted by the id's hash, and one part of both sides is sorted at a time: no text is held, and memory stays bounded
however many rows there are.
"""

import hashlib
import itertools
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.build.kind import Kinds
from pipeline_assets.build.rows.row_stores import row_store_for
from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact, member_digests, open_artifact
from pipeline_assets.spine.changed_keys import changed_keys
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import Identity

EXAMPLES = 5
PART_DOCUMENTS = 4_000_000  # sorted at once: about 400 MB with the sort's copies
_BLOCK_ROWS = 4096
_COMMIT = re.compile("@[0-9a-f]{40}:")
_HASHED = np.dtype([(name, "<u8") for name in ("high", "low", "text_high", "text_low", "labels")] + [("row", "<i8")])
_Hashed = NDArray[np.void]


@dataclass(frozen=True)
class CountChange:
    """One count of the manifests, 0 where one has none; a share is a decimal string, as manifests have fractions.
    `name` is dotted, as ledger.dropped.other_split.
    """

    name: str
    a: int | str
    b: int | str

    @property
    def delta(self) -> int | str:
        """B less A: a decimal string where one of them is."""
        if isinstance(self.a, int) and isinstance(self.b, int):
            return self.b - self.a
        return f"{Decimal(self.b) - Decimal(self.a):f}"

    @property
    def is_equal(self) -> bool:
        """Whether both say the same: "0.50" is "0.5"."""
        return Decimal(self.a) == Decimal(self.b)


@dataclass(frozen=True)
class DocumentExamples:
    """How many documents, and the ids of the first few in manifest order."""

    documents: int
    examples: Sequence[str]


@dataclass(frozen=True)
class DocumentChanges:
    """Documents by id, of a partition or, where that is None, the artifact's own. Changed are those of another text, or
    of other tokens; relabelled, those of the same text, of which something else differs: `labels` says in words what.
    """

    part: str | None
    only_in_a: DocumentExamples
    only_in_b: DocumentExamples
    in_both: DocumentExamples
    changed: DocumentExamples
    labels: str
    relabelled: DocumentExamples


@dataclass(frozen=True)
class Comparison:
    """Two artifacts of one kind; of equal digests nothing is read, and all else is empty.

    Attributes:
        changes: what differs besides counts and rows, a line each: recipe, stage and tokenizer, upstream artifacts,
            files that were read, shards of a selection.
    """

    a: Artifact
    b: Artifact
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    counts: Sequence[CountChange] = ()
    documents: Sequence[DocumentChanges] = ()

    @property
    def is_identical(self) -> bool:
        return self.a.manifest.digest == self.b.manifest.digest


def compare(a: Artifact, b: Artifact, kinds: Kinds, part_documents: int = PART_DOCUMENTS) -> Comparison:
    """How B differs from A; so many documents' hashes, about, are sorted at once. Raises UsageError: they are of
    different kinds; InputError: a file that is read is damaged.
    """
    one, other = a.manifest, b.manifest
    if one.kind != other.kind:
        what = f"this is a {other.kind}, {a.folder} is a {one.kind}"
        raise UsageError(what, b.folder, "give two artifacts of one kind")
    if one.digest == other.digest:
        return Comparison(a, b)
    left, right = one.identity, other.identity
    parts, parts_now = _parts(left), _parts(right)
    changes = {"recipe": [f"{key}: {change}" for key, change in changed_keys(left.recipe, right.recipe).items()]}
    changes |= {name: changed_values(parts[name], parts_now[name]) for name in parts}
    counts = count_changes(left.counts, right.counts)
    return Comparison(a, b, changes, counts, list(document_changes(a, b, kinds, part_documents)))


def _parts(identity: Identity) -> dict[str, Mapping[str, Any]]:
    """Everything that the content depends on besides the recipe. A file of a hub has one name at all commits."""
    tokenizer = identity.tokenizer and f"{identity.tokenizer['family']} {identity.tokenizer['sha256']}"
    files = {entry["name"]: entry for entry in identity.inputs if "bytes" in entry}
    return {
        "made_by": {"stage": str(identity.stage), "tokenizer": tokenizer},
        "made_from": {entry["name"]: entry["digest"] for entry in identity.upstream},
        "files_read": {_COMMIT.sub(":", name): _file_words(entry) for name, entry in files.items()},
        "shards_selected": {shard["path"]: shard["content_sha256"] for shard in identity.decisions.get("shards", [])},
    }


def _file_words(entry: Mapping[str, Any]) -> str:
    groups = (f"{group['rows']:,} rows of group {group['number']}" for group in entry.get("row_groups", ()))
    return ", ".join([entry["digest"], *groups])


def changed_values(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """List the values that differ, by their dotted names."""
    left, right = dict(dotted(a)), dict(dotted(b))
    differing = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    return [f"{name}: {left.get(name, 'none')} → {right.get(name, 'none')}" for name in differing]


def count_changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[CountChange]:
    """Every count of either manifest side by side, those of the ledger last, by name."""
    left, right = dict(dotted(a)), dict(dotted(b))
    names = sorted(left.keys() | right.keys(), key=lambda name: (name.startswith("ledger."), name))
    return [CountChange(name, left.get(name, 0), right.get(name, 0)) for name in names]


def dotted(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of all that lies inside, in order: `ledger.dropped.other_split`, `shards[3].path`."""
    match value:
        case dict():
            for key, part in value.items():
                yield from dotted(part, f"{name}.{key}" if name else key)
        case list():
            for number, part in enumerate(value):
                yield from dotted(part, f"{name}[{number}]")
        case _:
            yield name, value


def document_changes(
    a: Artifact, b: Artifact, kinds: Kinds, part_documents: int = PART_DOCUMENTS
) -> Iterator[DocumentChanges]:
    """How the rows of B differ from those of A, an artifact of its kind; nothing where the kind has none, or has
    several documents in a row. Of a dataset, how those of its members of one name do. Arguments and errors as of
    `compare`.
    """
    shared = member_digests(a.manifest).keys() & member_digests(b.manifest).keys()
    pairs = [(part, _member(a, part), _member(b, part)) for part in member_digests(a.manifest) if part in shared]
    for part, one, other in [(None, a, b), *pairs]:
        left, right = row_store_for(one, kinds), row_store_for(other, kinds)
        if left is not None and right is not None and not left.holds_several:
            yield _compare(left, right, part, part_documents)


def _member(dataset: Artifact, name: str) -> Artifact:
    """An artifact inside a dataset, as that was sealed with it."""
    return open_artifact(dataset.folder / name, member_digests(dataset.manifest)[name])


def _hashed(store: RowStore) -> Iterator[_Hashed]:
    """The rows, block by block."""
    rows, first_row = iter(store), 0
    while block := list(itertools.islice(rows, _BLOCK_ROWS)):
        records = np.empty(len(block), _HASHED)
        records["high"], records["low"] = _halves([row.id.encode("utf-8") for row in block])
        records["text_high"], records["text_low"] = _halves([row.content for row in block])
        records["labels"], _ = _halves([row.labels for row in block])
        records["row"] = np.arange(first_row, first_row + len(block))
        yield records
        first_row += len(block)


def _halves(values: Sequence[bytes]) -> NDArray[np.uint64]:
    """The first 128 bits of the sha256 of each value as two numbers, shape (2, values)."""
    digests = b"".join(hashlib.sha256(value).digest()[:16] for value in values)
    return np.frombuffer(digests, ">u8").reshape(-1, 2).T.astype(np.uint64)


def _compare(a: RowStore, b: RowStore, part: str | None, part_documents: int) -> DocumentChanges:
    documents: Counter[str] = Counter()
    first: dict[str, list[int]] = defaultdict(list)
    parts = max(1, -(-(len(a) + len(b)) // part_documents))
    with tempfile.TemporaryDirectory(prefix="corpusmill-diff-") as folder:
        for side, store in (("a", a), ("b", b)):
            for records in _hashed(store):
                _write_parts(Path(folder), side, records, parts)
        for number in range(parts):
            paths = (Path(folder, f"{side}.{number}") for side in "ab")
            left, right = (np.fromfile(path, _HASHED) if path.exists() else np.empty(0, _HASHED) for path in paths)
            left_matches, right_matches = _matches(left, right)
            one, other = left[left_matches], right[right_matches]
            is_other_text = (one["text_high"] != other["text_high"]) | (one["text_low"] != other["text_low"])
            groups = {
                "only_in_a": np.delete(left, left_matches),
                "only_in_b": np.delete(right, right_matches),
                "in_both": one,
                "changed": one[is_other_text],
                "relabelled": one[~is_other_text & (one["labels"] != other["labels"])],
            }
            for group, records in groups.items():
                documents[group] += len(records)
                first[group] = sorted([*first[group], *np.sort(records["row"])[:EXAMPLES].tolist()])[:EXAMPLES]
    found = {
        group: DocumentExamples(
            documents[group], [(b if group == "only_in_b" else a).row_at(row).parts[0].id for row in rows]
        )
        for group, rows in first.items()
    }
    return DocumentChanges(part=part, labels=a.labels.other_changes, **found)


def _write_parts(folder: Path, side: str, records: _Hashed, parts: int) -> None:
    """Appends each record to the file of its part: the parts are of about one size, since hashes are spread evenly."""
    number = (records["high"] >> np.uint64(32)) * np.uint64(parts) >> np.uint64(32)
    for part in np.unique(number):
        path = folder / f"{side}.{part}"
        with durable.naming_file(path), open(path, "ab") as file:
            file.write(records[number == part].tobytes())


def _matches(a: _Hashed, b: _Hashed) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the ids are that both have, in A and in B, in the same order. Ids are unique in a sealed artifact."""
    high, low = np.concatenate([a["high"], b["high"]]), np.concatenate([a["low"], b["low"]])
    order = np.lexsort((low, high))  # stable: of equal ids, A's comes first
    same = (high[order[1:]] == high[order[:-1]]) & (low[order[1:]] == low[order[:-1]])
    pairs = np.flatnonzero(same)
    return order[pairs], order[pairs + 1] - len(a)

"""Comparison of two sealed artifacts of one kind: recipe, inputs, counts and rows.

Rows are compared by sha256 hashes: 128 bits for the id, 128 bits for the content, and 64 bits for the other columns.
The hashes are in temporary files, so memory is bounded for any number of rows.
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

from pipeline_assets.build.rows.row_stores import row_store_for
from pipeline_assets.build.rows.store import RowStore
from pipeline_assets.build.target import Kinds
from pipeline_assets.corpus.dedup.sorted_runs import is_first_in_group
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import Artifact, member_digests, open_artifact
from pipeline_assets.spine.changed_keys import changed_keys
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.manifest import Identity
from pipeline_assets.spine.plural import pluralize

MAX_EXAMPLES = 5
MAX_SORTED_ROWS = 4_000_000  # sorted together: about 500 MB with the sort's copies
_BLOCK_ROWS = 4096
_COMMIT = re.compile("@[0-9a-f]{40}:")
_RECORD_DTYPE = np.dtype(
    [(name, "<u8") for name in ("high", "low", "text_high", "text_low", "labels")] + [("row", "<i8")]
)
_Records = NDArray[np.void]


@dataclass(frozen=True)
class CountChange:
    """Count in manifests A and B, with a dotted name such as `ledger.dropped.empty`.

    A count that a manifest lacks is 0. A share is a decimal string, as in manifests.
    """

    name: str
    a: int | str
    b: int | str

    @property
    def delta(self) -> int | str:
        """Difference B - A; a decimal string if A or B is a decimal string."""
        if isinstance(self.a, int) and isinstance(self.b, int):
            return self.b - self.a
        return f"{Decimal(self.b) - Decimal(self.a):f}"

    @property
    def is_equal(self) -> bool:
        """True if both values are the same number, such as "0.50" and "0.5"."""
        return Decimal(self.a) == Decimal(self.b)


@dataclass(frozen=True)
class DocumentExamples:
    """Number of documents, with the ids of the first few in the order of rows."""

    documents: int
    examples: Sequence[str]


@dataclass(frozen=True)
class DocumentChanges:
    """Differences between the documents of two artifacts, matched by id."""

    part: str | None  # name of the compared members; None if the artifacts' own rows are compared
    only_in_a: DocumentExamples
    only_in_b: DocumentExamples
    in_both: DocumentExamples
    changed: DocumentExamples  # documents whose text or tokens differ
    other_properties: str  # names of compared properties other than text and tokens
    relabelled: DocumentExamples  # documents that differ only in one of `other_properties`


@dataclass(frozen=True)
class Comparison:
    """Differences between two artifacts of one kind; none if their digests are equal."""

    a: Artifact
    b: Artifact
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lines by topic, such as `recipe`
    counts: Sequence[CountChange] = ()
    document_changes: Sequence[DocumentChanges] = ()

    @property
    def is_identical(self) -> bool:
        return self.a.manifest.digest == self.b.manifest.digest


def compare(a: Artifact, b: Artifact, kinds: Kinds, max_sorted_rows: int = MAX_SORTED_ROWS) -> Comparison:
    """Compare artifact B with artifact A; UsageError if they are of different kinds.

    `max_sorted_rows` is the maximum number of rows whose hashes are sorted in memory at a time.
    """
    if a.manifest.kind != b.manifest.kind:
        what = f"this is a {b.manifest.kind}, but {a.folder} is a {a.manifest.kind}"
        raise UsageError(what, b.folder, "choose two artifacts of one kind")
    if a.manifest.digest == b.manifest.digest:
        return Comparison(a, b)
    identity_a, identity_b = a.manifest.identity, b.manifest.identity
    parts_a, parts_b = _identity_parts(identity_a), _identity_parts(identity_b)
    changed = changed_keys(identity_a.recipe, identity_b.recipe)
    changes = {"recipe": [f"{key}: {change}" for key, change in changed.items()]}
    changes |= {name: changed_values(parts_a[name], parts_b[name]) for name in parts_a}
    counts = compare_counts(identity_a.counts, identity_b.counts)
    return Comparison(a, b, changes, counts, list(document_changes(a, b, kinds, max_sorted_rows)))


def _identity_parts(identity: Identity) -> dict[str, Mapping[str, Any]]:
    """Return stage, tokenizer, inputs and selected shards of an identity, by topic."""
    tokenizer = identity.tokenizer and f"{identity.tokenizer['family']} {identity.tokenizer['sha256']}"
    files = {entry["name"]: entry for entry in identity.inputs if "bytes" in entry}
    return {
        "made_by": {"stage": str(identity.stage), "tokenizer": tokenizer},
        "made_from": {entry["name"]: entry["digest"] for entry in identity.upstream},
        # The commit is omitted, so that a file that is equal at two commits does not count as changed.
        "files_read": {_COMMIT.sub(":", name): _describe_file(entry) for name, entry in files.items()},
        "shards_selected": {shard["path"]: shard["content_sha256"] for shard in identity.decisions.get("shards", [])},
    }


def _describe_file(entry: Mapping[str, Any]) -> str:
    groups = (f"{pluralize(group['rows'], 'row')} of group {group['number']}" for group in entry.get("row_groups", ()))
    return ", ".join([entry["digest"], *groups])


def changed_values(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """List changed values as `dotted.name: A → B`; a missing value is `none`."""
    flat_a, flat_b = dict(_flatten(a)), dict(_flatten(b))
    names = [name for name in {**flat_a, **flat_b} if flat_a.get(name) != flat_b.get(name)]
    return [f"{name}: {flat_a.get(name, 'none')} → {flat_b.get(name, 'none')}" for name in names]


def compare_counts(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[CountChange]:
    """Return each count in `a` or `b`, sorted by name; the ledger's counts are last."""
    flat_a, flat_b = (dict(_flatten(_key_by_source(counts))) for counts in (a, b))
    names = sorted(flat_a.keys() | flat_b.keys(), key=lambda name: (name.startswith("ledger."), name))
    return [CountChange(name, flat_a.get(name, 0), flat_b.get(name, 0)) for name in names]


def _key_by_source(counts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `counts`; if `sources` is a list, it becomes a dict keyed by source."""
    if not isinstance(listed := counts.get("sources"), list):
        return counts
    by_source = {entry["source"]: {key: entry[key] for key in entry if key != "source"} for entry in listed}
    return {**counts, "sources": by_source}


def _flatten(value: Any, dotted_name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a JSON value with dotted names, such as `shards[3].path`."""
    match value:
        case dict():
            for key, part in value.items():
                yield from _flatten(part, f"{dotted_name}.{key}" if dotted_name else key)
        case list():
            for number, part in enumerate(value):
                yield from _flatten(part, f"{dotted_name}[{number}]")
        case _:
            yield dotted_name, value


def document_changes(a: Artifact, b: Artifact, kinds: Kinds, max_sorted_rows: int) -> Iterator[DocumentChanges]:
    """Compare the rows of two artifacts, and of each pair of members with equal names.

    Artifacts without rows, and artifacts whose rows mix several documents, are skipped.
    """
    digests_a, digests_b = member_digests(a.manifest), member_digests(b.manifest)
    pairs = [
        (name, open_artifact(a.folder / name, digest), open_artifact(b.folder / name, digests_b[name]))
        for name, digest in digests_a.items()
        if name in digests_b
    ]
    for name, member_a, member_b in [(None, a, b), *pairs]:
        store_a, store_b = row_store_for(member_a, kinds), row_store_for(member_b, kinds)
        if store_a is not None and store_b is not None and not store_a.mixes_documents:
            yield _compare_rows(store_a, store_b, name, max_sorted_rows)


def _row_hashes(store: RowStore) -> Iterator[_Records]:
    """Yield the hashes of rows, one record per row, in arrays of up to `_BLOCK_ROWS`."""
    rows, first_row = iter(store), 0
    while block := list(itertools.islice(rows, _BLOCK_ROWS)):
        records = np.empty(len(block), _RECORD_DTYPE)
        records["high"], records["low"] = _hash_halves([row.id.encode("utf-8") for row in block])
        records["text_high"], records["text_low"] = _hash_halves([row.content for row in block])
        records["labels"], _ = _hash_halves([row.other_columns for row in block])
        records["row"] = np.arange(first_row, first_row + len(block))
        yield records
        first_row += len(block)


def _hash_halves(values: Sequence[bytes]) -> NDArray[np.uint64]:
    """Return 128 bits of each value's sha256 as high and low half; shape (2, values)."""
    digests = b"".join(hashlib.sha256(value).digest()[:16] for value in values)
    return np.frombuffer(digests, ">u8").reshape(-1, 2).T.astype(np.uint64)


def _compare_rows(a: RowStore, b: RowStore, member: str | None, max_sorted_rows: int) -> DocumentChanges:
    documents: Counter[str] = Counter()
    first: dict[str, list[int]] = defaultdict(list)
    bucket_count = max(1, -(-(len(a) + len(b)) // max_sorted_rows))  # rounded up
    empty = np.empty(0, _RECORD_DTYPE)
    with tempfile.TemporaryDirectory(prefix="corpusmill-diff-") as folder:
        for side, store in (("a", a), ("b", b)):
            for records in _row_hashes(store):
                _write_buckets(Path(folder), side, records, bucket_count)
        for number in range(bucket_count):
            paths = (Path(folder, f"{side}.{number}") for side in "ab")
            hashes_a, hashes_b = [np.fromfile(path, _RECORD_DTYPE) if path.exists() else empty for path in paths]
            matches_a, matches_b = _match_rows(hashes_a, hashes_b)
            both_a, both_b = hashes_a[matches_a], hashes_b[matches_b]
            is_changed = (both_a["text_high"] != both_b["text_high"]) | (both_a["text_low"] != both_b["text_low"])
            groups = {
                "only_in_a": np.delete(hashes_a, matches_a),
                "only_in_b": np.delete(hashes_b, matches_b),
                "in_both": both_a,
                "changed": both_a[is_changed],
                "relabelled": both_a[~is_changed & (both_a["labels"] != both_b["labels"])],
            }
            for group, records in groups.items():
                documents[group] += len(records)
                # the first rows of all buckets so far; a bucket is ordered by hashes, not by rows
                first[group] = sorted([*first[group], *np.sort(records["row"])[:MAX_EXAMPLES].tolist()])[:MAX_EXAMPLES]
    examples = {}
    for group, rows in first.items():
        store = b if group == "only_in_b" else a  # the side that the row numbers are from
        examples[group] = DocumentExamples(documents[group], [store.row_at(row).parts[0].id for row in rows])
    return DocumentChanges(part=member, other_properties=a.display_names.other_properties, **examples)


def _write_buckets(folder: Path, side: str, records: _Records, bucket_count: int) -> None:
    """Append each record to a file `SIDE.BUCKET` in `folder`, chosen by the id's hash."""
    # The upper 32 bits of the id's hash h, scaled: h * count / 2**32 is in 0 … count - 1. Hashes are uniform, so
    # buckets are of about one size. h * count fits into 64 bits, because both factors are below 2**32.
    number = (records["high"] >> np.uint64(32)) * np.uint64(bucket_count) >> np.uint64(32)
    for bucket in np.unique(number):
        path = folder / f"{side}.{bucket}"
        with durable.name_file_in_errors(path), open(path, "ab") as file:
            file.write(records[number == bucket].tobytes())


def _match_rows(a: _Records, b: _Records) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pair rows with equal ids; return the row indices of the pairs in A and in B.

    If an id is repeated, rows with equal contents are paired first.
    """
    matches = [_match_keys(a, b, ("high", "low", "text_high", "text_low"))]
    others_a, others_b = (np.delete(np.arange(len(rows)), used) for rows, used in zip((a, b), matches[0], strict=True))
    changed_a, changed_b = _match_keys(a[others_a], b[others_b], ("high", "low"))
    matches.append((others_a[changed_a], others_b[changed_b]))
    in_a, in_b = map(np.concatenate, zip(*matches, strict=True))
    return in_a, in_b


def _match_keys(a: _Records, b: _Records, key_columns: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pair rows with equal keys, in stored order; return row indices in A and in B."""
    # Records 0 … len(a) - 1 are A's, the following ones B's.
    columns = [np.concatenate([a[name], b[name]]) for name in key_columns]
    order = np.lexsort(columns)  # stable; so of equal keys A's come first
    groups = np.cumsum(is_first_in_group(*(column[order] for column in columns))) - 1
    is_b = order >= len(a)
    counts_a, counts_b = (np.bincount(groups[mask], minlength=len(order)) for mask in (~is_b, is_b))
    ranks = np.arange(len(order)) - np.searchsorted(groups, groups) - np.where(is_b, counts_a[groups], 0)
    is_matched = ranks < np.where(is_b, counts_a[groups], counts_b[groups])
    return order[is_matched & ~is_b], order[is_matched & is_b] - len(a)

"""Which documents two sealed artifacts of one kind hold: in one of them only, in both, or changed.

Documents are compared by 128 bits of the sha256 of their id and of their content. The hashes go to a temporary folder,
parted by the id's hash, and one part of both sides is sorted at a time: no text is held, and memory stays bounded
however many documents there are.
"""

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.document_shards import holds_documents, shard_rows
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.formats.megatron import read_indexed_dataset
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.megatron_split import DATASET_STAGE, DOCUMENTS, SPLIT_STAGE, TOKENS
from pipeline_assets.corpus.nemotron.normalise_split import HF_LAYOUT_STAGE
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE
from pipeline_assets.corpus.nemotron.schema import SCHEMA, data_files
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact

EXAMPLES = 5
PART_DOCUMENTS = 4_000_000  # sorted at once: about 450 MB with the sort's copies
_BATCH_ROWS = 65_536
_BATCH_CONVERSATIONS = 256  # some have megabytes
_HASHED = np.dtype(
    [(name, "<u8") for name in ("high", "low", "text_high", "text_low", "labels")] + [("shard", "<i8"), ("row", "<i8")]
)
Hashed = NDArray[np.void]


class _Document(msgspec.Struct):
    """What of a Document is compared: not its `meta`, which says on which row it was this time."""

    doc_id: str
    text: str
    source: str
    domain: str
    license_tag: str
    created_at: str | None

    def labels(self) -> bytes:
        return msgspec.json.encode((self.source, self.domain, self.license_tag, self.created_at))


_decoder = msgspec.json.Decoder(_Document)
# Of a normalised row: all but which row of the source it was this time.
_ROW_KEYS = ("id", "split", "text")
_ROW_LABELS = [name for name in SCHEMA.names if name not in _ROW_KEYS and not name.startswith("source_")]


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


@dataclass(frozen=True)
class _Reader:
    """How the documents of one kind are read: hashed, in blocks; and the ids at (shard, row)."""

    labels: str
    hashed: Callable[[Artifact], Iterator[Hashed]]
    doc_ids_at: Callable[[Artifact, Sequence[tuple[int, int]]], list[str]]


def document_changes(a: Artifact, b: Artifact, part_documents: int = PART_DOCUMENTS) -> Iterator[DocumentChanges]:
    """How the documents of B differ from those of A, an artifact of its kind; nothing where the kind has none.

    Args:
        part_documents: how many documents' hashes are sorted at once, about.
    Raises:
        InputError: a file that is read is damaged.
    """
    if holds_documents(a):
        yield _compare_documents(a, b, _OF_TEXTS, None, part_documents)
    match a.manifest.identity.stage.name:
        case SPLIT_STAGE.name:
            yield _compare_documents(a, b, _OF_TOKENS, None, part_documents)
        case NORMALISE_STAGE.name | HF_LAYOUT_STAGE.name:
            yield _compare_documents(a, b, _OF_ROWS, None, part_documents)
        case DATASET_STAGE.name:
            left, right = _members(a), _members(b)
            for part in (part for part in left if part in right):
                yield _compare_documents(left[part], right[part], _OF_TOKENS, part, part_documents)


def _members(dataset: Artifact) -> dict[str, Artifact]:
    """The artifacts inside a dataset, as it was sealed with them."""
    entries = [entry for entry in dataset.manifest.identity.inputs if "member" in entry]
    return {entry["member"]: open_artifact(dataset.folder / entry["member"], entry["digest"]) for entry in entries}


def _hashed_texts(corpus: Artifact) -> Iterator[Hashed]:
    for shard, path in enumerate(_shard_paths(corpus)):
        first_row = 0
        for block in read_line_blocks(path):
            documents = [_decoder.decode(line) for line in block.splitlines()]
            texts = (document.text.encode("utf-8") for document in documents)
            labels = [document.labels() for document in documents]
            yield _hashed([document.doc_id for document in documents], texts, labels, shard, first_row)
            first_row += len(documents)


def _shard_paths(corpus: Artifact) -> list[Path]:
    return [corpus.path(path) for path in shard_rows(corpus)]


def _hashed_tokens(split: Artifact) -> Iterator[Hashed]:
    """Equal token runs are equal texts, since decoding is a function."""
    dataset = read_indexed_dataset(split.folder / Path(TOKENS).stem)
    first_row = 0
    for doc_ids in _doc_id_batches(split):
        runs = (dataset.document(row).tobytes() for row in range(first_row, first_row + len(doc_ids)))
        yield _hashed(doc_ids, runs, [b""] * len(doc_ids), 0, first_row)
        first_row += len(doc_ids)


def _doc_id_batches(split: Artifact) -> Iterator[list[str]]:
    with open_parquet(split.path(DOCUMENTS)) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=["doc_id"]):
            yield batch.column(0).to_pylist()


def _hashed(
    doc_ids: Sequence[str], contents: Iterable[bytes], labels: Sequence[bytes], shard: int, first_row: int
) -> Hashed:
    records = np.empty(len(doc_ids), _HASHED)
    ids = _halves([hashlib.sha256(doc_id.encode("utf-8")).digest() for doc_id in doc_ids])
    texts = _halves([hashlib.sha256(content).digest() for content in contents])
    records["high"], records["low"] = ids[:, 0], ids[:, 1]
    records["text_high"], records["text_low"] = texts[:, 0], texts[:, 1]
    records["labels"] = _halves([hashlib.sha256(label).digest() for label in labels])[:, 0]
    records["shard"], records["row"] = shard, np.arange(first_row, first_row + len(doc_ids))
    return records


def _halves(digests: Sequence[bytes]) -> NDArray[np.uint64]:
    """The first 128 bits of each digest as two numbers, shape (digests, 2)."""
    return np.frombuffer(b"".join(digest[:16] for digest in digests), ">u8").reshape(-1, 2).astype(np.uint64)


def _text_ids_at(corpus: Artifact, places: Sequence[tuple[int, int]]) -> list[str]:
    paths = _shard_paths(corpus)
    found = {}
    for shard in {shard for shard, _ in places}:
        row = 0
        last = max(row for of, row in places if of == shard)
        for block in read_line_blocks(paths[shard]):
            lines = block.splitlines()
            wanted = [place for of, place in places if of == shard and row <= place < row + len(lines)]
            found.update({(shard, place): _decoder.decode(lines[place - row]).doc_id for place in wanted})
            row += len(lines)
            if row > last:
                break
    return [found[place] for place in places]


def _token_ids_at(split: Artifact, places: Sequence[tuple[int, int]]) -> list[str]:
    found = {}
    first_row = 0
    for doc_ids in _doc_id_batches(split):
        rows = [row for _, row in places if first_row <= row < first_row + len(doc_ids)]
        found.update({row: doc_ids[row - first_row] for row in rows})
        first_row += len(doc_ids)
        if len(found) == len(places):
            break
    return [found[row] for _, row in places]


def _hashed_rows(rows: Artifact) -> Iterator[Hashed]:
    """An id is one of its split."""
    for shard, path in enumerate(data_files(rows)):
        with open_parquet(rows.path(path)) as file:
            first_row = 0
            for batch in file.iter_batches(_BATCH_CONVERSATIONS, columns=[*_ROW_KEYS, *_ROW_LABELS]):
                ids, splits, texts = (batch.column(name).to_pylist() for name in _ROW_KEYS)
                labels = (batch.column(name).to_pylist() for name in _ROW_LABELS)
                names = [f"{split}\0{row_id}" for split, row_id in zip(splits, ids, strict=True)]
                said = [msgspec.json.encode(values) for values in zip(*labels, strict=True)]
                yield _hashed(names, (text.encode("utf-8") for text in texts), said, shard, first_row)
                first_row += len(ids)


def _row_ids_at(rows: Artifact, places: Sequence[tuple[int, int]]) -> list[str]:
    found = {}
    paths = data_files(rows)
    for shard in {shard for shard, _ in places}:
        with open_parquet(rows.path(paths[shard])) as file:
            ids = file.read(["id"]).column(0)
            found.update({(shard, row): ids[row].as_py() for of, row in places if of == shard})
    return [found[place] for place in places]


_OF_TEXTS = _Reader("another source, domain, licence or date", _hashed_texts, _text_ids_at)
_OF_TOKENS = _Reader("", _hashed_tokens, _token_ids_at)
_OF_ROWS = _Reader("other metadata, quality or loss", _hashed_rows, _row_ids_at)


@dataclass
class _Tally:
    """Documents counted over the parts, and the first few of them by (shard, row)."""

    documents: int = 0
    places: tuple[tuple[int, int], ...] = ()

    def add(self, records: Hashed) -> None:
        self.documents += len(records)
        first = records[np.lexsort((records["row"], records["shard"]))[:EXAMPLES]]
        places = [(int(record["shard"]), int(record["row"])) for record in first]
        self.places = tuple(sorted([*self.places, *places])[:EXAMPLES])


def _compare_documents(
    a: Artifact, b: Artifact, reader: _Reader, part: str | None, part_documents: int
) -> DocumentChanges:
    only_in_a, only_in_b, in_both, changed, relabelled = (_Tally() for _ in range(5))
    documents = a.manifest.identity.counts["documents"] + b.manifest.identity.counts["documents"]
    parts = max(1, -(-documents // part_documents))
    with tempfile.TemporaryDirectory(prefix="corpusmill-diff-") as folder:
        for side, artifact in (("a", a), ("b", b)):
            for records in reader.hashed(artifact):
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
        only_in_a=Found(only_in_a.documents, reader.doc_ids_at(a, only_in_a.places)),
        only_in_b=Found(only_in_b.documents, reader.doc_ids_at(b, only_in_b.places)),
        in_both=Found(in_both.documents, reader.doc_ids_at(a, in_both.places)),
        changed=Found(changed.documents, reader.doc_ids_at(a, changed.places)),
        labels=reader.labels,
        relabelled=Found(relabelled.documents, reader.doc_ids_at(a, relabelled.places)),
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

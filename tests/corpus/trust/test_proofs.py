"""Documents worked out again: those of a snapshot from the hub's files, where these are here, those of a split by
encoding them. What is right is proven, and what isn't is found, wherever it hides.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_assets.corpus.formats.compression import write_rows
from pipeline_assets.corpus.formats.memmap import index_bytes
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER
from pipeline_assets.corpus.rows.documents import SnapshotRows
from pipeline_assets.corpus.rows.splits import SplitRows
from pipeline_assets.corpus.rows.store import RowStore
from pipeline_assets.corpus.spine.artifact import Artifact, sealed_manifest
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.rehash import Journal
from pipeline_assets.corpus.trust.result import Sample, Scope, ShardProof
from pipeline_assets.corpus.trust.verify import proofs

Json = dict[str, object]
ReadLines = Callable[[Path], list[Json]]
EVERYTHING = Sample(Fraction(1))
SHARD = "shards/00001.jsonl.zst"


class Unchecked(Lineage):
    """Finds artifacts as they lie there: sizes and hashes are somebody else's business."""

    def locate(self, digest: str, name: str | None = None) -> Artifact:
        found = self.find(digest)
        assert found is not None
        return found


def rows_in(root: Path, name: str) -> RowStore:
    """The snapshot of a data root, or one of its splits."""
    split = root / "megatron" / "pages_v1" / name
    folder = next((root / "corpora" / "pages").glob("[!.]*")) if name == "snapshot" else split
    manifest = sealed_manifest(folder)
    return (SnapshotRows if name == "snapshot" else SplitRows)(Artifact(folder, manifest), Unchecked(root))


def proving(
    store: RowStore, sample: Sample = EVERYTHING, journal: Journal | None = None, threads: int = 2
) -> Iterator[ShardProof]:
    files = store.proof_files()
    return proofs(store, files, sample, journal or Journal(None), Scope(threads=threads))


def complaints(store: RowStore) -> list[str]:
    return [what for proof in proving(store) for what in proof.complaints]


@pytest.fixture
def snapshot(chain_root: Path) -> RowStore:
    return rows_in(chain_root, "snapshot")


@pytest.fixture
def train(chain_root: Path) -> RowStore:
    return rows_in(chain_root, "train")


@pytest.mark.parametrize(("name", "threads"), [("snapshot", 2), ("train", 0), ("train", 3), ("valid", 1)])
def test_every_document_is_proven_of_a_split_too_though_its_budget_cuts_it(
    pristine: Path, name: str, threads: int
) -> None:
    store = rows_in(pristine, name)

    found = list(proving(store, threads=threads))

    shards = 4 if name == "snapshot" else 3
    assert [proof.shard for proof in found] == [f"shards/{number:05d}.jsonl.zst" for number in range(shards)]
    assert [(proof.not_here, proof.complaints) for proof in found] == [(0, [])] * shards
    assert sum(proof.documents for proof in found) == store.artifact.manifest.identity.counts["documents"]


@pytest.mark.parametrize(("name", "share", "most"), [("snapshot", "1/9", "40/131"), ("train", "1/4", "1/2")])
def test_a_sample_is_the_same_every_time_and_a_part_of_the_whole(
    pristine: Path, name: str, share: str, most: str
) -> None:
    store = rows_in(pristine, name)

    first, again = (list(proving(store, Sample(Fraction(share)))) for _ in range(2))

    assert first == again
    assert len(first) == 2
    documents = store.artifact.manifest.identity.counts["documents"]
    assert 0 < sum(proof.documents for proof in first) < Fraction(most) * documents


def swap_texts(documents: list[Json]) -> None:
    documents[3]["text"], documents[4]["text"] = documents[4]["text"], documents[3]["text"]


def placed(file: str, row: int) -> Callable[[list[Json]], None]:
    return lambda documents: documents[3].update(meta={"source_file": file, "source_row": row})


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (
            lambda documents: documents[3].update(text="something else"),
            ["document '{ids[3]}' has another text than {places[3]}"],
        ),
        (
            lambda documents: documents[3].update(doc_id="nobody"),
            ["document 'nobody' has another id than {places[3]}, '{ids[3]}'"],
        ),
        (placed("b.parquet", 319), ["document '{ids[3]}' is of b.parquet row 319, which was not read"]),
        (placed("b.parquet", 9999), ["document '{ids[3]}' is of b.parquet row 9999, which was not read"]),
        (placed("c.parquet", 0), ["document '{ids[3]}' is of c.parquet row 0, which was not read"]),
        (swap_texts, [f"document '{{ids[{row}]}}' has another text than {{places[{row}]}}" for row in (3, 4)]),
    ],
    ids=["text", "id", "row not drawn", "row beyond the file", "file not read", "swapped"],
)
def test_a_document_that_its_row_contradicts_is_found(
    snapshot: RowStore, jsonl: ReadLines, edit: Callable[[list[Json]], object], expected: list[str]
) -> None:
    path = snapshot.artifact.folder / SHARD
    ids, places = zip(
        *((one["doc_id"], f"b.parquet row {one['meta']['source_row']}") for one in jsonl(path)),  # type: ignore[index]
        strict=True,
    )
    documents = jsonl(path)
    edit(documents)
    write_rows(path, SHARD, documents, 3)

    assert complaints(snapshot) == [line.format(ids=ids, places=places) for line in expected]


def cached_row_group(snapshot: RowStore) -> Path:
    """Where the cache has the first row group of b.parquet that was read."""
    inputs = snapshot.artifact.manifest.identity.inputs
    [entry] = [entry for entry in inputs if entry["name"].endswith(":b.parquet")]
    [path] = (snapshot.lineage.root / CACHE_FOLDER).glob(f"*/bytes/*/{entry['row_groups'][0]['start']}-*")
    return path


def without_footer(row_group: Path) -> None:
    max(row_group.parent.iterdir(), key=lambda path: int(path.name.split("-")[0])).unlink()


@pytest.mark.parametrize(
    ("lose", "not_here"),
    [
        (Path.unlink, [0, 40, 0, 0]),
        (without_footer, [0, 40, 40, 40]),
        (lambda row_group: shutil.rmtree(row_group.parents[3]), [11, 40, 40, 40]),
    ],
    ids=["row group", "footer", "cache"],
)
def test_what_is_not_in_the_cache_is_counted_and_nothing_is_said_of_it(
    snapshot: RowStore, lose: Callable[[Path], object], not_here: list[int]
) -> None:
    lose(cached_row_group(snapshot))

    found = list(proving(snapshot))

    assert [proof.not_here for proof in found] == not_here
    assert [proof.documents + proof.not_here for proof in found] == [11, 40, 40, 40]
    assert [proof.complaints for proof in found] == [[]] * 4


def test_bytes_of_the_cache_that_are_no_row_group_are_found(snapshot: RowStore) -> None:
    path = cached_row_group(snapshot)
    path.write_bytes(bytes(path.stat().st_size))

    [complaint] = complaints(snapshot)

    assert complaint.startswith(f"{SHARD} can't be looked at (")


def test_derived_ids_and_texts_that_had_nul_characters_agree_with_their_rows(
    take: Callable[..., Artifact], tmp_path: Path
) -> None:
    texts = [f"page {number}" for number in range(300)] + ["with\0out", "page 7"]
    columns = {"text": "text", "id": None, "created_at": None}
    artifact = take({"a.parquet": pa.table({"text": texts})}, columns=columns)
    (tmp_path / "cache").rename(tmp_path / CACHE_FOLDER)

    found = proving(SnapshotRows(artifact, Lineage(tmp_path)))

    assert [(proof.documents, proof.not_here, proof.complaints) for proof in found] == [(302, 0, [])]


def table_of(train: RowStore) -> dict[str, list[object]]:
    return pq.read_table(train.artifact.folder / "documents.parquet").to_pydict()


def test_another_token_is_found_with_its_place(train: RowStore) -> None:
    tokens, table = np.memmap(train.artifact.folder / "tokens.bin", np.int32, "r+"), table_of(train)
    place = sum(table["tokens"][:20]) + 5  # type: ignore[arg-type]
    was = int(tokens[place])
    tokens[place] ^= 1
    tokens.flush()

    assert complaints(train) == [
        f"document {table['doc_id'][20]!r}: token 5 of it is {was ^ 1} in tokens.bin, its text has {was}"
    ]


def cut_tokens(split: Path) -> None:
    os.truncate(split / "tokens.bin", (split / "tokens.bin").stat().st_size - 4)


def contradict_index(split: Path) -> None:
    data = bytearray((split / "tokens.idx").read_bytes())
    data[34 + 4 * 52 + 8 * 30] ^= 4
    (split / "tokens.idx").write_bytes(data)


def changed_table(change: Callable[[dict[str, list[object]]], object]) -> Callable[[Path], None]:
    def write(split: Path) -> None:
        table = pq.read_table(split / "documents.parquet")
        columns = table.to_pydict()
        change(columns)
        pq.write_table(pa.table(columns, schema=table.schema), split / "documents.parquet")

    return write


@pytest.mark.parametrize(
    ("damage", "count", "words"),
    [
        (cut_tokens, 1, ": tokens.bin ends before it does"),
        (contradict_index, 1, "/tokens.idx: lengths and pointers contradict each other in shards/0000"),
        (
            changed_table(lambda columns: columns["tokens"].__setitem__(3, 7)),
            1,
            ": documents.parquet says 7 tokens, tokens.idx ",
        ),
        (
            changed_table(lambda columns: [column.insert(0, column.pop()) for column in columns.values()]),
            None,
            "are not one after the other",
        ),
        (
            changed_table(lambda columns: columns["row"].__setitem__(0, 999)),
            None,
            "from row 999 of shards/00000.jsonl.zst, which has no such row",
        ),
        (
            changed_table(lambda columns: columns["row"].__setitem__(0, 999)),
            None,
            "documents.parquet lacks 'a-0', row 0 of ",
        ),
        (lambda split: (split / "documents.parquet").write_bytes(b"nothing of the kind"), 3, ""),
        (lambda split: (split / "tokens.idx").write_bytes(b"nothing of the kind"), 3, ""),
        (
            lambda split: pq.write_table(pa.table({"doc_id": ["a"]}), split / "documents.parquet"),
            3,
            "it has other columns than a table of documents",
        ),
    ],
    ids=["tokens cut", "index", "count", "mixed shards", "row behind", "row lost", "no table", "no index", "columns"],
)
def test_a_split_whose_files_contradict_each_other_is_found(
    train: RowStore, damage: Callable[[Path], object], count: int | None, words: str
) -> None:
    damage(train.artifact.folder)

    found = complaints(train)

    assert any(words in what for what in found)
    assert count is None or (len(found), sum(words in what for what in found)) == (count, count)


def test_another_length_in_the_index_is_found(train: RowStore) -> None:
    lengths = np.array(table_of(train)["tokens"], np.int32)
    lengths[0], lengths[1] = lengths[0] + 1, lengths[1] - 1
    (train.artifact.folder / "tokens.idx").write_bytes(index_bytes(lengths))

    first, second = complaints(train)

    said = f"{lengths[0] - 1:,} tokens, tokens.idx {lengths[0]:,}, its text has {lengths[0] - 1:,}"
    assert first.endswith(f": documents.parquet says {said}")
    assert "tokens.idx" in second


def test_another_id_in_the_table_is_found_from_both_sides(train: RowStore) -> None:
    row, doc_id, shard = (table_of(train)[column][30] for column in ("row", "doc_id", "source_shard"))
    changed_table(lambda columns: columns["doc_id"].__setitem__(30, "nobody"))(train.artifact.folder)

    assert complaints(train) == [
        f"documents.parquet has 'nobody' from row {row} of {shard}, where {doc_id!r} is",
        f"documents.parquet has 'nobody' from row {row} of {shard}, which has no such row",
    ]


def test_a_damaged_shard_is_found_and_hides_no_other(chain_root: Path, train: RowStore) -> None:
    shard = next(chain_root.glob(f"corpora/pages/*/{SHARD}"))
    shard.write_bytes(shard.read_bytes()[:-9])

    assert [proof.complaints for proof in proving(train)] == [[], [f"{shard}: the zstd stream is cut off"], []]


def test_many_complaints_of_a_shard_are_cut_short(train: RowStore) -> None:
    tokens = train.artifact.folder / "tokens.bin"
    tokens.write_bytes(b"\0" * tokens.stat().st_size)

    assert [len(proof.complaints) for proof in proving(train)] == [5, 5, 5]


def test_what_a_former_process_proved_is_not_proven_again(train: RowStore, tmp_path: Path) -> None:
    tokens = train.artifact.folder / "tokens.bin"
    with Journal(tmp_path / "journal.jsonl") as journal:
        shards = proving(train, journal=journal, threads=1)
        next(shards)
        shards.close()  # type: ignore[attr-defined]
    stat = tokens.stat()
    tokens.write_bytes(b"\0" * stat.st_size)
    os.utime(tokens, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    with Journal(tmp_path / "journal.jsonl") as journal:
        first, *_, last = proving(train, journal=journal)

    assert (first.documents > 0, first.found_at is None, first.complaints) == (True, False, [])
    assert (last.documents, last.found_at, len(last.complaints)) == (0, None, 5)


@pytest.mark.parametrize("touched", ["tokens.bin", "tokens.idx", "documents.parquet", None])
def test_a_proof_counts_no_more_when_a_file_was_touched_or_for_another_sample(
    train: RowStore, tmp_path: Path, touched: str | None
) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        list(proving(train, EVERYTHING if touched else Sample(Fraction(1, 2)), journal))
        if touched:
            (train.artifact.folder / touched).touch()

        assert all(proof.found_at is None for proof in proving(train, journal=journal))

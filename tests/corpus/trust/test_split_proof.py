"""Documents of a split encoded again: what is right is proven, and what isn't is found, wherever it hides."""

import os
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline_assets.corpus.formats.megatron import index_bytes
from pipeline_assets.corpus.rows.splits import SplitRows
from pipeline_assets.corpus.spine.artifact import Artifact, read_manifest
from pipeline_assets.corpus.spine.lineage import Lineage
from pipeline_assets.corpus.spine.rehash import Journal
from pipeline_assets.corpus.trust.result import ShardProof
from pipeline_assets.corpus.trust.sample import Sample
from pipeline_assets.corpus.trust.verify import proofs

EVERYTHING = Sample(Fraction(1))


@pytest.fixture
def train(chain_root: Path) -> Path:
    return chain_root / "megatron" / "pages_v1" / "train"


class Unchecked(Lineage):
    """Finds files as they lie there: sizes and hashes are somebody else's business."""

    def locate(self, digest: str, name: str | None = None) -> Artifact:
        found = self.find(digest)
        assert found is not None
        return found


def prove(
    split: Path, root: Path, sample: Sample = EVERYTHING, journal: Journal | None = None, threads: int = 2
) -> list[ShardProof]:
    return list(proving(split, root, sample, journal or Journal(None), threads))


def proving(split: Path, root: Path, sample: Sample, journal: Journal, threads: int) -> Iterator[ShardProof]:
    manifest = read_manifest(split)
    assert manifest is not None
    store = SplitRows(Artifact(split, manifest), Unchecked(root))
    return proofs(store, store.proof_files(), sample, journal, threads, log_every_s=1000)


def complaints(split: Path, root: Path) -> list[str]:
    return [what for shard in prove(split, root) for what in shard.complaints]


def counted(folder: Path, what: str) -> int:
    manifest = read_manifest(folder)
    assert manifest is not None
    return int(manifest.identity.counts[what])


def change_table(split: Path, change: Callable[[dict[str, list[object]]], object]) -> None:
    table = pq.read_table(split / "documents.parquet")
    columns = table.to_pydict()
    change(columns)
    pq.write_table(pa.table(columns, schema=table.schema), split / "documents.parquet")


@pytest.mark.parametrize(("split", "threads"), [("train", 0), ("train", 3), ("valid", 1)])
def test_every_document_of_a_split_is_proven_though_its_budget_cuts_it(
    pristine: Path, split: str, threads: int
) -> None:
    folder = pristine / "megatron" / "pages_v1" / split

    shards = prove(folder, pristine, threads=threads)

    assert [shard.shard for shard in shards] == [f"shards/{number:05d}.jsonl.zst" for number in range(3)]
    assert [what for shard in shards for what in shard.complaints] == []
    assert sum(shard.documents for shard in shards) == counted(folder, "documents")


def test_a_sample_is_the_same_every_time_and_a_part_of_the_whole(pristine: Path) -> None:
    folder = pristine / "megatron" / "pages_v1" / "train"
    sample = Sample(Fraction(1, 4))

    first, again = (prove(folder, pristine, sample) for _ in range(2))

    assert first == again
    assert len(first) == 2
    assert 0 < sum(shard.documents for shard in first) < counted(folder, "documents") / 2


def test_another_token_is_found_with_its_place(chain_root: Path, train: Path) -> None:
    tokens = np.memmap(train / "tokens.bin", np.int32, "r+")
    lengths = pq.read_table(train / "documents.parquet")["tokens"].to_numpy()
    place = int(lengths[:20].sum()) + 5
    was, doc_id = int(tokens[place]), pq.read_table(train / "documents.parquet")["doc_id"][20].as_py()
    tokens[place] ^= 1
    tokens.flush()

    assert complaints(train, chain_root) == [
        f"document {doc_id!r}: token 5 of it is {was ^ 1} in tokens.bin, its text has {was}"
    ]


def test_tokens_that_end_early_are_found(chain_root: Path, train: Path) -> None:
    with open(train / "tokens.bin", "r+b") as file:
        file.truncate((train / "tokens.bin").stat().st_size - 4)

    [complaint] = complaints(train, chain_root)

    assert complaint.endswith(": tokens.bin ends before it does")


def test_another_length_in_the_index_is_found(chain_root: Path, train: Path) -> None:
    lengths = pq.read_table(train / "documents.parquet")["tokens"].to_numpy().copy()
    lengths[0], lengths[1] = lengths[0] + 1, lengths[1] - 1
    (train / "tokens.idx").write_bytes(index_bytes(lengths))

    first, second = complaints(train, chain_root)

    said = f"{lengths[0] - 1:,} tokens, tokens.idx {lengths[0]:,}, its text has {lengths[0] - 1:,}"
    assert first.endswith(f": documents.parquet says {said}")
    assert "tokens.idx" in second


def test_an_index_that_contradicts_itself_is_found(chain_root: Path, train: Path) -> None:
    data = bytearray((train / "tokens.idx").read_bytes())
    data[34 + 4 * 52 + 8 * 30] ^= 4
    (train / "tokens.idx").write_bytes(data)

    [complaint] = complaints(train, chain_root)

    assert complaint.startswith(f"{train}/tokens.idx: lengths and pointers contradict each other in shards/0000")


def test_another_count_of_tokens_in_the_table_is_found(chain_root: Path, train: Path) -> None:
    change_table(train, lambda columns: columns["tokens"].__setitem__(3, 7))

    [complaint] = complaints(train, chain_root)

    assert ": documents.parquet says 7 tokens, tokens.idx " in complaint


def test_another_id_in_the_table_is_found_from_both_sides(chain_root: Path, train: Path) -> None:
    doc_id = pq.read_table(train / "documents.parquet")["doc_id"][30].as_py()
    row = pq.read_table(train / "documents.parquet")["row"][30].as_py()
    shard = pq.read_table(train / "documents.parquet")["source_shard"][30].as_py()
    change_table(train, lambda columns: columns["doc_id"].__setitem__(30, "nobody"))

    assert complaints(train, chain_root) == [
        f"documents.parquet has 'nobody' from row {row} of {shard}, where {doc_id!r} is",
        f"documents.parquet has 'nobody' from row {row} of {shard}, which has no such row",
    ]


def test_a_row_that_points_behind_the_shard_is_found(chain_root: Path, train: Path) -> None:
    change_table(train, lambda columns: columns["row"].__setitem__(0, 999))

    found = complaints(train, chain_root)

    assert any(what.endswith("from row 999 of shards/00000.jsonl.zst, which has no such row") for what in found)
    assert any(what.startswith("documents.parquet lacks 'a-0', row 0 of ") for what in found)


def test_a_table_whose_shards_are_mixed_is_found(chain_root: Path, train: Path) -> None:
    change_table(train, lambda columns: [column.insert(0, column.pop()) for column in columns.values()])

    found = complaints(train, chain_root)

    assert any("are not one after the other" in what for what in found)


@pytest.mark.parametrize("name", ["documents.parquet", "tokens.idx"])
def test_a_file_that_is_none_of_its_kind_is_found(chain_root: Path, train: Path, name: str) -> None:
    (train / name).write_bytes(b"nothing of the kind")

    assert len(complaints(train, chain_root)) == 3


def test_a_table_of_other_columns_is_found(chain_root: Path, train: Path) -> None:
    pq.write_table(pa.table({"doc_id": ["a"]}), train / "documents.parquet")

    assert all("it has other columns than a table of documents" in what for what in complaints(train, chain_root))


def test_a_damaged_shard_is_found_and_hides_no_other(chain_root: Path, train: Path) -> None:
    shard = next(chain_root.glob("corpora/pages/*/shards/00001.jsonl.zst"))
    shard.write_bytes(shard.read_bytes()[:-9])

    shards = prove(train, chain_root)

    assert [len(proof.complaints) for proof in shards] == [0, 1, 0]
    assert shards[1].complaints == [f"{shard}: the zstd stream is cut off"]


def test_many_complaints_of_a_shard_are_cut_short(chain_root: Path, train: Path) -> None:
    (train / "tokens.bin").write_bytes(b"\0" * (train / "tokens.bin").stat().st_size)

    assert [len(proof.complaints) for proof in prove(train, chain_root)] == [5, 5, 5]


def test_what_a_former_process_proved_is_not_proven_again(chain_root: Path, train: Path, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        shards = proving(train, chain_root, EVERYTHING, journal, 1)
        next(shards)
        shards.close()  # type: ignore[attr-defined]
    stat = (train / "tokens.bin").stat()
    (train / "tokens.bin").write_bytes(b"\0" * stat.st_size)
    os.utime(train / "tokens.bin", ns=(stat.st_atime_ns, stat.st_mtime_ns))

    with Journal(tmp_path / "journal.jsonl") as journal:
        first, *_, last = prove(train, chain_root, journal=journal)

    assert (first.documents > 0, first.found_at is None, first.complaints) == (True, False, [])
    assert (last.documents, last.found_at, len(last.complaints)) == (0, None, 5)


@pytest.mark.parametrize("touched", ["tokens.bin", "tokens.idx", "documents.parquet"])
def test_a_proof_counts_no_more_when_a_file_was_touched(
    chain_root: Path, train: Path, tmp_path: Path, touched: str
) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        prove(train, chain_root, journal=journal)
        (train / touched).touch()

        assert all(shard.found_at is None for shard in prove(train, chain_root, journal=journal))


def test_a_proof_of_another_sample_is_another(chain_root: Path, train: Path, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        prove(train, chain_root, Sample(Fraction(1, 2)), journal)

        assert all(shard.found_at is None for shard in prove(train, chain_root, journal=journal))

"""A sample of a hub file reads the rows that a sample of the whole file reads, and fetches little more than those."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from healing_build import DATASET

from pipeline_assets.corpus.nemotron import source_rows, split_pin
from pipeline_assets.corpus.nemotron.source_rows import plan_sample, read_shard
from pipeline_assets.corpus.nemotron.split_pin import SampledSplit
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile

Publish = Callable[..., str]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_pin, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(source_rows, "_SAMPLE_PIECE_BYTES", 4000)


def lines(count: int, longest: int, seed: int) -> bytes:
    dice = random.Random(seed)
    return b"".join(b'{"n": %d, "t": "%s"}\n' % (n, b"x" * dice.randrange(longest)) for n in range(count))


@pytest.mark.parametrize("rows", [1, 16, 40, 10_000])
@pytest.mark.parametrize("longest", [40, 3000, 30_000])
def test_the_rows_are_those_of_the_whole_files(
    rows: int, longest: int, small_blocks: None, publish: Publish, hub_files: HubFiles, tmp_path: Path
) -> None:
    files = {"a.jsonl": lines(1 + 200_000 // longest, longest, 1), "b.jsonl": lines(20, longest, 2), "c.jsonl": b""}
    commit = publish(files)
    whole = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        whole.append(SourceFile(tmp_path / name, name, len(data)))
    (tmp_path / "work").mkdir()

    listed = [file for file in hub_files.list_files(DATASET, commit) if file.path in files]
    found = SampledSplit(hub_files, DATASET, commit, listed, tmp_path / "work").fetch(rows)

    assert [row for shard in plan_sample(found, rows) for row in read_shard(shard)] == [
        row for shard in plan_sample(whole, rows) for row in read_shard(shard)
    ]


def test_what_a_piece_has_not_is_fetched_of_the_next_ones(
    small_blocks: None, publish: Publish, hub_files: HubFiles, tmp_path: Path
) -> None:
    files = {
        "a.jsonl": b"\xef\xbb\xbf" + b" \n" * 9000 + lines(3, 40, 1) + b"\n" * 9000 + lines(400, 40, 2),
        "b.jsonl": b"",
        "c.jsonl": lines(2, 40, 3),
        "d.jsonl": b"\n" * 5000 + lines(400, 40, 4),
    }
    commit = publish(files)
    whole = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        whole.append(SourceFile(tmp_path / name, name, len(data)))

    for rows, rows_there in ((1, 1), (10, 10), (30, 30), (500, 487)):
        folder = tmp_path / str(rows)
        folder.mkdir()
        listed = [file for file in hub_files.list_files(DATASET, commit) if file.path in files]
        found = SampledSplit(hub_files, DATASET, commit, listed, folder).fetch(rows)
        read = [row for shard in plan_sample(found, rows) for row in read_shard(shard)]
        assert read == [row for shard in plan_sample(whole, rows) for row in read_shard(shard)]
        assert len(read) == rows_there


def test_rows_of_parquet_count_for_what_is_fetched_of_lines(
    small_blocks: None, publish: Publish, hub_files: HubFiles, tmp_path: Path
) -> None:
    table = pa.table({"n": range(50), "t": ["x"] * 50})
    commit = publish({"a.parquet": table, "b.jsonl": lines(400, 40, 1)})
    listed = [file for file in hub_files.list_files(DATASET, commit) if file.path in ("a.parquet", "b.jsonl")]

    found = SampledSplit(hub_files, DATASET, commit, listed, tmp_path).fetch(60)

    assert len([row for shard in plan_sample(found, 60) for row in read_shard(shard)]) == 60


def test_little_of_a_large_file_is_fetched(
    small_blocks: None, publish: Publish, hub_files: HubFiles, tmp_path: Path
) -> None:
    commit = publish({"a.jsonl": lines(20_000, 40, 1)})
    [file] = [file for file in hub_files.list_files(DATASET, commit) if file.path == "a.jsonl"]
    before = hub_files.traffic.bytes

    SampledSplit(hub_files, DATASET, commit, [file], tmp_path).fetch(16)

    assert file.size > 700_000
    assert hub_files.traffic.bytes - before < 40_000

"""A sample of a hub file reads the rows that a sample of the whole file reads, and fetches little more than those."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from healing_build import DATASET

from pipeline_assets.build.pins import split_pin
from pipeline_assets.build.pins.split_pin import SampledSplit
from pipeline_assets.corpus.nemotron import source_rows
from pipeline_assets.corpus.nemotron.source_rows import plan_sample, read_shard
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile

Fetched = Callable[[dict[str, bytes | pa.Table], int], list[SourceFile]]


def lines(count: int, longest: int, seed: int) -> bytes:
    dice = random.Random(seed)
    return b"".join(b'{"n": %d, "t": "%s"}\n' % (n, b"x" * dice.randrange(longest)) for n in range(count))


@pytest.fixture
def fetched(
    publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Fetched:
    """Publishes files, and fetches of each small pieces: so many rows in all."""
    monkeypatch.setattr(split_pin, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(source_rows, "_SAMPLE_PIECE_BYTES", 4000)

    def fetch(files: dict[str, bytes | pa.Table], rows: int) -> list[SourceFile]:
        commit = publish(files)
        listed = [file for file in hub_files.list_files(DATASET, commit) if file.path in files]
        folder = tmp_path / str(rows)
        folder.mkdir()
        return SampledSplit(hub_files, DATASET, commit, listed, folder).fetch(rows)

    return fetch


def sampled(files: list[SourceFile], rows: int) -> list[object]:
    return [row for shard in plan_sample(files, rows) for row in read_shard(shard)]


def written(folder: Path, files: dict[str, bytes]) -> list[SourceFile]:
    """The whole files."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [SourceFile(folder / name, name, len(data)) for name, data in files.items()]


@pytest.mark.parametrize("rows", [1, 16, 40, 10_000])
@pytest.mark.parametrize("longest", [40, 3000, 30_000])
def test_the_rows_are_those_of_the_whole_files(rows: int, longest: int, fetched: Fetched, tmp_path: Path) -> None:
    files = {"a.jsonl": lines(1 + 200_000 // longest, longest, 1), "b.jsonl": lines(20, longest, 2), "c.jsonl": b""}

    assert sampled(fetched(files, rows), rows) == sampled(written(tmp_path, files), rows)


@pytest.mark.parametrize(("rows", "rows_there"), [(1, 1), (10, 10), (30, 30), (500, 487)])
def test_what_a_piece_lacks_the_next_ones_give(rows: int, rows_there: int, fetched: Fetched, tmp_path: Path) -> None:
    files = {
        "a.jsonl": b"\xef\xbb\xbf" + b" \n" * 9000 + lines(3, 40, 1) + b"\n" * 9000 + lines(400, 40, 2),
        "b.jsonl": b"",
        "c.jsonl": lines(2, 40, 3),
        "d.jsonl": b"\n" * 5000 + lines(400, 40, 4),
    }

    read = sampled(fetched(files, rows), rows)

    assert read == sampled(written(tmp_path, files), rows)
    assert len(read) == rows_there


def test_rows_of_parquet_count_for_what_is_fetched_of_lines(fetched: Fetched) -> None:
    files = {"a.parquet": pa.table({"n": range(50), "t": ["x"] * 50}), "b.jsonl": lines(400, 40, 1)}

    assert len(sampled(fetched(files, 60), 60)) == 60


def test_little_of_a_large_file_is_fetched(fetched: Fetched, hub_files: HubFiles) -> None:
    data = lines(20_000, 40, 1)

    fetched({"a.jsonl": data}, 16)

    assert len(data) > 700_000
    assert hub_files.traffic.bytes < 40_000

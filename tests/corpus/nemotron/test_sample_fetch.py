"""Samples of hub files: the rows of whole-file samples, with little traffic."""

import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from healing_build import DATASET

from pipeline_assets.build.pins import split_pin
from pipeline_assets.build.pins.raw_pin import HubPin
from pipeline_assets.build.pins.split_pin import SampledSplit
from pipeline_assets.corpus.nemotron import source_rows
from pipeline_assets.corpus.nemotron.source_rows import plan_sample, read_shard
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.source_folder import SourceFile

Sampler = Callable[[dict[str, bytes | pa.Table], int], list[SourceFile]]


def lines(count: int, longest: int, seed: int) -> bytes:
    rng = random.Random(seed)
    return b"".join(b'{"n": %d, "t": "%s"}\n' % (n, b"x" * rng.randrange(longest)) for n in range(count))


@pytest.fixture
def sampler(
    publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Sampler:
    """Return a function that publishes files and fetches a sample in small pieces."""
    monkeypatch.setattr(split_pin, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(source_rows, "_SAMPLE_PIECE_BYTES", 4000)

    def fetch(files: dict[str, bytes | pa.Table], rows: int) -> list[SourceFile]:
        commit = publish(files)
        listed = [file for file in hub_files.list_files(DATASET, commit) if file.path in files]
        folder = tmp_path / str(rows)
        folder.mkdir()
        return SampledSplit(HubPin(hub_files, DATASET, commit, listed), folder).fetch(rows)

    return fetch


def read_sample(files: list[SourceFile], rows: int) -> list[object]:
    return [row for shard in plan_sample(files, rows) for row in read_shard(shard)]


def write_files(folder: Path, files: dict[str, bytes]) -> list[SourceFile]:
    """Write the whole files to a folder."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return [SourceFile(folder / name, name, len(data)) for name, data in files.items()]


@pytest.mark.parametrize("rows", [1, 16, 40, 10_000])
@pytest.mark.parametrize("longest", [40, 3000, pytest.param(30_000, marks=pytest.mark.slow)])
def test_rows_equal_a_sample_of_the_whole_files(rows: int, longest: int, sampler: Sampler, tmp_path: Path) -> None:
    files = {"a.jsonl": lines(1 + 200_000 // longest, longest, 1), "b.jsonl": lines(20, longest, 2), "c.jsonl": b""}

    assert read_sample(sampler(files, rows), rows) == read_sample(write_files(tmp_path, files), rows)


@pytest.mark.parametrize(("rows", "rows_read"), [(1, 1), (10, 10), (30, 30), (500, 487)])
def test_later_pieces_supply_missing_rows(rows: int, rows_read: int, sampler: Sampler, tmp_path: Path) -> None:
    files = {
        "a.jsonl": b"\xef\xbb\xbf" + b" \n" * 9000 + lines(3, 40, 1) + b"\n" * 9000 + lines(400, 40, 2),
        "b.jsonl": b"",
        "c.jsonl": lines(2, 40, 3),
        "d.jsonl": b"\n" * 5000 + lines(400, 40, 4),
    }

    read = read_sample(sampler(files, rows), rows)

    assert read == read_sample(write_files(tmp_path, files), rows)
    assert len(read) == rows_read


def test_parquet_rows_count_towards_the_sample(sampler: Sampler) -> None:
    files = {"a.parquet": pa.table({"n": range(50), "t": ["x"] * 50}), "b.jsonl": lines(400, 40, 1)}

    assert len(read_sample(sampler(files, 60), 60)) == 60


def test_little_of_a_large_file_is_fetched(sampler: Sampler, hub_files: HubFiles) -> None:
    data = lines(20_000, 40, 1)

    sampler({"a.jsonl": data}, 16)

    assert len(data) > 700_000
    assert hub_files.traffic.bytes < 40_000

"""A file that many write: reserved whole, each range durable where it belongs."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from crash_points import steps_of

from pipeline_assets.corpus.packing.rows import SharedFileHash
from pipeline_assets.corpus.spine.durable import reserve, write_range


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows"


def test_a_reserved_file_is_zeros_and_nothing_else_lies_there(path: Path) -> None:
    reserve(path, 1000)

    assert path.read_bytes() == bytes(1000)
    assert list(path.parent.iterdir()) == [path]


def test_ranges_stand_where_they_were_written_in_any_order(path: Path) -> None:
    reserve(path, 16)

    write_range(path, 12, np.array([4], "<i4").data)
    write_range(path, 0, np.array([1, 2], "<i4").data)

    assert np.fromfile(path, "<i4").tolist() == [1, 2, 0, 4]


def test_what_was_written_stays_when_the_file_is_reserved_again(path: Path) -> None:
    reserve(path, 4)
    write_range(path, 0, memoryview(b"kept"))

    reserve(path, 4)

    assert path.read_bytes() == b"kept"


def test_both_are_synced(path: Path) -> None:
    assert [kind for kind, _ in steps_of(lambda: reserve(path, 4))] == ["create", "fsync", "rename", "fsync"]
    assert [kind for kind, _ in steps_of(lambda: write_range(path, 0, memoryview(b"four")))] == ["append", "fsync"]


def test_its_hash_is_taken_while_it_is_written(path: Path) -> None:
    data = np.random.default_rng(1).bytes(3 << 20)
    reserve(path, len(data))
    digest = SharedFileHash(path)

    for start, stop in [(0, 7), (7, 2 << 20), (2 << 20, len(data))]:
        write_range(path, start, memoryview(data)[start:stop])
        digest.read_to(stop)

    assert (digest.bytes_read, digest.sha256) == (len(data), hashlib.sha256(data).hexdigest())

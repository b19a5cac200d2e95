"""Spilled rows: runs come back as they were added; one that was changed on disk is refused."""

from pathlib import Path

import numpy as np
import pytest

from pipeline_assets.corpus.readers.stackexchange.buckets import Bucket, Run, RunFile, read_bucket
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.staging import BuildFolder


def written(folder: Path, run_bytes: int = 100) -> Bucket:
    """A run of three rows out of a longer text, added in two parts."""
    run = Run(run_bytes)
    run.add(np.array([7, 9]), np.array([0, 1]), b"(one)(two)", np.array([1, 6]), np.array([4, 9]))
    run.add(np.array([7]), np.array([2]), b"three", np.array([0]), np.array([5]))
    run.write(BuildFolder(folder), "run")
    return Bucket("bucket", (RunFile(folder / "run", 10),), 0, 0, 3)


@pytest.mark.parametrize("run_bytes", [1, 100])
def test_rows_come_back_in_the_order_they_were_added(tmp_path: Path, run_bytes: int) -> None:
    rows = read_bucket(written(tmp_path, run_bytes))

    assert (rows.keys.tolist(), rows.numbers.tolist()) == ([7, 9, 7], [10, 11, 12])
    assert rows.data.tobytes() == b"one\ntwo\nthree\n" + bytes(16)


def test_a_run_has_no_rows_once_it_is_written(tmp_path: Path) -> None:
    run = Run(100)
    for name in ("first", "second"):
        run.add(np.array([7]), np.array([0]), name.encode(), np.array([0]), np.array([len(name)]))
        run.write(BuildFolder(tmp_path), name)

    assert run.size == 0
    for name in ("first", "second"):
        rows = read_bucket(Bucket("bucket", (RunFile(tmp_path / name, 0),), 0, 0, 1))
        assert rows.data.tobytes() == name.encode() + b"\n" + bytes(16)


def test_a_run_that_was_changed_or_cut_is_never_read_as_another(tmp_path: Path) -> None:
    """A few bits of zstd's headers mean nothing: without them it says the same."""
    bucket = written(tmp_path)
    run, rows = tmp_path / "run", read_bucket(bucket)
    sound = run.read_bytes()
    changed = [bytearray(sound) for _ in range(8 * len(sound))]
    for bit, each in enumerate(changed):
        each[bit // 8] ^= 1 << bit % 8

    refused = 0
    for each in (*changed, *(sound[:size] for size in range(len(sound)))):
        run.write_bytes(each)
        try:
            assert read_bucket(bucket).data.tobytes() == rows.data.tobytes()
        except InputError as error:
            assert error.what.startswith("the spilled rows are damaged")
            refused += 1

    assert refused > 0.98 * 9 * len(sound)

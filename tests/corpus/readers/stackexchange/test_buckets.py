"""Spilled rows are sorted by question; a run changed on disk is refused."""

import tracemalloc
from pathlib import Path

import pytest
from posts_xml import dump, question, row

from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.stackexchange.posts import Post
from pipeline_assets.corpus.readers.stackexchange.spill import (
    IDS_PER_BLOCK,
    Bucket,
    plan_buckets,
    plan_spill,
    read_bucket,
    spill_rows,
)
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import Receipt, StagingView


def spill(folder: Path, *rows: bytes, run_bytes: int = 1 << 20) -> Receipt:
    (folder / "Posts.xml").write_bytes(dump(*rows))
    [shard] = plan_spill(folder / "Posts.xml")
    return spill_rows(shard, WHOLE_SHARD, StagingView(folder), run_bytes)


def write_bucket(folder: Path, run_bytes: int = 1 << 20) -> Bucket:
    """Write three questions in file order to one or more runs, numbered from 10."""
    rows = question(7, Body="one"), question(9, Body="two"), question(7, Body="three")
    files = spill(folder, *rows, run_bytes=run_bytes).files[::2]
    return Bucket("bucket", tuple((folder / file.path, 10) for file in files), 0, 0, 3)


def get_bodies(bucket: Bucket) -> list[tuple[int, int, str]]:
    return [(key, number, post.body) for key, number, post in read_bucket(bucket) if isinstance(post, Post)]


@pytest.mark.parametrize(("run_bytes", "runs"), [(1, 3), (200, 2), (1 << 20, 1)])
def test_rows_are_sorted_by_question_then_number_over_all_runs(tmp_path: Path, run_bytes: int, runs: int) -> None:
    bucket = write_bucket(tmp_path, run_bytes)

    assert len(bucket.runs) == runs
    assert get_bodies(bucket) == [(7, 10, "one"), (7, 12, "three"), (9, 11, "two")]


def test_one_run_at_a_time_is_in_memory(tmp_path: Path) -> None:
    rows = (question(IDS_PER_BLOCK * number + 1, Body="x" * 20_000) for number in range(800))
    (tmp_path / "Posts.xml").write_bytes(dump(*rows))
    [shard] = plan_spill(tmp_path / "Posts.xml")

    tracemalloc.start()
    files = spill_rows(shard, WHOLE_SHARD, StagingView(tmp_path), 4_000_000).files
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(files) == 2 * 5
    assert peak < 10_000_000  # half a run is spare room for encoded rows


def test_buckets_are_ranges_of_questions_in_any_order_of_the_dump(tmp_path: Path) -> None:
    numbers = [IDS_PER_BLOCK * block for block in (3, 1, 2, 0)]
    receipt = spill(tmp_path, *(question(number + 1) for number in numbers), run_bytes=1)

    buckets = plan_buckets(StagingView(tmp_path), [receipt], 1)

    assert [(bucket.first_block, bucket.last_block, bucket.rows) for bucket in buckets] == [(n, n, 1) for n in range(4)]
    assert [post for bucket in buckets for post, *_ in get_bodies(bucket)] == [number + 1 for number in sorted(numbers)]


def test_a_row_without_a_thread_is_returned_as_its_fault(tmp_path: Path) -> None:
    file, _ = spill(tmp_path, row(Id=7), row(Body="?").replace(b"?", b"\xff")).files

    rows = read_bucket(Bucket("bucket", ((tmp_path / file.path, 0),), -(1 << 62), -1, 2))

    assert [row[1:] for row in rows] == [
        (0, Fault("missing_attribute", "no number in Id, PostTypeId or ParentId")),
        (1, Fault("invalid_utf8", "a value is no UTF-8")),
    ]


@pytest.mark.parametrize("suffix", ["", ".index"])
def test_a_changed_or_truncated_run_is_never_read_as_another(tmp_path: Path, suffix: str) -> None:
    """Flip each bit; few flips, in unused zstd headers, leave the rows equal."""
    bucket = write_bucket(tmp_path)
    [(run, _)], expected = bucket.runs, get_bodies(bucket)
    file = run.with_name(run.name + suffix)
    sound = file.read_bytes()
    changed = [bytearray(sound) for _ in range(8 * len(sound))]
    for bit, data in enumerate(changed):
        data[bit // 8] ^= 1 << bit % 8

    refused = 0
    for data in (*changed, *(sound[:size] for size in range(len(sound)))):
        file.write_bytes(data)
        try:
            assert get_bodies(bucket) == expected
        except InputError as error:
            assert error.what.startswith("the spilled rows are damaged")
            refused += 1

    assert refused > 0.95 * 9 * len(sound)

"""Spilled rows: runs come back sorted by question; one that was changed on disk is refused."""

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


def spilled(folder: Path, *rows: bytes, run_bytes: int = 1 << 20) -> Receipt:
    (folder / "Posts.xml").write_bytes(dump(*rows))
    [shard] = plan_spill(folder / "Posts.xml")
    return spill_rows(shard, WHOLE_SHARD, StagingView(folder), run_bytes)


def written(folder: Path, run_bytes: int = 1 << 20) -> Bucket:
    """Three questions in the order of the file, in one run or more, behind ten rows of another part."""
    rows = question(7, Body="one"), question(9, Body="two"), question(7, Body="three")
    files = spilled(folder, *rows, run_bytes=run_bytes).files[::2]
    return Bucket("bucket", tuple((folder / file.path, 10) for file in files), 0, 0, 3)


def said(bucket: Bucket) -> list[tuple[int, int, str]]:
    return [(key, number, post.body) for key, number, post in read_bucket(bucket) if isinstance(post, Post)]


@pytest.mark.parametrize(("run_bytes", "runs"), [(1, 3), (200, 2), (1 << 20, 1)])
def test_rows_come_back_by_question_then_number_from_one_run_or_more(tmp_path: Path, run_bytes: int, runs: int) -> None:
    bucket = written(tmp_path, run_bytes)

    assert len(bucket.runs) == runs
    assert said(bucket) == [(7, 10, "one"), (7, 12, "three"), (9, 11, "two")]


def test_one_run_at_a_time_is_in_memory(tmp_path: Path) -> None:
    rows = (question(IDS_PER_BLOCK * number + 1, Body="x" * 20_000) for number in range(800))
    (tmp_path / "Posts.xml").write_bytes(dump(*rows))
    [shard] = plan_spill(tmp_path / "Posts.xml")

    tracemalloc.start()
    files = spill_rows(shard, WHOLE_SHARD, StagingView(tmp_path), 4_000_000).files
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(files) == 2 * 5
    assert peak < 10_000_000  # encoded rows keep room to spare: half a run


def test_buckets_are_ranges_of_questions_in_whatever_order_the_dump_has_them(tmp_path: Path) -> None:
    numbers = [IDS_PER_BLOCK * block for block in (3, 1, 2, 0)]
    receipt = spilled(tmp_path, *(question(number + 1) for number in numbers), run_bytes=1)

    buckets = plan_buckets(StagingView(tmp_path), [receipt], 1)

    assert [(one.first_block, one.last_block, one.rows) for one in buckets] == [(block, block, 1) for block in range(4)]
    assert [post for bucket in buckets for post, *_ in said(bucket)] == [number + 1 for number in sorted(numbers)]


def test_a_row_without_a_thread_comes_back_as_its_fault(tmp_path: Path) -> None:
    file, _ = spilled(tmp_path, row(Id=7), row(Body="?").replace(b"?", b"\xff")).files

    rows = read_bucket(Bucket("bucket", ((tmp_path / file.path, 0),), -(1 << 62), -1, 2))

    assert [row[1:] for row in rows] == [
        (0, Fault("missing_attribute", "no number in Id, PostTypeId or ParentId")),
        (1, Fault("invalid_utf8", "a value is no UTF-8")),
    ]


@pytest.mark.parametrize("suffix", ["", ".index"])
def test_a_run_that_was_changed_or_cut_is_never_read_as_another(tmp_path: Path, suffix: str) -> None:
    """Check each bit: without a few of zstd's headers, which mean nothing, it says the same."""
    bucket = written(tmp_path)
    [(run, _)], expected = bucket.runs, said(bucket)
    file = run.with_name(run.name + suffix)
    sound = file.read_bytes()
    changed = [bytearray(sound) for _ in range(8 * len(sound))]
    for bit, each in enumerate(changed):
        each[bit // 8] ^= 1 << bit % 8

    refused = 0
    for each in (*changed, *(sound[:size] for size in range(len(sound)))):
        file.write_bytes(each)
        try:
            assert said(bucket) == expected
        except InputError as error:
            assert error.what.startswith("the spilled rows are damaged")
            refused += 1

    assert refused > 0.95 * 9 * len(sound)

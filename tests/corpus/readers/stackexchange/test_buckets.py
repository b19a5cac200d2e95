"""Spilled rows: runs come back sorted by question; one that was changed on disk is refused."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.readers.stackexchange.posts import Post, Row
from pipeline_assets.corpus.readers.stackexchange.threads import (
    BLOCK_IDS,
    Bucket,
    RunFile,
    Runs,
    plan_buckets,
    read_bucket,
    read_post,
)
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.staging import BuildFolder


def question(post_id: int, body: str) -> Row:
    said = {"CreationDate": "2014-01-21T20:26:05.383", "Score": "3", "Title": "Why?"}
    return Row({"Id": str(post_id), "PostTypeId": "1", "Body": body, **said}, 100, None)


def written(folder: Path, run_bytes: int = 1 << 20) -> Bucket:
    """Three questions, each time in the order of the file, in one run or more."""
    runs = Runs(BuildFolder(folder), "run", run_bytes)
    runs.add([question(7, "one"), question(9, "two")])
    runs.add([question(7, "three")])
    files = tuple(RunFile(folder / file.path, 10) for file in runs.receipt().files)
    return Bucket("bucket", files, 0, 0, 3)


def said(bucket: Bucket) -> list[tuple[int, int, str]]:
    posts = [read_post(row) for row in read_bucket(bucket)]
    return [(post.id, post.row, post.body) for post in posts if isinstance(post, Post)]


@pytest.mark.parametrize(("run_bytes", "runs"), [(1, 3), (200, 2), (1 << 20, 1)])
def test_rows_come_back_by_question_then_number_from_one_run_or_more(tmp_path: Path, run_bytes: int, runs: int) -> None:
    bucket = written(tmp_path, run_bytes)

    assert len(bucket.runs) == runs
    assert said(bucket) == [(7, 10, "one"), (7, 12, "three"), (9, 11, "two")]


def test_buckets_are_ranges_of_questions_in_whatever_order_the_dump_has_them(tmp_path: Path) -> None:
    numbers = [BLOCK_IDS * block for block in (3, 1, 2, 0)]
    runs = Runs(BuildFolder(tmp_path), "run", 1)
    for number in numbers:
        runs.add([question(number + 1, "asked")])

    buckets = plan_buckets(BuildFolder(tmp_path), [runs.receipt()], 1)

    assert [(one.first_block, one.last_block, one.rows) for one in buckets] == [(block, block, 1) for block in range(4)]
    assert [post for bucket in buckets for post, *_ in said(bucket)] == [number + 1 for number in sorted(numbers)]


def test_a_row_without_a_thread_comes_back_as_its_fault(tmp_path: Path) -> None:
    runs = Runs(BuildFolder(tmp_path), "run", 1 << 20)
    runs.add([Row({"Id": "7"}, 10, None), Row({}, 10, Fault("invalid_utf8", "a value is no UTF-8"))])
    [file] = runs.receipt().files

    [first, second] = read_bucket(Bucket("bucket", (RunFile(tmp_path / file.path, 0),), -(1 << 62), -1, 2))

    assert (first[1], read_post(first)) == (
        0,
        Fault("missing_attribute", "no number in Id, PostTypeId or ParentId"),
    )
    assert (second[1], read_post(second)) == (1, Fault("invalid_utf8", "a value is no UTF-8"))


def test_a_run_that_was_changed_or_cut_is_never_read_as_another(tmp_path: Path) -> None:
    """A few bits of zstd's headers mean nothing: without them it says the same."""
    bucket = written(tmp_path)
    [run], expected = (file.path for file in bucket.runs), said(bucket)
    sound = run.read_bytes()
    changed = [bytearray(sound) for _ in range(8 * len(sound))]
    for bit, each in enumerate(changed):
        each[bit // 8] ^= 1 << bit % 8

    refused = 0
    for each in (*changed, *(sound[:size] for size in range(len(sound)))):
        run.write_bytes(each)
        try:
            assert said(bucket) == expected
        except InputError as error:
            assert error.what.startswith("the spilled rows are damaged")
            refused += 1

    assert refused > 0.98 * 9 * len(sound)

"""Repeated ids of a corpus, found by a merge of sorted runs."""

import tracemalloc
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus import doc_ids
from pipeline_assets.corpus.first_repeat import find_first_repeat
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.staging import OutputFile, StagingView

pytestmark = pytest.mark.usefixtures("without_fsync")


def write_ids(path: Path, ids: Iterable[str]) -> OutputFile:
    with doc_ids.IdsWriter(path) as writer:
        writer.add(ids)
    return writer.output(path.name)


def write_shards(folder: Path, shards: list[list[str]]) -> list[Path]:
    paths = [folder / f"{number:05d}" for number in range(len(shards))]
    for path, ids in zip(paths, shards, strict=True):
        write_ids(path, ids)
    return paths


def find_repeats_in(folder: Path, shards: list[list[str]]) -> dict[int, dict[int, int]]:
    """Map shard and row to the occurrence number of its id, for repeats only."""
    files = doc_ids.write_repeats(write_shards(folder, shards), StagingView(folder))
    times = [list(doc_ids.read_occurrences(path, len(ids))) for path, ids in zip(files, shards, strict=True)]
    assert [path is not None for path in files] == [any(shard_times) for shard_times in times]
    return {
        shard: {row: nth for row, nth in enumerate(shard_times) if nth}
        for shard, shard_times in enumerate(times)
        if any(shard_times)
    }


def slow_repeats(shards: list[list[str]]) -> dict[int, dict[int, int]]:
    """Find repeats with one dictionary of all ids."""
    times: dict[str, int] = {}
    repeats: dict[int, dict[int, int]] = {}
    for shard, ids in enumerate(shards):
        for row, doc_id in enumerate(ids):
            times[doc_id] = times.get(doc_id, 0) + 1
            if times[doc_id] > 1:
                repeats.setdefault(shard, {})[row] = times[doc_id]
    return repeats


def test_an_id_has_24_bytes_and_the_file_the_recorded_sha256(tmp_path: Path) -> None:
    file = write_ids(tmp_path / "ids", ["a", "b"])

    # sha256("a") is ca978112…, sha256("b") is 3e23e816…: b comes first, each half little-endian, then its row.
    assert (file.path, file.rows, file.bytes) == ("ids", 2, 48)
    assert (tmp_path / "ids").read_bytes().hex(" ", 8) == (
        "4a59390016e8233e 34b1e164654f8933 0100000000000000 cabd1bca128197ca 4ddc239ab331c2fa 0000000000000000"
    )
    assert file.sha256 == "39063c12ca1e765cf832cf9389348ab87b7e0b913166e6fe691ce82604f96e2c"


def test_a_file_truncated_during_the_merge_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doc_ids, "_BLOCK_IDS", 1)
    monkeypatch.setattr(doc_ids, "_MIN_READ_IDS", 1)
    paths = write_shards(tmp_path, [["a", "b", "c", "d"]])
    blocks = doc_ids._merge_runs(paths)
    next(blocks)

    paths[0].write_bytes(b"")

    with pytest.raises(RetryableError, match="the file has fewer than 2 ids; run the command again"):
        list(blocks)


@given(
    shards=st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", "é", "e\u0301"]), max_size=12), max_size=5),
    run_ids=st.integers(1, 13),
    block_ids=st.integers(1, 40),
    window_rows=st.integers(1, 9),
)
@example([["a", "b", "a"], ["c"], ["b", "a", "d"]], 13, 40, 9)
@example([[], ["a"], []], 13, 40, 9)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_repeats_equal_those_of_a_dictionary_for_any_run_and_block_size(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    shards: list[list[str]],
    run_ids: int,
    block_ids: int,
    window_rows: int,
) -> None:
    sizes = {"IDS_PER_RUN": run_ids, "_BLOCK_IDS": block_ids, "_MIN_READ_IDS": 1, "_WINDOW_ROWS": window_rows}
    for name, size in sizes.items():
        monkeypatch.setattr(doc_ids, name, size)

    repeats = find_repeats_in(tmp_path, shards)

    assert repeats == slow_repeats(shards)
    repeat = find_first_repeat(write_shards(tmp_path, shards))
    first = min(((shard, min(rows)) for shard, rows in repeats.items()), default=None)
    assert repeat == (None if first is None else (*first, sum(map(len, repeats.values()))))


@pytest.mark.slow
@pytest.mark.parametrize("distinct", [1, 1000, 10**9])
def test_merging_more_ids_needs_no_more_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, distinct: int) -> None:
    for name, size in (("IDS_PER_RUN", 1 << 9), ("_BLOCK_IDS", 1 << 9), ("_MIN_READ_IDS", 1 << 3)):
        monkeypatch.setattr(doc_ids, name, size)

    def peak(ids: int, folder: Path) -> int:
        folder.mkdir()
        tracemalloc.start()
        half = ids // 2
        shards = (f"{number * 7919 % distinct}" for number in range(half)), (f"{number}" for number in range(half))
        paths = [folder / f"{number}" for number in range(2)]
        for path, shard_times in zip(paths, shards, strict=True):
            write_ids(path, shard_times)
        doc_ids.write_repeats(paths, StagingView(folder))
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    # 8 and 64 runs; the least of several, since other threads of the process are counted too
    few = min(peak(1 << 12, tmp_path / f"few{number}") for number in range(3))
    many = (peak(1 << 15, tmp_path / f"many{number}") for number in range(3))

    assert any(peak_bytes < 1.5 * few for peak_bytes in many)

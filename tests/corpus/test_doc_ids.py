"""Repeated ids of a corpus: found by a sorted merge, as a dictionary of everything would find them."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus import doc_ids


def written(folder: Path, shards: list[list[str]]) -> list[Path]:
    paths = [folder / f"{number:05d}" for number in range(len(shards))]
    for path, ids in zip(paths, shards, strict=True):
        doc_ids.write_ids(path, ids)
    return paths


def slow_repeats(shards: list[list[str]]) -> dict[int, dict[int, int]]:
    """The obvious version: every id in one dictionary."""
    times: dict[str, int] = {}
    repeats: dict[int, dict[int, int]] = {}
    for shard, ids in enumerate(shards):
        for row, doc_id in enumerate(ids):
            times[doc_id] = times.get(doc_id, 0) + 1
            if times[doc_id] > 1:
                repeats.setdefault(shard, {})[row] = times[doc_id]
    return repeats


def test_the_first_of_an_id_in_shard_and_row_order_is_no_repeat(tmp_path: Path) -> None:
    paths = written(tmp_path, [["a", "b", "a"], ["c"], ["b", "a", "d"]])

    repeats = doc_ids.repeated_ids(paths)

    assert repeats == {0: {2: 2}, 2: {0: 2, 1: 3}}


def test_the_rows_of_a_shard_come_in_row_order_and_a_shard_without_repeats_has_none(tmp_path: Path) -> None:
    repeats = doc_ids.repeated_ids(written(tmp_path, [["z", "y", "x", "x", "y", "z"]]))

    assert list(doc_ids.rows_of(repeats, 0)) == [3, 4, 5]
    assert doc_ids.rows_of(repeats, 1) == {}


def test_shards_without_documents_and_a_corpus_without_shards_have_no_repeats(tmp_path: Path) -> None:
    assert doc_ids.repeated_ids(written(tmp_path, [[], ["a"], []])) == {}
    assert doc_ids.repeated_ids(written(tmp_path, [[]])) == {}
    assert doc_ids.repeated_ids([]) == {}


def test_an_id_takes_24_bytes_and_the_file_has_the_sha256_that_is_told(tmp_path: Path) -> None:
    size, sha256 = doc_ids.write_ids(tmp_path / "ids", ["a", "b"])

    # sha256("a") is ca978112…, sha256("b") is 3e23e816…: b comes first, each half little-endian, then its row.
    assert size == 48
    assert (tmp_path / "ids").read_bytes().hex(" ", 8) == (
        "4a59390016e8233e 34b1e164654f8933 0100000000000000 cabd1bca128197ca 4ddc239ab331c2fa 0000000000000000"
    )
    assert sha256 == "39063c12ca1e765cf832cf9389348ab87b7e0b913166e6fe691ce82604f96e2c"


def test_ids_that_differ_only_in_unicode_form_are_two(tmp_path: Path) -> None:
    assert doc_ids.repeated_ids(written(tmp_path, [["é", "e\u0301"]])) == {}


@pytest.mark.parametrize("part_ids", [1, 3, 1000])
@given(shards=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=1, max_size=5))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_repeats_are_those_that_a_dictionary_finds_however_many_parts_the_merge_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part_ids: int, shards: list[list[str]]
) -> None:
    monkeypatch.setattr(doc_ids, "_PART_IDS", part_ids)
    paths = written(tmp_path, shards)

    repeats = doc_ids.repeated_ids(paths)

    assert repeats == slow_repeats(shards)

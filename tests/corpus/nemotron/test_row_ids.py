"""Ids: the uuid, else a hash of what was asked and said; repeats numbered, whatever the shards."""

import hashlib
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows_made import ANSWER, QUESTION

from pipeline_assets.corpus.doc_ids import read_repeats, write_ids, write_repeats
from pipeline_assets.corpus.nemotron.row_columns import row_id
from pipeline_assets.corpus.spine.staging import BuildFolder

ROW = {"problem": "2 + 2?", "messages": [QUESTION, ANSWER]}


def id_of(row: object, dataset: str = "maker/math", split: str = "low") -> str:
    return row_id(row, dataset, split)


def test_the_id_is_the_uuid() -> None:
    assert id_of({**ROW, "uuid": "307c2636-ee59"}) == "307c2636-ee59"


def test_without_a_uuid_it_is_a_hash_of_what_was_asked_and_said() -> None:
    identity = {"dataset": "maker/math", "split": "low", "uuid": None, "columns": ROW}
    canonical = json.dumps(identity, sort_keys=True, separators=(",", ":"))

    assert id_of(ROW) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    "row",
    [
        {**ROW, "uuid": None, "text": ""},
        {**ROW, "license": "cc-by-4.0", "metadata": {"a": 1}, "url": "a://b"},
        {**ROW, "messages": [{**QUESTION, "reasoning_content": None}, {**ANSWER, "tool_calls": []}]},
        {"messages": [dict(reversed(QUESTION.items())), ANSWER], "problem": "2 + 2?"},
    ],
    ids=["filled", "more columns", "filled messages", "order of keys"],
)
def test_how_a_row_was_read_and_what_else_is_known_changes_nothing(row: object) -> None:
    assert id_of(row) == id_of(ROW)


def test_another_question_answer_split_or_dataset_is_another_id() -> None:
    others = [{**ROW, "problem": "3"}, {**ROW, "messages": [QUESTION]}, {**ROW, "uuid": "a#2"}]

    ids = [id_of(ROW), *map(id_of, others), id_of(ROW, split="high"), id_of(ROW, dataset="maker/chat")]

    assert len(set(ids)) == 6


def shard_ids(folder: Path, ids: list[str], cuts: list[int]) -> list[str]:
    """The numbered ids of a split, cut into shards."""
    bounds = [0, *sorted(cuts), len(ids)]
    shards = [ids[start:stop] for start, stop in itertools.pairwise(bounds)]
    paths = [folder / f"{number}.ids" for number in range(len(shards))]
    for path, shard in zip(paths, shards, strict=True):
        write_ids(path, path.name, shard)
    repeats = write_repeats(paths, BuildFolder(folder))
    return [
        f"{one}#{nth}" if nth else one
        for shard, file in zip(shards, repeats, strict=True)
        for one, nth in zip(shard, read_repeats(file, len(shard)), strict=True)
    ]


@given(st.lists(st.sampled_from(["a", "b", "a#2", "c#", "#3"]), max_size=12), st.data())
def test_numbered_ids_are_unique_and_do_not_depend_on_the_shards(
    tmp_path_factory: pytest.TempPathFactory, uuids: list[str], data: st.DataObject
) -> None:
    ids = [id_of({**ROW, "uuid": uuid}) for uuid in uuids]
    cuts = data.draw(st.lists(st.integers(0, len(ids)), max_size=3))

    whole = shard_ids(tmp_path_factory.mktemp("whole"), ids, [])
    cut = shard_ids(tmp_path_factory.mktemp("cut"), ids, cuts)

    assert whole == cut
    assert len(set(whole)) == len(whole)


def test_repeats_are_numbered_in_row_order(tmp_path: Path) -> None:
    assert shard_ids(tmp_path, ["a", "b", "a", "a"], [2]) == ["a", "b", "a#2", "a#3"]

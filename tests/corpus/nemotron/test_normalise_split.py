"""Files of a split to Parquet: one schema, stable across builds, unique ids."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nemotron_hub import synthetic_rows
from nemotron_rows import ANSWER, INLINE, LOOKUP, QUESTION, called, read_rows, rows_recipe
from nemotron_rows import build_split as build
from refusals import refusal

from pipeline_assets.build.rows.comparison import document_changes
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks, read_structs
from pipeline_assets.corpus.nemotron import normalise_shard
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.systems.registry import SYSTEMS

Row = dict[str, Any]


def chat(answer: str, **columns: object) -> Row:
    return {"messages": [QUESTION, {**ANSWER, "content": answer}], **columns}


def tool_row(number: int) -> Row:
    """Build a row that calls a tool of one of two lists."""
    tool = {"type": "function", "function": {**LOOKUP["function"], "description": f"Of book {number % 2}."}}
    reply = {"role": "tool", "content": "4"}
    return {"messages": [QUESTION, called({"word": "sum"}), reply, ANSWER], "tools": [tool], "uuid": f"t-{number}"}


def write(folder: Path, *files: Sequence[Row | bytes]) -> list[SourceFile]:
    """Write files of rows; bytes are written unchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, rows in enumerate(files):
        path = folder / f"{number}.jsonl"
        path.write_bytes(b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows))
        written.append(SourceFile(path, f"data/{path.name}", path.stat().st_size))
    return written


def test_rows_are_written_in_source_order_in_one_schema_and_others_are_rejects(tmp_path: Path) -> None:
    rows = [chat(f"number {number}", uuid=f"u-{number}") for number in range(9)]
    files = write(tmp_path / "in", [*rows[:5], b"{cut\n", {"messages": []}], rows[5:])

    built = build(tmp_path, files)

    paths = sorted(path.name for path in (built.folder / "data").iterdir())
    assert paths == [f"train-{number:05d}-of-{len(paths):05d}.parquet" for number in range(len(paths))]
    assert len(paths) > 2
    assert all(pq.read_schema(built.folder / "data" / path).equals(SCHEMA) for path in paths)
    stored = read_rows(built)
    assert [row["id"] for row in stored] == [f"u-{number}" for number in range(9)]
    assert [row["source_file"] for row in stored] == ["data/0.jsonl"] * 5 + ["data/1.jsonl"] * 4
    for row in stored:
        line = Path(tmp_path / "in" / Path(row["source_file"]).name).read_bytes()[row["source_row"] :].splitlines()[0]
        assert json.loads(line)["uuid"] == row["id"]
    [block] = read_line_blocks(built.path("rejects.jsonl.zst"))
    assert [json.loads(line)["reason"] for line in block.splitlines()] == ["not_json", "no_messages"]
    ledger = {"in": 11, "out": 9, "dropped": {}, "rejected": {"no_messages": 1, "not_json": 1}}
    assert built.manifest.identity.counts["ledger"] == ledger


def test_rows_that_the_recipe_drops_have_a_reason_and_are_not_rejects(tmp_path: Path) -> None:
    rules = rows_recipe(drop_invalid_harmony=True, drop_empty_completion=True, max_reject_fraction="0")
    rows = [chat("4", uuid="a"), {"text": "no Harmony"}, chat(" "), {"text": "<|start|>user<|message|>2 + 2?"}]

    built = build(tmp_path, write(tmp_path / "in", rows), rules)

    assert [row["id"] for row in read_rows(built)] == ["a"]
    dropped = {"empty_completion": 1, "invalid_harmony": 2}
    assert built.manifest.identity.counts["ledger"] == {"in": 4, "out": 1, "dropped": dropped, "rejected": {}}
    drops = [*read_structs(built.path("dropped.jsonl.zst"), Reject)]
    lines = (tmp_path / "in" / "0.jsonl").read_bytes()
    assert [(lines[drop.row :].splitlines()[0], drop.reason) for drop in drops] == [
        (json.dumps(rows[1]).encode(), "invalid_harmony"),
        (json.dumps(rows[2]).encode(), "empty_completion"),
        (json.dumps(rows[3]).encode(), "invalid_harmony"),
    ]
    assert [*read_line_blocks(built.path("rejects.jsonl.zst"))] == []


def test_counts_are_sums_over_the_rows(tmp_path: Path) -> None:
    built = build(tmp_path, write(tmp_path / "in", [*map(tool_row, range(5)), *synthetic_rows("chat_if")]))

    rows, counts = read_rows(built), built.manifest.identity.counts
    for name in ("tokens", "completion_tokens", "tool_calls"):
        assert counts[name] == sum(row[f"stats_{name}"] for row in rows) > 0
    assert "analysis_given" in counts and "rows" not in counts
    assert counts["documents"] == len(rows)


def test_the_catalogue_has_every_list_of_tools_that_a_row_names_once(tmp_path: Path) -> None:
    built = build(tmp_path, write(tmp_path / "in", [tool_row(number) for number in range(7)]))

    text = built.path("train__tools_catalog.json").read_text()
    catalogue = json.loads(text)
    assert set(catalogue) == {row["source_tools_id"] for row in read_rows(built)}
    described = {tools[0]["function"]["description"] for tools in catalogue.values()}
    assert described == {"Of book 0.", "Of book 1."}
    assert len(text.splitlines()) == 4


def test_repeated_ids_are_numbered_over_the_whole_split_for_any_shards(tmp_path: Path) -> None:
    rows = [chat("one", uuid="a"), chat("two", uuid="a#2"), chat("three", uuid="a"), chat("four"), chat("four")] * 3
    files = write(tmp_path / "in", rows)

    built = [build(tmp_path / str(size), files, rows_recipe(shard_bytes=size)) for size in (40, 300, 1 << 20)]

    ids = [[row["id"] for row in read_rows(artifact)] for artifact in built]
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids[0])) == len(rows)
    assert [row_id for row_id in ids[0] if row_id.startswith("a")] == ["a", "a#2", "a#3", "a#4", "a#5", "a#6"]
    assert [row["text"] for row in read_rows(built[0])] == [row["text"] for row in read_rows(built[2])]


@settings(max_examples=3)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 900), st.integers(1, 3), st.booleans())
def test_blocks_and_workers_change_no_row(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[int], shard_bytes: int, block_rows: int, is_forked: bool
) -> None:
    folder = tmp_path_factory.mktemp("split")
    row_kinds = [chat("a", uuid="a"), chat("a"), tool_row(0), tool_row(1), {"messages": []}, b"no json\n"]
    files = write(folder / "in", [chat("first", uuid="first"), *(row_kinds[kind] for kind in kinds)])
    rules = rows_recipe(shard_bytes=shard_bytes, max_reject_fraction="1")

    built = build(folder / "built", files, rules, RunSettings(2) if is_forked else INLINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normalise_shard, "_BLOCK_ROWS", block_rows)
        in_blocks = build(folder / "blocks", files, rules)

    assert read_rows(in_blocks) == read_rows(built)
    assert build(folder / "again", files, rules).manifest.digest == built.manifest.digest
    assert in_blocks.manifest.identity.counts == built.manifest.identity.counts


NONE = "none of 2 rows has a usable conversation: 2"


@pytest.mark.parametrize(
    ("rows", "rules", "what"),
    [
        ([], {}, "the files have no rows; add rows, or omit the split"),
        ([b"\n\n"], {"max_rows": 1}, "a sample of at most 1 row is empty; omit `max_rows`"),
        ([{}, {}], {}, f"{NONE} no_messages (the first: data/0.jsonl line 1 (byte 0): "),
        ([{"text": "no Harmony"}] * 2, {"drop_invalid_harmony": True}, f"{NONE} invalid_harmony (the first: "),
        (
            [chat("fine"), {"messages": []}, {"messages": 3}],
            {"max_reject_fraction": "0.5"},
            "2 of 3 rows are rejected (1 no_messages, 1 wrong_type), above `max_reject_fraction` 0.5 (the first: ",
        ),
    ],
)
def test_split_with_too_few_rows_is_refused_with_the_first_reject(
    tmp_path: Path, rows: list[Row | bytes], rules: dict[str, Any], what: str
) -> None:
    recipe = rows_recipe(**{"max_reject_fraction": "1", **rules})

    assert what in refusal(lambda: build(tmp_path, write(tmp_path / "in", rows), recipe))


def test_rows_of_another_revision_are_compared_by_their_ids(tmp_path: Path) -> None:
    first = [chat(f"{number}", uuid=f"u{number}") for number in range(9)]
    second = [chat("another", uuid="new"), *first[1:4], chat("4!", uuid="u4"), chat("5", uuid="u5", license="mit")]
    a = build(tmp_path / "a", write(tmp_path / "1", first))
    b = build(tmp_path / "b", write(tmp_path / "2", second[:2], second[2:]))

    [changes] = document_changes(a, b, SYSTEMS.kinds, max_sorted_rows=3)

    groups = (changes.only_in_a, changes.only_in_b, changes.changed, changes.relabelled)
    assert changes.in_both.documents == 5
    assert [list(documents.examples) for documents in groups] == [["u0", "u6", "u7", "u8"], ["new"], ["u4"], ["u5"]]


def test_a_sample_skips_empty_files(tmp_path: Path) -> None:
    files = write(tmp_path / "in", [], [b"\n"], [chat("one"), chat("two")])

    assert build(tmp_path, files, rows_recipe(max_rows=1)).manifest.identity.counts["ledger"]["out"] == 1


@pytest.mark.parametrize("shard_bytes", [400, 1 << 20])
def test_number_of_unread_key_names_is_bounded_for_any_shards(tmp_path: Path, shard_bytes: int) -> None:
    rows = [{"messages": [{**QUESTION, f"key_{number:03d}": 1, "often": 1}, ANSWER]} for number in range(100)]

    built = build(tmp_path, write(tmp_path / "in", rows), rows_recipe(shard_bytes=shard_bytes))

    counts = built.manifest.identity.counts
    unread = counts["unread_message_keys"]
    assert len(unread) == 65 and unread["user.often"] == 100
    assert unread["(others)"] == 100 - 63
    assert sum(unread.values()) == counts["message_fields_unread"] == 200


def test_new_keys_with_their_defaults_are_not_in_the_recipe_of_rows() -> None:
    content = RowsRecipe().content()

    assert RowsRecipe.from_content({**content, "reasoning_key": None, "think_tags": "keep"}).content() == content
    assert not {"reasoning_key", "think_tags", "restore_latex"} & content.keys()
    named = RowsRecipe.from_content({**content, "reasoning_key": "thoughts", "think_tags": "drop"}).content()
    assert (named["reasoning_key"], named["think_tags"]) == ("thoughts", "drop")
    with pytest.raises(UsageError, match="must name a message key other than role, content and tool_calls"):
        RowsRecipe.from_content({**content, "reasoning_key": "content"})

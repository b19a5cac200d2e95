"""Raw rows to table, rejects and counts: no row is lost, blocks change nothing."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nemotron_rows import ANSWER, LOOKUP, ORIGIN, QUESTION, SETTINGS, called, encoder, normalised, rows_recipe, to_row
from nemotron_samples import EVERY_SPLIT, row_origin, split_rows

from pipeline_assets.corpus.harmony.message import SPECIAL_PATTERN
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.nemotron.normalise_rows import normalise_rows
from pipeline_assets.corpus.nemotron.row_checks import encoding_faults, wrongly_flagged_rows
from pipeline_assets.corpus.nemotron.rows_recipe import SystemMessage
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.nesting import MAX_NESTING

GOLDEN = Path(__file__).parents[2] / "golden"
GOLDEN_SETTINGS = rows_recipe(system=SystemMessage())


def digest(batch: pa.RecordBatch) -> str:
    lines = [json.dumps(row, sort_keys=True) for row in batch.to_pylist()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("name", EVERY_SPLIT)
def test_every_real_row_normalises_to_its_golden_digest(name: str, real: bool) -> None:
    golden = json.loads((GOLDEN / ("nemotron_rows.json" if real else "nemotron_made_rows.json")).read_text())

    result = normalised(*split_rows(name, real), settings=GOLDEN_SETTINGS, origin=row_origin(name))

    assert (result.rejects, result.batch.num_rows, result.batch.schema) == ([], 3, SCHEMA)
    assert digest(result.batch) == golden[name]
    assert list(wrongly_flagged_rows(result.batch)) == []
    assert list(encoding_faults(result.batch, [0, 1, 2], GOLDEN_SETTINGS.loss_mode, encoder())) == []


@pytest.mark.parametrize("name", EVERY_SPLIT)
def test_real_rows_filled_with_null_are_equal_rows(name: str, real: bool) -> None:
    rows = split_rows(name, real)
    keys = {key for row in rows for message in row["messages"] for key in message}
    filled = [
        {"text": None, "tools": None, "url": None, "uuid": None, **row}
        | {"messages": [dict.fromkeys(keys) | message for message in row["messages"]]}
        for row in rows
    ]

    as_published, as_filled = (normalised(*variant, origin=row_origin(name)) for variant in (rows, filled))

    assert as_filled.batch.equals(as_published.batch)


GOOD = {"messages": [QUESTION, {**ANSWER, "reasoning_content": "Count."}], "uuid": "a"}
CALLS = {"messages": [QUESTION, called({"word": "sum"}), {"role": "tool", "content": "4"}, ANSWER], "tools": [LOOKUP]}
ROWS = st.lists(
    st.sampled_from([GOOD, CALLS, {"messages": []}, {"text": "no harmony"}, Fault("not_json", "cut"), {}]), max_size=9
)


@settings(max_examples=30)
@given(ROWS, st.integers(1, 4))
def test_blocks_change_no_row_and_lose_none(rows: list[object], block: int) -> None:
    numbered = list(enumerate(rows))

    whole = normalise_rows(numbered, SETTINGS, ORIGIN, encoder())
    parts = [
        normalise_rows(numbered[start : start + block], SETTINGS, ORIGIN, encoder())
        for start in range(0, len(rows), block)
    ]

    assert [row for part in parts for row in part.batch.to_pylist()] == whole.batch.to_pylist()
    assert [reject for part in parts for reject in part.rejects] == whole.rejects
    assert sum((part.counts for part in parts), Counter()) == +whole.counts
    assert {key: value for part in parts for key, value in part.tool_lists.items()} == whole.tool_lists
    removed = sum(count for name, count in whole.counts.items() if name.startswith(("dropped/", "rejected/")))
    assert whole.counts["rows"] == whole.counts["documents"] + removed == len(rows)
    places = whole.batch.column("source_row").to_pylist() + [reject.row for reject in whole.rejects]
    assert sorted(places) == list(range(len(rows)))


PIECES = ["<|", "|>", "start", "end", "message", "<|end|>", "<|start|>", "assistant", " to=", "\n", "é", "🙂", " ", "a"]
CONTENTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join) | st.text(max_size=12)
TURNS = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), CONTENTS, CONTENTS), min_size=1, max_size=4)


@settings(max_examples=100)
@given(TURNS)
def test_no_content_forges_a_turn(turns: list[tuple[str, str, str]]) -> None:
    messages = [
        {"role": role, "content": content, "reasoning_content": reasoning if role == "assistant" else None}
        for role, content, reasoning in turns
    ]

    result = normalised({"messages": messages})

    expected = [
        (author, content)
        for role, content, reasoning in turns
        for author, content in ([(role, reasoning)] if role == "assistant" and reasoning.strip() else [])
        + [(role, content)]
    ]
    if any(SPECIAL_PATTERN.search(content) for _, content in expected):
        assert [reject.reason for reject in result.rejects] == ["control_tokens_in_content"]
    else:
        conversation = parse_harmony(result.batch.column("text")[0].as_py()).conversation
        assert [(str(message.role), message.content) for message in conversation] == expected


def test_unreadable_row_is_a_reject_with_its_reason() -> None:
    result = normalised(GOOD, Fault("not_json", "Input data was truncated"))

    assert [str(reject) for reject in result.rejects] == ["data/train.jsonl row 1: not_json (Input data was truncated)"]


def test_no_rows_make_an_empty_table_of_the_schema() -> None:
    result = normalised()

    assert (result.batch.num_rows, result.batch.schema, result.rejects, result.tool_lists) == (0, SCHEMA, [], {})


def test_row_of_two_megabytes_is_accepted() -> None:
    values = to_row({"messages": [QUESTION, {"role": "assistant", "content": "naïve 漢字 " * 150_000}]})

    assert len(values["text"].encode()) > 2_000_000
    assert values["quality_length"] == "long"


def test_text_that_the_tokenizer_fails_on_is_a_reject_and_the_rest_is_kept(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    blank = {"messages": [{"role": "user", "content": " " * 1_100_000 + "x"}, ANSWER], "uuid": "blank"}

    result = normalised(blank, GOOD, blank, GOOD)

    detail = "blanks that the tokenizer fails on"  # it names neither rows of the block nor byte offsets
    assert [(reject.row, reject.reason, reject.detail) for reject in result.rejects] == [
        (row, "not_encodable", detail) for row in (0, 2)
    ]
    assert result.batch.column("source_row").to_pylist() == [1, 3]
    assert caplog.messages == [f"data/train.jsonl: not_encodable: {detail}: row 'blank' is rejected"] * 2
    assert "panicked" not in capfd.readouterr().err


def nested(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [MAX_NESTING + 1, 700, 20_000])
@pytest.mark.parametrize(
    "deep",
    [
        lambda value: {"problem": value},
        lambda value: {"tools": value},
        lambda value: {"tools": f'[{{"function": {{"name": "a", "parameters": {"[" * 700 + "]" * 700}}}}}]'},
        lambda value: {"messages": [QUESTION, called(value)]},
        lambda value: {"messages": [QUESTION, {"role": "assistant", "content": value}]},
    ],
    ids=["a column", "tools", "tools as text", "arguments", "content"],
)
def test_too_deep_nesting_is_a_reject_at_any_depth(deep: Callable[[object], dict[str, object]], depth: int) -> None:
    result = normalised(GOOD, {**GOOD, **deep(nested(depth))})

    assert [(reject.row, reject.reason) for reject in result.rejects] == [(1, "nested_too_deep")]


def test_deepest_allowed_nesting_is_accepted() -> None:
    assert to_row({**GOOD, "problem": nested(MAX_NESTING)})["meta_source_json"].count("[") == MAX_NESTING


def call_deeply(frames: int, function: Callable[[], object]) -> object:
    return call_deeply(frames - 1, function) if frames else function()


DEEP = "[" * 600 + '"\\b"' + "]" * 600
SWAPPED = [called(arguments) for arguments in (f'{{"x":{DEEP},"y":1}}', f'{{"y":1,"x":{DEEP}}}')]
REPLY = {"role": "tool", "content": "4"}


@pytest.mark.parametrize(
    "row",
    [
        {"messages": "[" * 600},
        {**GOOD, "tools": "[" * 600},
        {**GOOD, "tools": DEEP},
        {"messages": [QUESTION, {"role": "assistant", "content": DEEP}]},
        {"messages": [QUESTION, SWAPPED[0], REPLY, SWAPPED[1], REPLY, SWAPPED[0], REPLY, ANSWER], "tools": [LOOKUP]},
    ],
    ids=["broken messages", "broken tools", "tools", "content", "equal calls"],
)
def test_deeply_nested_texts_have_the_same_result_from_every_caller(row: dict[str, object]) -> None:
    shallow, deep = normalised(row), call_deeply(600, lambda: normalised(row))

    assert deep == shallow

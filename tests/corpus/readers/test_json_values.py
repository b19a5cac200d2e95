"""JSON arrays and objects over several lines become rows for any block size."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.normalize.files import read_piece
from pipeline_assets.corpus.readers.json_values import is_array_or_multiline, json_values
from pipeline_assets.corpus.readers.local import LocalRecipe, plan_local
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.errors import InputError

Source = Callable[..., SourceFile]
RECIPE = LocalRecipe.model_validate({"source": "array", "domain": "web", "license_tag": "cc0-1.0"})
PRETTY = b'[\n  {"text": "One."},\n  {\n    "text": "Two, [{\\"}]"\n  }\n]\n'
PLAIN = b'[{"text": "One."}, {"text": "Two."},\n{"text": "Three."}]'
OBJECTS = b'{\n "text": "One."\n}\n{\n "text": "Two."\n}\n'


def split(content: bytes, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def read_rows(file: SourceFile) -> list[object]:
    rows = (row for piece in plan_local([file], RECIPE, 10) for row in read_piece(piece, RECIPE))
    return [row.text if isinstance(row, Document) else (row.row, row.reason, row.detail) for row in rows]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_values_have_the_positions_of_their_lines(size: int) -> None:
    assert [position for position, _ in json_values(split(PRETTY, size), "a.json")] == [2, 22]
    assert [position for position, _ in json_values(split(PLAIN, size), "a.json")] == [0, 19, 37]
    assert [*json_values(split(OBJECTS, size), "a.json")] == [
        (0, b'{\n "text": "One."\n}'),
        (20, b'{\n "text": "Two."\n}'),
    ]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.json.gz"])
@pytest.mark.parametrize(
    ("content", "texts"),
    [(PRETTY, ["One.", 'Two, [{"}]']), (PLAIN, ["One.", "Two.", "Three."]), (OBJECTS, ["One.", "Two."]), (b"[ ]", [])],
)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_an_array_is_read_for_any_name_and_compression(
    source: Source, name: str, content: bytes, texts: list[str], mark: bytes
) -> None:
    content = mark + content

    assert read_rows(source(gzip.compress(content) if name.endswith(".gz") else content, name)) == texts


def test_a_bad_element_is_a_reject_and_the_others_are_read(source: Source) -> None:
    content = b'[\n{"text": "One."},\n{"text": oops},\n5,\n{"text": "\xff"},\n{"text": ""}\n{},\n{"text": "Two."},\n]'

    assert read_rows(source(content, "a.json")) == [
        "One.",
        (20, "not_json", "JSON is malformed: invalid character (byte 9)"),
        (36, "wrong_type", "the value is int"),
        (39, "invalid_utf8", "invalid start byte at byte 0"),
        (54, "not_json", "JSON is malformed: trailing characters (byte 14)"),
        "Two.",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"text": "a"},\n{"text": "b', "the file is truncated within the JSON value at byte 16; fetch or write"),
        (b'[{"text": "a"},', "the file is truncated within the JSON value at byte 15"),
        (b'{\n"text": "a\\', "the file is truncated within the JSON value at byte 0"),
        (b'[{"text": "a"}]\n[]', "the JSON ends before byte 16, but other data follows; write one array"),
        (b'[{"text": "a"}] x', "the JSON ends before byte 16, but other data follows"),
        (b'{\n"text": "a"}}', "the JSON ends before byte 14, but other data follows"),
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_truncated_file_or_trailing_data_is_refused(content: bytes, message: str, size: int) -> None:
    assert refusal(lambda: [*json_values(split(content, size), "a.json")], InputError).startswith(f"a.json: {message}")


def test_json_lines_are_still_read_in_pieces(source: Source) -> None:
    file = source('{"text": "One."}\n{"text": "Two."}\n', "a.json")

    assert len(plan_local([file], RECIPE, 10)) == 4
    heads = [b'{"text": "a"}\n', b" \n", b" \n[\n", b"{ \r\n"]
    assert [is_array_or_multiline(head) for head in heads] == [False, False, True, True]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    rows=st.lists(values, max_size=5),
    size=st.integers(1, 30),
    indent=st.none() | st.integers(0, 2),
    ascii=st.booleans(),
)
def test_written_json_is_read_back_in_any_blocks(rows: list[Any], size: int, indent: int | None, ascii: bool) -> None:
    content = json.dumps(rows, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")

    values_read = [*json_values(split(content, size), "a.json")]

    assert [json.loads(value) for _, value in values_read] == rows
    positions = [position for position, _ in values_read]
    assert positions == sorted(set(positions))
    assert all(content[position:].lstrip(b" \n").startswith(value) for position, value in values_read if position)

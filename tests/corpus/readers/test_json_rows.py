"""Lines of JSON become rows or faults; other JSON files are refused."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.readers import json_lines
from pipeline_assets.corpus.readers.faults import Fault, utf8_fault
from pipeline_assets.corpus.readers.json_lines import json_rows, parse_row
from pipeline_assets.corpus.readers.lines import piece_lines
from pipeline_assets.corpus.readers.source_folder import SourceFile, split_byte_ranges

Source = Callable[..., SourceFile]
DEEP = "more than 64 objects and lists inside one another"


def read_rows(file: SourceFile, range_bytes: int = 1 << 30) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    for piece in split_byte_ranges(file, range_bytes):
        yield from json_rows(piece, piece_lines(piece))


def test_a_line_becomes_its_object() -> None:
    line = '{"text": "caf\\u00e9 😀 \\ud83d\\ude00", "n": 123456789012345678901234567890, "x": {"y": [1.5, null]}}\n'

    assert parse_row(line.encode()) == {
        "text": "café 😀 😀",
        "n": 123456789012345678901234567890,
        "x": {"y": [1.5, None]},
    }


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b'{"text": "a"', "not_json", "Input data was truncated"),
        (b'{"text": "a"}{}', "not_json", "JSON is malformed: trailing characters (byte 14)"),
        (b'{"score": NaN}', "not_json", "JSON is malformed: invalid character (byte 10)"),
        (b"{'text': 'a'}", "not_json", "JSON is malformed: object keys must be strings (byte 1)"),
        (b'{"x":' * 66 + b"1" + b"}" * 66, "nested_too_deep", DEEP),
        (b'{"x":' * 5000 + b"1" + b"}" * 5000, "nested_too_deep", DEEP),
        (b'{"x":' + b"[" * 100_000, "nested_too_deep", DEEP),
        (b"[" * 100_000 + b"]" * 100_000, "nested_too_deep", DEEP),
        (b"[1, 2]", "wrong_type", "the line is list"),
        (b'"text"', "wrong_type", "the line is str"),
        (b"null", "wrong_type", "the line is NoneType"),
        (b'{"text": "caf\xe9"}', "invalid_utf8", "unexpected end of data at byte 3"),
        (b'{"text": "ok\xed\xa0\x80"}', "lone_surrogate", "at byte 2"),
        (b'{"text": "\\ud800"}', "lone_surrogate", "an escaped half of a pair"),
        (b'{"\\udc00\\ud800": 1}', "lone_surrogate", "an escaped half of a pair"),
    ],
)
def test_a_line_without_an_object_is_a_fault_with_its_reason(line: bytes, reason: str, detail: str) -> None:
    assert parse_row(line) == parse_row(line + b"\n") == Fault(reason, detail)


PARTS = (
    b"a",
    b"\xc3\xa9",
    b"\\n",
    b"\\u00e9",
    b"\\ud83d\\ude00",
    b"\\\\",
    b"\xed\xa0\x80",
    b"\xe2\x82",
    b"\xff",
    b'", "b": "',
)


@given(st.lists(st.sampled_from(PARTS), max_size=9))
def test_the_fault_of_invalid_utf8_depends_on_the_first_such_string_for_any_version_of_msgspec(
    parts: list[bytes],
) -> None:
    line = b'{"a": "%s"}' % b"".join(parts)
    fault = parse_row(line)
    if isinstance(fault, dict):
        assert fault == json.loads(line)
        return
    with contextlib.suppress(msgspec.DecodeError):  # of version 0.23
        try:
            msgspec.json.decode(line)
        except UnicodeDecodeError as error:
            assert fault == utf8_fault(error)
    with pytest.MonkeyPatch.context() as patch:  # version 0.23
        patch.setattr(json_lines, "_decode", Mock(side_effect=msgspec.DecodeError("Invalid UTF-8 encoded string")))
        assert parse_row(line) == fault


def test_64_levels_of_nesting_are_allowed_and_brackets_in_texts_are_ignored() -> None:
    line = b'{"x": ' + b'{"y":' * 32 + b"[" * 32 + b'"' + b"[" * 1000 + b'"' + b"]" * 32 + b"}" * 32 + b"}"

    assert isinstance(parse_row(line), dict)


def test_bad_lines_have_their_position_and_blank_lines_are_skipped(source: Source) -> None:
    file = source(b'{"a": 1}\n\n  \r\nbad\n{"a": 2}\r\n{"a": 3}')

    rows = list(read_rows(file))

    assert [(position, row if isinstance(row, dict) else row.reason) for position, row in rows] == [
        (0, {"a": 1}),
        (14, "not_json"),
        (18, {"a": 2}),
        (28, {"a": 3}),
    ]
    assert [item for size in (4, 5, 9, 16) for item in read_rows(file, size)] == rows * 4
    assert list(read_rows(source(b"\n\n"))) == list(read_rows(source(b""))) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"[1]", Fault("wrong_type", "the line is list")),
        (b'{"a":' + b"[" * 5000, Fault("nested_too_deep", DEEP)),
        (b'{"a":' + b"[" * 65 + b"\xff", Fault("nested_too_deep", DEEP)),
        (b'{"a": NaN}', Fault("not_json", "JSON is malformed: invalid character (byte 6)")),
        (b'{"a": -Infinity}\r', Fault("not_json", "JSON is malformed: invalid character (byte 7)")),
        (b'{"a": 1e999}', Fault("not_json", "Number out of range - at `$[...]`")),
        (b'{"a": "\\ud800"}', Fault("lone_surrogate", "an escaped half of a pair")),
        (b'{"a": "\xed\xa0\x80"}', Fault("lone_surrogate", "at byte 0")),
    ],
)
def test_an_invalid_last_line_without_newline_is_a_bad_row(source: Source, line: bytes, fault: Fault) -> None:
    assert list(read_rows(source(b'{"a": 1}\n' + line))) == [(0, {"a": 1}), (9, fault)]


@pytest.mark.parametrize("line", [b'{"a": 1, "te', b'{"a": 2}}', b'{"a": "caf\xc3'])
def test_a_truncated_last_line_stops_the_reading(source: Source, line: bytes) -> None:
    file = source(b'{"a": 1}\n' + line)

    message = refusal(lambda: list(read_rows(file)))

    assert message.startswith(f"{file.path}: the last line, line 2 (byte 9), is truncated (")
    assert message.endswith("; fetch or write the file again, or remove that line")


@pytest.mark.parametrize("content", [b'{"a": 1}\r{"a": 2}\r', b'\r{"a": "b"}\r\r{"a": 2}'])
def test_lines_that_end_with_carriage_returns_only_are_refused_with_a_fix(source: Source, content: bytes) -> None:
    file = source(content)

    fix = "write line feeds: tr '\\r' '\\n' < FILE"
    assert refusal(lambda: list(read_rows(file))) == f"{file.path}: the lines end with carriage returns only; {fix}"


@pytest.mark.parametrize(("line", "at"), [(bytes(4096), 9), (b'{"a": 2}' + bytes(10), 17), (b'{"a": "' + bytes(3), 16)])
def test_nul_bytes_at_the_end_are_reported(source: Source, line: bytes, at: int) -> None:
    file = source(b'{"a": 1}\n' + line)

    message = f"{file.path}: from byte {at} on, the file contains NUL bytes, as after a crash or a full disk; "
    assert refusal(lambda: list(read_rows(file))).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'[{"a": 1}, {"a": 2}]', "the file is a JSON array, not JSON lines; write one line per element: jq -c '.[]' "),
        (b'\n[\n{"a": 1},\n{"a": 2}\n]\n', "the file is a JSON array, not JSON lines; "),
        (b'{\n  "a": 1\n}\n', "JSON objects are spread over several lines; write one line per object: jq -c . FILE"),
    ],
)
def test_json_that_is_not_in_lines_is_refused_with_a_fix(source: Source, content: bytes, message: str) -> None:
    file = source(content)

    assert refusal(lambda: list(read_rows(file))).startswith(f"{file.path}: {message}")

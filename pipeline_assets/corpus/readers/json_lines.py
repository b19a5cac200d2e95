"""Rows of JSON lines."""

import json
import re
from collections.abc import Iterable, Iterator

import msgspec

from pipeline_assets.corpus.readers.faults import NESTED_TOO_DEEP, Fault, Row, utf8_fault
from pipeline_assets.corpus.readers.nesting import MAX_NESTING, has_deep_brackets, is_nested_within
from pipeline_assets.corpus.readers.row_positions import format_row_position
from pipeline_assets.corpus.readers.source_folder import ByteRange
from pipeline_assets.spine.errors import InputError

# Reasons of faults of a last line that do not indicate a truncated file.
_COMPLETE_LINE_REASONS = frozenset({"wrong_type", NESTED_TOO_DEEP.reason})
_decode = msgspec.json.Decoder().decode
_NOT_UTF8 = "Invalid UTF-8 encoded string"  # of a DecodeError; before version 0.23, msgspec raised UnicodeDecodeError
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"', re.DOTALL)
_ESCAPES = re.compile(rb"(?:\\u[0-9a-fA-F]{4})++|\\.", re.DOTALL)  # a pair of surrogates is one character


def json_rows(piece: ByteRange, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Row]]:
    """Yield the byte offset of each line that is not blank, and its row or fault.

    `lines` are the lines of `piece` with their offsets. NaN and Infinity are invalid. If a key is repeated, its last
    value is used. Raise InputError for a truncated last line, for an array, and for multi-line objects.
    """
    is_first = piece.start == 0
    for offset, line in lines:
        row = parse_row(line)
        if not isinstance(row, dict):
            if not line.strip():
                continue
            if is_first:
                raise_if_array_or_multiline(line, piece.file.path)
            if is_truncated(line, row):
                raise _truncated_line_error(piece, offset, line, row)
        is_first = False
        yield offset, row


def parse_row(line: bytes, noun: str = "line") -> Row:
    """Parse a line as a JSON object, or return its fault.

    In messages, the text is called `noun`: `line`, `value` or `file`. Reasons of faults: `not_json`, `wrong_type`,
    `invalid_utf8`, `lone_surrogate`, `nested_too_deep`.
    """
    try:
        row = _decode(line)
    except RecursionError:
        return NESTED_TOO_DEEP
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        if has_deep_brackets(line, 1 + MAX_NESTING):
            return NESTED_TOO_DEEP
        if isinstance(error, UnicodeDecodeError) or str(error) == _NOT_UTF8:
            return utf8_fault(_first_utf8_error(line))
        return _find_lone_surrogate(line) or Fault("not_json", str(error))
    if not isinstance(row, dict):
        return Fault("wrong_type", f"the {noun} is {type(row).__name__}")
    return row if is_nested_within(row, 1 + MAX_NESTING) else NESTED_TOO_DEEP  # 1 for the row itself


def is_truncated(line: bytes, fault: Fault) -> bool:
    """Check whether a line with a fault is the last one of a file and ends too early.

    A line without a newline is complete if it is JSON for Python's `json`, which accepts NaN, Infinity, numbers beyond
    floats and escaped lone surrogates: writers that join rows by newlines end files in this way.
    """
    if line.endswith(b"\n") or fault.reason in _COMPLETE_LINE_REASONS:
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def _truncated_line_error(piece: ByteRange, offset: int, line: bytes, fault: Fault) -> InputError:
    """Return the error for an invalid last line without a newline."""
    if b"\0" in line:
        what = f"from byte {offset + line.index(0):,} on, the file contains NUL bytes, as after a crash or a full disk"
        return InputError(what, piece.file.path, "fetch or write the file again, or remove these bytes")
    first_part, mark, _ = line.lstrip().partition(b"\r")
    if offset == 0 and mark and isinstance(parse_row(first_part), dict):
        fix = "write line feeds: tr '\\r' '\\n' < FILE"
        return InputError("the lines end with carriage returns only", piece.file.path, fix)
    position = format_row_position(piece.file.name, offset, piece.file)
    what = f"the last line, {position}, is truncated ({fault.detail or fault.reason})"
    return InputError(what, piece.file.path, "fetch or write the file again, or remove that line")


def raise_if_array_or_multiline(first_line: bytes, where: object) -> None:
    """Raise InputError if a file's first line begins an array or a multi-line object."""
    first_line = first_line.lstrip()
    if first_line[:1] == b"[":
        fix = "write one line per element: jq -c '.[]' FILE"
        raise InputError("the file is a JSON array, not JSON lines", where, fix)
    if first_line[:1] + first_line[1:].lstrip(b" \t\r") == b"{\n":
        fix = "write one line per object: jq -c . FILE"
        raise InputError("JSON objects are spread over several lines", where, fix)


def _first_utf8_error(line: bytes) -> UnicodeDecodeError:
    """Return the error of the first string of a line that is not UTF-8.

    Positions count the bytes of the string, with its escapes replaced, whatever error msgspec raised.
    """
    for string in _STRING.finditer(line):
        try:
            _ESCAPES.sub(_replace_escapes, string[1]).decode("utf-8")
        except UnicodeDecodeError as error:
            return error
    raise ValueError("all strings are UTF-8")


def _replace_escapes(escapes: re.Match[bytes]) -> bytes:
    text: str = json.loads(b'"%s"' % escapes[0])
    return text.encode("utf-8", "surrogatepass")


def _find_lone_surrogate(line: bytes) -> Fault | None:
    """Return a fault if a line is JSON with an escaped lone surrogate, else None."""
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return Fault("lone_surrogate", "an escaped half of a pair")
    except (ValueError, RecursionError):
        pass
    return None

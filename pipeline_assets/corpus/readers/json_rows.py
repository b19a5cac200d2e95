"""JSON lines → rows: one JSON object a line, each read or with the reason why not."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pipeline_assets.corpus.readers.row_faults import (
    MAX_NESTING,
    NESTED_TOO_DEEP,
    Fault,
    is_nested_within,
    nesting_fault,
    utf8_fault,
)
from pipeline_assets.corpus.readers.row_words import row_words
from pipeline_assets.corpus.readers.source_files import ByteRange
from pipeline_assets.corpus.spine.errors import InputError

# Faults of a last line that say nothing of whether the file was cut off there.
NOT_FROM_A_CUT = frozenset({"wrong_type", NESTED_TOO_DEEP})
_decode = msgspec.json.Decoder().decode


def json_rows(piece: ByteRange, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    """(place, row or fault) of every line of a range; blank lines are no rows.

    A row's place is that of its line, see `source_lines`. NaN and Infinity are not JSON; of a key that is there twice
    the last value counts.

    Raises:
        InputError: the file is cut off or ends with NUL bytes (its last line has no newline and can't be read), or is
            one JSON value over many lines.
    """
    is_first = piece.start == 0
    for place, line in lines:
        row = read_row(line)
        if not isinstance(row, dict):
            if not line.strip():
                continue
            if is_first:
                _refuse_document(piece, line.lstrip())
            if not line.endswith(b"\n") and row.reason not in NOT_FROM_A_CUT:
                raise _broken_off(piece, place, line, row)
        is_first = False
        yield place, row


def read_row(line: bytes) -> dict[str, Any] | Fault:
    """The object in a line, or why there is none: `not_json`, `wrong_type`, `invalid_utf8`, `lone_surrogate`,
    `nested_too_deep` (see `MAX_NESTING`; the row itself is no level).
    """
    try:
        row = _decode(line)
    except UnicodeDecodeError as error:
        return utf8_fault(error)
    except RecursionError:
        return nesting_fault()
    except msgspec.DecodeError as error:
        return _has_lone_surrogate(line) or Fault("not_json", str(error))
    if not isinstance(row, dict):
        return Fault("wrong_type", f"the line is {type(row).__name__}")
    return row if is_nested_within(row, 1 + MAX_NESTING) else nesting_fault()


def _broken_off(piece: ByteRange, place: int, line: bytes, fault: Fault) -> InputError:
    """What to say of a last line that can't be read."""
    if b"\0" in line:
        what = f"from byte {place + line.index(0):,} on it holds NUL bytes, as a crash or a full disk leaves them"
        return InputError(what, piece.file.path, "fetch or write the file again, or remove them")
    last = row_words(piece.file.name, place, piece.file)
    what = f"its last line, {last}, is cut off ({fault.detail or fault.reason})"
    return InputError(what, piece.file.path, "fetch or write the file again, or remove that line")


def _refuse_document(piece: ByteRange, first_line: bytes) -> None:
    """
    Raises:
        InputError: the file holds a JSON array, or an object over many lines, which would be read line by line.
    """
    if first_line[:1] == b"[":
        fix = "write a line for each element: jq -c '.[]' FILE"
        raise InputError("it is a JSON array, not JSON lines", piece.file.path, fix)
    if first_line[:1] + first_line[1:].lstrip(b" \t\r") == b"{\n":
        fix = "write a line for each: jq -c . FILE"
        raise InputError("its objects are spread over lines", piece.file.path, fix)


def _has_lone_surrogate(line: bytes) -> Fault | None:
    """Half of a surrogate pair, escaped, is JSON by the letter but no text."""
    try:
        json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return Fault("lone_surrogate", "an escaped half of a pair")
    except (ValueError, RecursionError):
        return None
    return None

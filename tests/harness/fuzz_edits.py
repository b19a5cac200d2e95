"""Edits of valid files for readers, which must survive them.

A case is one valid input, some edits, and whether checksums are made to fit again. A reader returns, or raises one of
its own errors in one line; it neither hangs nor takes much memory. Hypothesis draws cases in the tests, a seeded
generator draws millions of them in benchmarks/fuzz_files.py.
"""

import functools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from peak_memory import forget_peak, own_peak_mib
from time_limit import time_limit

from pipeline_assets.spine.errors import InputError

LIMIT_S = 10
LIMIT_MIB = 512
_MAX_BYTES = 1 << 17  # of an edited input: repeated repetitions would grow without end
ODD_VALUES: Sequence[Any] = (
    *(None, True, 0, -1, 0.5, 1e300, 10**40, 1 << 63, -(1 << 63), "", "x", "\0", "\ud800", "../..", "/etc/passwd"),
    *("²", "\n", "\u2028", "x" * 10_000, "2020-99-99", "sha256:" + "0" * 64, "*", "**", "a[", "<|end|>"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": []}}, [1] * 1000),
)
ODD_PIECES = tuple(
    piece.encode("utf-8", "surrogatepass") if isinstance(piece, str) else piece
    for piece in (
        *("\0", "\n", "\r\n", '"', "'", "\\", "{", "}", "[", "]", "<", ">", "&", "%", "{{", "-", ",", ":", " ", "\t"),
        *("\ud800", "\u2028", "\ufeff", "é", "🙂", "null", "NaN", "-0", "9" * 400, "1e999", "0x" + "f" * 99, "[" * 300),
        *(b"\xff", b"\xff\xfe", b"\x80" * 8, b"\xff" * 8, bytes(8), b"\x7f" * 4, (1 << 62).to_bytes(8, "little")),
        *(b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", b"BZh9", b"\xfd7zXZ\0"),
    )
)
HOWS = ("flip", "cut", "drop", "insert", "overwrite", "repeat", "splice", "value", "remove value")


@dataclass(frozen=True)
class Edit:
    """Change of an input: kind, place as a fraction, size and number of a piece."""

    how: str
    at: float
    size: int
    piece: int


@dataclass(frozen=True)
class Case:
    """Number of a valid input, edits of it, and whether its checksums are made to fit."""

    seed: int
    edits: tuple[Edit, ...]
    is_refitted: bool


@dataclass(frozen=True)
class Reader:
    """Reader of one format, with valid inputs.

    Attributes:
        read: Reads an input completely; the folder is for a reader of files.
        errors: Errors of the project that it may raise.
        pieces: Pieces of the format, which edits insert.
        refit: Makes the checksums of an edited input fit again.
        form: Format of the values that edits replace; "" if the input has no such values.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes, Path], object]
    errors: tuple[type[Exception], ...] = (InputError,)
    pieces: Sequence[bytes] = ()
    refit: Callable[[bytes], bytes] | None = None
    form: str = ""

    @functools.cached_property
    def inputs(self) -> Sequence[bytes]:
        return self.seeds()

    @functools.cached_property
    def all_pieces(self) -> Sequence[bytes]:
        return (*self.pieces, *ODD_PIECES)

    def data(self, case: Case) -> bytes:
        """Build the input of a case."""
        data = self.inputs[case.seed % len(self.inputs)]
        for edit in case.edits:
            data = self._edited(data, edit)[:_MAX_BYTES]
        return self.refit(data) if case.is_refitted and self.refit is not None else data

    def _edited(self, data: bytes, edit: Edit) -> bytes:
        at = min(int(edit.at * (len(data) + 1)), len(data))
        piece = self.all_pieces[edit.piece % len(self.all_pieces)]
        match edit.how:
            case "flip" if at < len(data):
                return data[:at] + bytes([data[at] ^ 1 << edit.size % 8]) + data[at + 1 :]
            case "cut":
                return data[:at]
            case "drop":
                return data[:at] + data[at + edit.size :]
            case "insert":
                return data[:at] + piece + data[at:]
            case "overwrite":
                return data[:at] + piece + data[at + len(piece) :]
            case "repeat":
                return data[:at] + data[at : at + 40] * (edit.size + 1) + data[at + 40 :]
            case "splice":
                other = self.inputs[edit.piece % len(self.inputs)]
                return data[:at] + other[int(edit.at * len(other)) :][: 40 * edit.size]
            case "value" | "remove value" if self.form:
                return _exchanged(data, edit, self.form)
        return data


def _exchanged(data: bytes, edit: Edit, form: str) -> bytes:
    """Replace or remove one value of JSON or YAML; the input itself if it is invalid."""
    is_yaml = form == "yaml"
    try:
        value = yaml.safe_load(data) if is_yaml else json.loads(data)
    except (ValueError, RecursionError, yaml.YAMLError):
        return data
    places = [*_places(value)]
    if not places:
        return data
    part, key = places[min(int(edit.at * len(places)), len(places) - 1)]
    if edit.how == "remove value":
        del part[key]
    else:
        part[key] = ODD_VALUES[edit.piece % len(ODD_VALUES)]
    text = yaml.safe_dump(value, sort_keys=False) if is_yaml else json.dumps(value)
    return text.encode("utf-8", "surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [value]
    while waiting:
        part = waiting.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else ()
        for key in keys:
            yield part, key
            waiting.append(part[key])


def cases(reader: Reader) -> st.SearchStrategy[Case]:
    """Strategy of cases, which shrinks to few edits near the start of an input."""
    edits = st.builds(
        Edit,
        st.sampled_from(HOWS),
        st.floats(0, 1),
        st.integers(0, 64),
        st.integers(0, len(reader.all_pieces) + len(ODD_VALUES)),
    )
    return st.builds(
        Case, st.integers(0, len(reader.inputs) - 1), st.lists(edits, max_size=6).map(tuple), st.booleans()
    )


def draw_case(reader: Reader, number: int) -> Case:
    """Draw the case of a number, which is always the same."""
    dice = random.Random(f"{reader.name} {number}")
    edits = tuple(
        Edit(dice.choice(HOWS), dice.random(), dice.randrange(65), dice.randrange(1 << 16))
        for _ in range(dice.choice((1, 1, 2, 3, 6)))
    )
    return Case(dice.randrange(1 << 16), edits, dice.random() < 0.7)


def check(reader: Reader, case: Case, folder: Path) -> bool:
    """Let a reader read a case; return whether it refused.

    Raises:
        AssertionError: The error has several lines, or the reader took too much memory.
        Exception: Any error that is not one of the project's.
        HangError: The reader took too long.
    """
    data = reader.data(case)
    forget_peak()
    before = own_peak_mib()
    error = None
    with time_limit(LIMIT_S):
        try:
            reader.read(data, folder)
        except reader.errors as refusal:
            error = refusal
    grown = own_peak_mib() - before
    assert grown < LIMIT_MIB, f"{grown:.0f} MiB more memory"
    assert error is None or "\n" not in str(error), f"an error of several lines: {error}"
    return error is not None

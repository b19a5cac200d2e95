"""The posts of a bucket as columns. Names of users are never read."""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.eight_bytes import eight_bytes_at_each
from pipeline_assets.corpus.readers.stackexchange.arrays import Integers
from pipeline_assets.corpus.readers.stackexchange.buckets import BucketRows
from pipeline_assets.corpus.readers.stackexchange.lines import copy_lines
from pipeline_assets.corpus.readers.stackexchange.posts_scan import INTEGERS, INVALID, MISSING, STRINGS, read_rows

QUESTION = 1
_DATE = b"0000-00-00T00:00:00"
_WORDS = np.array([0, 8, 11])


def _words(date: bytes) -> NDArray[np.uint64]:
    """The eight bytes at each of _WORDS."""
    words: NDArray[np.uint64] = eight_bytes_at_each(np.frombuffer(date + bytes(5), np.uint8))[_WORDS]
    return words


# the upper half of a digit is 3, and still is when 6 is added; of `:` and what comes after it no longer is
_MASKS, _EXPECTED = _words(bytes(0xF0 if byte == 0x30 else 0xFF for byte in _DATE)), _words(_DATE)
_SIXES = _words(bytes(6 if byte == 0x30 else 0 for byte in _DATE))

Places = Integers


class Posts:
    """The rows of a bucket; a place is the position of one in it.

    Attributes:
        keys, numbers: of the rows, as spilled.
        data: uint8, in which values lie.
    """

    def __init__(self, rows: BucketRows, places: Places) -> None:
        """
        Args:
            places: rows that are looked into.
        """
        is_post = np.zeros(len(rows.keys), bool)
        is_post[places] = rows.keys[places] >= 0
        self.keys, self.numbers = rows.keys, rows.numbers
        self.data, self._eights = rows.data, eight_bytes_at_each(rows.data)
        self._integers = np.empty((len(is_post), len(INTEGERS)), np.int64)
        self._strings = np.empty((len(is_post), len(STRINGS), 2), np.int64)
        read_rows(self.data, self._eights, 0, is_post, self._integers, self._strings)

    def integers(self, name: str, places: Places) -> Integers:
        """Values of an attribute; MISSING where there is none."""
        values: Integers = self._integers[places, INTEGERS.index(name)]
        return values

    def bounds(self, name: str, places: Places) -> Integers:
        """Where the values of an attribute lie in `data`, shape (places, 2); MISSING where there is none."""
        bounds: Integers = self._strings[places, STRINGS.index(name)]
        return bounds

    def optional_integers(self, name: str, places: Places) -> list[int | None]:
        values: list[int | None] = self.integers(name, places).tolist()
        return [None if value == MISSING else value for value in values] if MISSING in values else values

    def texts(self, name: str, places: Places) -> list[str | None]:
        """Values of an attribute, as the dump escapes them; None where there is none."""
        bounds = self.bounds(name, places)
        is_there = bounds[:, 0] != MISSING
        if not is_there.any():
            return [None] * len(places)
        found = self._decoded(bounds[is_there])
        if len(found) == len(places):
            return found
        values: list[str | None] = [None] * len(places)
        for place, value in zip(np.flatnonzero(is_there).tolist(), found, strict=True):
            values[place] = value
        return values

    def _decoded(self, bounds: Integers) -> list[str | None]:
        """Values, all at once: as lines, which is what they were spilled as."""
        starts, stops = np.ascontiguousarray(bounds.T)
        lines = np.empty(int((stops - starts).sum()) + len(bounds), np.uint8)
        copy_lines(self.data, starts, stops, lines, 0)
        return [*str(lines[:-1].data, "utf-8").split("\n")]

    def reason(self, place: int) -> tuple[str, str]:
        """Why pass 1 rejected a row that is spilled as no post: (reason, detail)."""
        start, stop = self._strings[place, 0].tolist()
        reason, _, detail = self.data[start:stop].tobytes().decode("utf-8").partition(": ")
        return reason, detail

    def faults(self, places: Places) -> dict[int, tuple[str, str]]:
        """Posts that lack something, or say it in no way that can be read: place → (reason, detail)."""
        found: dict[int, tuple[str, str]] = {}

        def note(is_at_fault: NDArray[np.bool_], reason: str, detail: str) -> None:
            for place in places[is_at_fault].tolist():
                found.setdefault(place, (reason, detail))

        for name in INTEGERS:
            note(self.integers(name, places) == INVALID, "wrong_type", f"{name} is no integer")
        note(self.integers("Score", places) == MISSING, "missing_attribute", "Score")
        for name in ("CreationDate", "Body"):
            note(self.bounds(name, places)[:, 0] == MISSING, "missing_attribute", name)
        has_title = self.bounds("Title", places)[:, 0] != MISSING
        note((self.integers("PostTypeId", places) == QUESTION) & ~has_title, "missing_attribute", "Title")
        note(~self._is_date(self.bounds("CreationDate", places)), "wrong_type", "CreationDate is no date and time")
        return found

    def _is_date(self, bounds: Integers) -> NDArray[np.bool_]:
        """Whether values begin as `2014-01-21T20:26:05` does, by three words of eight bytes that overlap."""
        starts = bounds[:, :1].clip(0, len(self.data) - len(_DATE))  # of those that are missing, anywhere
        words = self._eights[starts + _WORDS]
        fits = (words & _MASKS == _EXPECTED) & (words + _SIXES & _MASKS == _EXPECTED)
        is_date: NDArray[np.bool_] = fits.all(axis=1) & (bounds[:, 1] - bounds[:, 0] >= len(_DATE))
        return is_date

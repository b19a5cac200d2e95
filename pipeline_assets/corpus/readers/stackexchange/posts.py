"""The posts of a bucket as columns. Names of users are never read."""

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.eight_bytes import eight_bytes_at_each
from pipeline_assets.corpus.readers.stackexchange.arrays import Integers
from pipeline_assets.corpus.readers.stackexchange.buckets import BucketRows
from pipeline_assets.corpus.readers.stackexchange.posts_scan import INTEGERS, INVALID, MISSING, STRINGS, read_rows

QUESTION = 1
_DATE = b"0000-00-00T00:00:00"

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
        self._bytes = rows.data
        self.data = np.frombuffer(self._bytes, np.uint8)
        self._integers = np.empty((len(is_post), len(INTEGERS)), np.int64)
        self._strings = np.empty((len(is_post), len(STRINGS), 2), np.int64)
        read_rows(self.data, eight_bytes_at_each(self.data), 0, is_post, self._integers, self._strings)

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
        data, (starts, stops) = self._bytes, bounds.T.tolist()
        if is_there.all():
            return [data[start:stop].decode("utf-8") for start, stop in zip(starts, stops, strict=True)]
        return [
            None if start == MISSING else data[start:stop].decode("utf-8")
            for start, stop in zip(starts, stops, strict=True)
        ]

    def reason(self, place: int) -> tuple[str, str]:
        """Why pass 1 rejected a row that is spilled as no post: (reason, detail)."""
        start, stop = self._strings[place, 0].tolist()
        reason, _, detail = self._bytes[start:stop].decode("utf-8").partition(": ")
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
        """Whether values begin as `2014-01-21T20:26:05` does."""
        starts = bounds[:, :1].clip(0, len(self.data) - len(_DATE))
        characters = self.data[starts + np.arange(len(_DATE))]
        expected = np.frombuffer(_DATE, np.uint8)
        is_digit = (characters >= ord("0")) & (characters <= ord("9"))
        fits = np.where(expected == ord("0"), is_digit, characters == expected)
        return fits.all(axis=1) & (bounds[:, 1] - bounds[:, 0] >= len(_DATE))

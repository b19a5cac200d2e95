"""Ledgers: what became of the rows that came in. Rejects are kept aside with file, row and reason."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Annotated, Any, Self, TypeAlias

import msgspec

from pipeline_assets.spine.errors import InputError

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_DROPPED, _REJECTED = "dropped/", "rejected/"
_SHOWN = 5


class Ledger(msgspec.Struct, frozen=True, rename={"rows_in": "in"}):
    """Rows in = rows out + merged + dropped by reason + rejected by reason. Merged are rows that became a part of
    another row's document, as answers do.
    """

    rows_in: Count = 0
    out: Count = 0
    dropped: dict[str, Count] = {}
    rejected: dict[str, Count] = {}
    merged: Count = 0

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> Self:
        """From counts of receipts: `rows`, `documents`, `merged`, `dropped/<reason>`, `rejected/<reason>`."""
        dropped, rejected = (
            {name.removeprefix(fate): count for name, count in counts.items() if name.startswith(fate)}
            for fate in (_DROPPED, _REJECTED)
        )
        return cls(counts.get("rows", 0), counts.get("documents", 0), dropped, rejected, counts.get("merged", 0))

    def to_json(self) -> dict[str, Any]:
        """As a manifest's counts have it; what merged nothing says nothing of it."""
        told: dict[str, Any] = msgspec.to_builtins(self)
        return told if self.merged else {name: told[name] for name in told if name != "merged"}

    @property
    def total_dropped(self) -> int:
        return sum(self.dropped.values())

    @property
    def total_rejected(self) -> int:
        return sum(self.rejected.values())

    @property
    def adds_up(self) -> bool:
        return self.rows_in == self.out + self.merged + self.total_dropped + self.total_rejected

    def fates(self) -> Iterator[tuple[str, str, int]]:
        """(fate, reason, rows) of all that didn't come out; what was merged has no reason."""
        if self.merged:
            yield "merged", "", self.merged
        for fate, by_reason in (("dropped", self.dropped), ("rejected", self.rejected)):
            yield from ((fate, reason, count) for reason, count in by_reason.items())

    def __str__(self) -> str:
        joined = f" + {self.merged:,} merged" if self.merged else ""
        gone = f"{self.total_dropped:,} dropped + {self.total_rejected:,} rejected"
        return f"{self.rows_in:,} in = {self.out:,} out{joined} + {gone}"


def dropped_key(reason: str) -> str:
    """The name that receipts count dropped rows under."""
    return _DROPPED + reason


def rejected_key(reason: str) -> str:
    """The name that receipts count rejected rows under."""
    return _REJECTED + reason


@dataclass(frozen=True)
class Reject:
    """One row that was not used.

    Attributes:
        file: where it came from, as the manifest's inputs name it.
        row: its number in that file, from 0.
        reason: a code: `no_text`, `empty_text`, `invalid_utf8`, `duplicate_doc_id`, …
        detail: what was seen, cut to a line.
    """

    file: str
    row: int
    reason: str
    detail: str = ""

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def __str__(self) -> str:
        return self.describe(f"row {self.row}")

    def describe(self, place: str) -> str:
        """The reject in a line for people, with its place in words."""
        return f"{self.file} {place}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


def count_rejects(rejects: Iterable[Reject]) -> Counter[str]:
    """As receipts count them."""
    return Counter(rejected_key(reject.reason) for reject in rejects)


_LIMITS = ("0.01", "0.05", "0.1", "0.5")
RejectFormatter = Callable[[Reject], str]
"""A reject in a line for people."""


def check_rejects(
    rejects: int,
    rows: int,
    max_fraction: str,
    first: Iterable[Reject],
    where: object,
    words: RejectFormatter = str,
    advice: Callable[[Reject | None], str] = lambda first: "look at those rows",
) -> None:
    """Raises InputError where there are more rejects than the recipe's limit, a decimal string, of all rows of the
    input, planned or read: with their reasons counted, the first five of them, and advice about the first one.
    """
    if rejects > Fraction(max_fraction) * rows:
        waiting = iter(first)
        one = next(waiting, None)
        counted, shown = summarize_reasons(itertools.chain(() if one is None else (one,), waiting), words)
        what = (
            f"{rejects:,} of {rows:,} rows are rejected ({counted}), above `max_reject_fraction` "
            f"{max_fraction} (the first: {shown})"
        )
        enough = next((limit for limit in _LIMITS if rejects <= Fraction(limit) * rows), "1")
        fix = f'{advice(one)}, or set `max_reject_fraction` in the recipe to "{enough}" to accept these rejects'
        raise InputError(what, where, fix)


def summarize_reasons(rejects: Iterable[Reject], words: RejectFormatter = str) -> tuple[str, str]:
    """Their reasons with how often each is there, the most frequent first; and the first five of them."""
    reasons: Counter[str] = Counter()
    shown: list[str] = []
    for reject in rejects:
        reasons[reject.reason] += 1
        if len(shown) < _SHOWN:
            shown.append(words(reject))
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()), "; ".join(shown)

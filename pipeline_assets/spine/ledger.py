"""Ledgers: counts of input rows by outcome, with the limit on rejects."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Self, TypeAlias

import msgspec

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.rejects import Reject, RejectFormatter, sufficient_limit, summarize_reasons

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_DROPPED_PREFIX, _REJECTED_PREFIX = "dropped/", "rejected/"
MAX_FLOOR_SHARE = Fraction(1, 3)  # largest share of a source's rows that the `floor` of `check_rejects` allows


class Ledger(msgspec.Struct, frozen=True, rename={"rows_in": "in"}):
    """Counts of input rows: in = out + merged + dropped + rejected.

    Dropped and rejected rows are counted by reason. A merged row, such as an answer, is part of another row's document.
    """

    rows_in: Count = 0
    out: Count = 0
    dropped: dict[str, Count] = {}
    rejected: dict[str, Count] = {}
    merged: Count = 0

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> Self:
        """Build a ledger from the counts of receipts.

        The ledger uses the keys `rows`, `documents`, `merged`, `dropped/<reason>` and `rejected/<reason>`.
        """
        dropped, rejected = (
            {name.removeprefix(fate): count for name, count in counts.items() if name.startswith(fate)}
            for fate in (_DROPPED_PREFIX, _REJECTED_PREFIX)
        )
        return cls(counts.get("rows", 0), counts.get("documents", 0), dropped, rejected, counts.get("merged", 0))

    def to_json(self) -> dict[str, Any]:
        """Return the ledger as JSON values for a manifest; `merged` is omitted if 0."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content if self.merged else {name: content[name] for name in content if name != "merged"}

    @property
    def total_dropped(self) -> int:
        return sum(self.dropped.values())

    @property
    def total_rejected(self) -> int:
        return sum(self.rejected.values())

    @property
    def adds_up(self) -> bool:
        return self.rows_in == self.out + self.merged + self.total_dropped + self.total_rejected

    def other_outcomes(self) -> Iterator[tuple[str, str, int]]:
        """Yield (outcome, reason, count) of rows not in `out`; merged rows have reason ""."""
        if self.merged:
            yield "merged", "", self.merged
        for fate, by_reason in (("dropped", self.dropped), ("rejected", self.rejected)):
            yield from ((fate, reason, count) for reason, count in by_reason.items())

    def __str__(self) -> str:
        joined = f" + {self.merged:,} merged" if self.merged else ""
        unused = f"{self.total_dropped:,} dropped + {self.total_rejected:,} rejected"
        return f"{self.rows_in:,} in = {self.out:,} out{joined} + {unused}"


def dropped_key(reason: str) -> str:
    return _DROPPED_PREFIX + reason


def rejected_key(reason: str) -> str:
    return _REJECTED_PREFIX + reason


def count_rejects(rejects: Iterable[Reject]) -> Counter[str]:
    """Count rejects by reason; the keys are `rejected/<reason>`, as in receipts."""
    return Counter(rejected_key(reject.reason) for reject in rejects)


def check_rejects(
    reject_count: int,
    row_count: int,
    max_fraction: str,
    rejects: Iterable[Reject],
    where: object,
    format_reject: RejectFormatter = str,
    format_advice: Callable[[Reject | None], str] = lambda first: "check those rows",
    floor: int = 0,
) -> None:
    """Raise InputError if more than `max_fraction` of the rows are rejected.

    `max_fraction` is a decimal string. Until all rows are read, `row_count` is the planned number of rows.
    Unless `max_fraction` is 0, up to `floor` rejects are accepted anyway, but at most a third of the rows. The
    message counts `rejects` by reason, and shows the first five. `format_advice` gets the first reject, or None if
    `rejects` is empty, and returns the beginning of the error's fix.
    """
    limit = Fraction(max_fraction)
    tolerated = min(Fraction(floor), MAX_FLOOR_SHARE * row_count) if limit else limit
    if reject_count > max(limit * row_count, tolerated):
        waiting = iter(rejects)
        first = next(waiting, None)
        reasons, examples = summarize_reasons(itertools.chain([first] if first else [], waiting), format_reject)
        above = f"above `max_reject_fraction` {max_fraction}"
        rejected = f"{reject_count:,} of {row_count:,} rows {'is' if reject_count == 1 else 'are'} rejected"
        what = f"{rejected} ({reasons}), {above} (the first: {examples})"
        enough = sufficient_limit(Fraction(reject_count, max(row_count, 1)))
        accept = f"set `max_reject_fraction` in the recipe to {enough} to accept these rejects"
        raise InputError(what, where, f"{format_advice(first)}, or {accept}")

"""Rows that can't be used: kept aside with file, row and reason, and too many of them stop the build."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction

from pipeline_assets.corpus.spine.errors import IN_RECIPE, InputError, bare, key

_SHOWN = 5


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
        return self.told(f"row {self.row}")

    def told(self, place: str) -> str:
        """The reject as people are told of it, its place in words."""
        return f"{self.file} {place}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


Words = Callable[[Reject], str]
"""How people are told of a reject."""


def check_rejects(
    rejects: int, rows: int, max_fraction: str, first: Iterable[Reject], where: object, words: Words = str
) -> None:
    """
    Args:
        rows: all rows of the input, planned or read.
        max_fraction: the recipe's limit, a decimal string.
        first: the rejects in their order, to count their reasons and show five of.
    Raises:
        InputError: more rejects than the limit.
    """
    if rejects > Fraction(max_fraction) * rows:
        counted, shown = reasons_of(first, words)
        what = (
            f"{rejects:,} of {rows:,} rows are rejected ({counted}), above {bare('max_reject_fraction')} "
            f"{max_fraction} (the first: {shown})"
        )
        raise InputError(
            what, where, f"look at those rows; raise {key('max_reject_fraction', IN_RECIPE)} if that is how it is"
        )


def reasons_of(rejects: Iterable[Reject], words: Words = str) -> tuple[str, str]:
    """Their reasons with how often each is there, the most frequent first; and the first five of them."""
    reasons: Counter[str] = Counter()
    shown: list[str] = []
    for reject in rejects:
        reasons[reject.reason] += 1
        if len(shown) < _SHOWN:
            shown.append(words(reject))
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()), "; ".join(shown)

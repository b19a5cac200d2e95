"""Rejects: unusable rows with their reasons, also as text for error messages."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction

_MAX_EXAMPLES, _MAX_REPEATED_CHARACTERS = 5, 20  # rejects in a message; a detail that may be repeated
_SUGGESTED_LIMITS = ("0.01", "0.05", "0.1", "0.5")


@dataclass(frozen=True)
class Reject:
    """Unusable row.

    Attributes:
        file: File of the row: a name in the manifest's inputs, or the path of a shard in an input artifact.
        row: Position in that file, from 0: a byte offset in most line-based source files, a row number in other files.
        reason: Code: `no_text`, `empty_text`, `invalid_utf8`, `duplicate_doc_id`, …
        detail: Offending content, cut to one line.
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
        """Format the reject as one line; `place` names its row, such as `row 7`."""
        return f"{self.file} {place}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


RejectFormatter = Callable[[Reject], str]


def sufficient_limit(share: Fraction) -> str:
    """Return a round `max_reject_fraction` of at least `share`, as a decimal string."""
    return next((limit for limit in _SUGGESTED_LIMITS if share <= Fraction(limit)), "1")


def summarize_reasons(rejects: Iterable[Reject], format_reject: RejectFormatter = str) -> tuple[str, str]:
    """Return two texts: counts by reason, largest first; and the first five rejects.

    A long detail that several of these rejects share is shown once.
    """
    reasons: Counter[str] = Counter()
    shown, details = list[str](), set[str]()
    for reject in rejects:
        reasons[reject.reason] += 1
        if len(shown) < _MAX_EXAMPLES:
            is_repeated = reject.detail in details and len(reject.detail) > _MAX_REPEATED_CHARACTERS
            shown.append(format_reject(replace(reject, detail="") if is_repeated else reject))
            details.add(reject.detail)
    return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common()), "; ".join(shown)

"""Filter: measures a document, and drops or changes it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Value = int | float | str | bool | None


@dataclass(frozen=True)
class Measurement:
    """What one filter saw in a document: `ascii_ratio 0.43 < 0.8`.

    Attributes:
        reason: the code under which the filter drops.
        value: what was measured: a number, a column's value, a phrase that was found (None if there is none).
        limit: what it is held against; None where finding a phrase is enough.
        is_failed: whether the document is dropped for it.
        is_lower_bound: whether counting ended at the value, so that there may be more.
    """

    reason: str
    value: Value
    limit: Value
    is_failed: bool
    is_lower_bound: bool = False

    def __str__(self) -> str:
        if self.is_lower_bound:
            return f"{self.reason} at least {self.value}"
        if self.limit is None:
            return f"{self.reason} {self.value or 'none'}"
        value, limit = self.value, self.limit
        if isinstance(value, int | float) and isinstance(limit, int | float):
            comparison = "=" if value == limit else "<" if value < limit else ">"
            return f"{self.reason} {_format_near_limit(value, limit)} {comparison} {limit:g}"
        if " " in self.reason:  # a rule says its limit itself
            return f"{self.reason}: {value!r}"
        return f"{self.reason} {value}; kept: {limit}"


def _format_near_limit(value: float, limit: float) -> str:
    """A number in as few digits, three or more, as don't make it look like another one that is the limit."""
    short = (f"{value:.{digits}g}" for digits in range(3, 17))
    return str(value) if isinstance(value, int) else next((text for text in short if float(text) != limit), str(value))


@dataclass(slots=True)
class Candidate:
    """A document on its way through the filters.

    Attributes:
        text: UTF-8, as the filters before have left it.
        meta: the columns that came with it.
        failure: what the first filter that drops it saw; None while it may be kept.
        changes: how much was removed or masked in it: `masked/email`, `removed_lines/few_words`, …
    """

    text: bytes
    meta: Mapping[str, Any]
    failure: Measurement | None = None
    changes: dict[str, int] = field(default_factory=dict)

    def fail(self, measurement: Measurement) -> None:
        """Drops the document, unless an earlier filter did."""
        self.failure = self.failure or measurement

    def count(self, name: str, changes: int) -> None:
        """Counts what was removed or masked; nothing isn't counted."""
        if changes:
            self.changes[name] = changes


class Filter(ABC):
    """One section of a recipe, or several, ready to be asked."""

    @abstractmethod
    def measure(self, candidate: Candidate) -> Iterable[Measurement]:
        """What it sees in a document, in the order in which it is asked; the text is changed as `apply` does."""

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Fails documents, or changes their text."""
        for candidate in candidates:
            candidate.failure = next((seen for seen in self.measure(candidate) if seen.is_failed), None)

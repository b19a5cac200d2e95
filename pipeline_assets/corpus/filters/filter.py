"""Interface of filters, which measure documents and drop or change them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MeasuredValue = int | float | str | bool | None


@dataclass(frozen=True)
class Measurement:
    """Measurement of one filter on a document, such as `ascii_ratio 0.43 < 0.8`.

    Attributes:
        reason: Reason code of documents that the filter drops.
        value: Number, value of a column, language, license tag, or phrase in the document; None if the column is null
            or the document has no such phrase.
        limit: Limit on the value; None if the value alone drops the document, such as a phrase, or has no limit.
        is_failed: Whether the filter drops the document.
        is_lower_bound: Whether counting stopped at this value, so that the true value may be larger.
    """

    reason: str
    value: MeasuredValue
    limit: MeasuredValue
    is_failed: bool
    is_lower_bound: bool = False

    def __str__(self) -> str:
        if self.is_lower_bound:
            return f"{self.reason} at least {self.value}"
        if self.limit is None:
            return f"{self.reason} {'none' if self.value is None else self.value}"
        value, limit = self.value, self.limit
        if isinstance(value, int | float) and isinstance(limit, int | float):
            comparison = "=" if value == limit else "<" if value < limit else ">"
            return f"{self.reason} {_format_near_limit(value, limit)} {comparison} {limit:g}"
        if " " in self.reason:  # a rule, whose text contains its limit
            return f"{self.reason}: {value!r}"
        return f"{self.reason} {value}; kept: {limit}"


def _format_near_limit(value: float, limit: float) -> str:
    """Format a number to three digits, or to more if these would equal the limit."""
    short = (f"{value:.{digits}g}" for digits in range(3, 17))
    return str(value) if isinstance(value, int) else next((text for text in short if float(text) != limit), str(value))


@dataclass(slots=True)
class Candidate:
    """Document while the filters process it.

    Attributes:
        text: UTF-8 text after the earlier filters.
        meta: Columns of the document's meta.
        failure: Measurement because of which a filter dropped the document; None if no filter has.
        changes: Number of removed or masked items by kind, such as `masked/email` and `removed_lines/few_words`; 1 for
            each field that a custom step changed, and as `without_url` if lists of hosts and URLs cannot check the
            document.
        scores: Columns that filters add to the document's meta.
    """

    text: bytes
    meta: Mapping[str, Any]
    failure: Measurement | None = None
    changes: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)

    def fail(self, measurement: Measurement) -> None:
        """Drop the document because of a measurement, unless it is already dropped."""
        self.failure = self.failure or measurement

    def count(self, name: str, changes: int) -> None:
        """Set an entry of `changes`, unless the number is 0."""
        if changes:
            self.changes[name] = changes


class Filter(ABC):
    """Filter that measures documents by rules of a recipe, and drops or changes them."""

    @abstractmethod
    def measure(self, candidate: Candidate) -> Iterable[Measurement]:
        """Measure a document by each rule in order.

        A filter that changes texts also changes `candidate.text` here.
        """

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Drop documents by setting `failure`, or change their texts."""
        for candidate in candidates:
            candidate.failure = next((result for result in self.measure(candidate) if result.is_failed), None)

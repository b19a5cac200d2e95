"""Interface of filters, which measure documents and drop or change them."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MeasuredValue = int | float | str | bool | None


@dataclass(frozen=True)
class Measurement:
    """Measurement of a document by one rule, such as `ascii_ratio 0.43 < 0.8`.

    Attributes:
        reason: Reason code of documents that fail the rule.
        value: Number, column value, language with score, license tag, file of a custom step, or the phrase, domain or
            URL that matches a list. None if the column is null or nothing matches.
        limit: Limit on the value; for a language, the languages to keep and their minimum score. None if the rule has
            no limit, such as a rule that drops every document with a phrase.
        is_failed: Whether the document fails the rule and so is dropped.
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
    """Format a number; give a float enough digits to differ from the limit."""
    short = (f"{value:.{digits}g}" for digits in range(3, 17))
    return str(value) if isinstance(value, int) else next((text for text in short if float(text) != limit), str(value))


@dataclass(slots=True)
class Candidate:
    """Document while the filters process it.

    Attributes:
        text: UTF-8 text after the earlier filters.
        meta: Columns of the document's meta; may be empty if no filter reads them.
        failure: Measurement by which a filter dropped the document; None if no filter has dropped it.
        changes: Counts of removed or masked items, such as `masked/email`. `python/text` and `python/meta` are 1 if a
            custom step changed text or meta; `without_url` is 1 if a filter by domain or URL finds no URL.
        scores: Columns that filters add to the document's meta.
    """

    text: bytes
    meta: Mapping[str, Any]
    failure: Measurement | None = None
    changes: dict[str, int] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)

    def fail(self, measurement: Measurement) -> None:
        """Record the measurement that drops the document; later calls have no effect."""
        self.failure = self.failure or measurement

    def record_changes(self, name: str, count: int) -> None:
        """Set an entry of `changes`, unless the count is 0."""
        if count:
            self.changes[name] = count


class Filter(ABC):
    """Filter that measures documents by rules of a recipe, and drops or changes them."""

    @abstractmethod
    def measure(self, candidate: Candidate) -> Iterable[Measurement]:
        """Measure a document by each rule, in order; change the text as `apply` does."""

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Set the `failure` of documents that fail a rule, and change texts if needed."""
        for candidate in candidates:
            candidate.failure = next((result for result in self.measure(candidate) if result.is_failed), None)

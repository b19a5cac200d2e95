"""Filter by rules on the columns of documents' meta."""

from collections.abc import Iterator, Sequence

from pipeline_assets.corpus.filters.column_rules import ColumnRule
from pipeline_assets.corpus.filters.filter import Candidate, Filter, Measurement


class ColumnFilter(Filter):
    """Filter by rules on the columns of documents' meta."""

    def __init__(self, rules: Sequence[str]) -> None:
        self._rules = [ColumnRule.parse(rule) for rule in rules]

    def measure(self, candidate: Candidate) -> Iterator[Measurement]:
        """Yield a measurement of each rule on a document's meta."""
        return (rule.measure(candidate.meta) for rule in self._rules)

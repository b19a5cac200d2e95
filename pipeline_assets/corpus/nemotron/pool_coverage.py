"""Rows of known correctness that no pool contains."""

from collections.abc import Mapping, Sequence
from typing import Any

_MAX_EXAMPLES = 20
GAP = "correctness_gap"


class CorrectnessGap:
    """Tally of the rows of a dataset that have a correctness and are in no pool.

    Rows of a refused licence do not count.
    """

    def __init__(self) -> None:
        self._rows = 0
        self._shares: set[float] = set()
        self._examples: list[str] = []

    def add(self, split: str, ids: Sequence[str], shares: Sequence[float]) -> None:
        """Add rows of a split by their ids and their correctness, in [0, 1]."""
        self._rows += len(ids)
        self._shares.update(shares)
        self._examples += [f"{split}/{row_id:.80}" for row_id in ids[: _MAX_EXAMPLES - len(self._examples)]]

    def to_json(self) -> dict[str, Any]:
        """Return the number of `rows`, and the names of the first 20 as `examples`.

        `lowest` and `highest` are the extremes of correctness. The result is empty without rows.
        """
        if not self._rows:
            return {}
        bounds = {"lowest": repr(min(self._shares)), "highest": repr(max(self._shares))}
        return {GAP: {"rows": self._rows, **bounds, "examples": self._examples}}


def describe_gap(gap: Mapping[str, Any]) -> str:
    """Describe the rows of a gap in one line."""
    named = ", ".join(gap["examples"]) + (", …" if gap["rows"] > len(gap["examples"]) else "")
    return f"{gap['rows']:,} rows of correctness {gap['lowest']} to {gap['highest']} are in no pool: {named}"

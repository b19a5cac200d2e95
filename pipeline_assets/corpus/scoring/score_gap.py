"""Gap between two models in bits per byte, on the rows that both scored.

Bits per byte are comparable between models with different tokenizers.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit

_INTERVAL_STANDARD_ERRORS = 1.96  # half the width of a 95 % interval
_INTERVAL_DECIMALS = 6  # decimals of an interval; the variance of equal changes cancels to about eight decimals only
_SCHEMA = pl.Schema({"id": pl.String, "nll_sum": pl.Float64, "completion_bytes": pl.Int64, "meta_domain": pl.String})
_TABLE_HEADER = ("", "rows", "bytes", "first", "second", "gap", "95 % interval", "second better")


@dataclass(frozen=True)
class Comparison:
    """Comparison of two models on the same rows.

    `first`, `second`, `gap`, `low` and `high` are in bits per byte; all are None if `bytes` is 0.
    """

    rows: int
    bytes: int  # UTF-8 bytes of the completions
    first: float | None = None
    second: float | None = None
    gap: float | None = None  # `second` - `first`, below 0 if the second model is better
    low: float | None = None  # ends of the gap's 95 % interval, from the spread of rows; None for one row
    high: float | None = None
    second_better_share: float | None = None  # of rows for which the second model's NLL is lower; None without rows

    @classmethod
    def from_sums(cls, sums: pl.DataFrame) -> "Comparison":
        """Compute the comparison over all rows of `sums`, a frame from `_sum_by_domain`."""
        rows, size, first, second, better, *squares = sums.select(pl.exclude("domain").sum()).row(0)
        share = better / rows if rows else None
        if not size:
            return cls(rows, 0, second_better_share=share)
        bits, rate, low, high = math.log(2) * size, (second - first) / size, None, None
        if rows > 1:
            # Standard error of a ratio of sums, to first order: the spread of each row's deviation from the common
            # rate, Σ (change - rate · size)².
            spread = max(squares[0] - 2 * rate * squares[1] + rate * rate * squares[2], 0.0)
            margin = _INTERVAL_STANDARD_ERRORS * math.sqrt(spread * rows / (rows - 1)) / bits
            low, high = (round((second - first) / bits + sign * margin, _INTERVAL_DECIMALS) for sign in (-1, 1))
        return cls(rows, size, first / bits, second / bits, (second - first) / bits, low, high, share)

    def cells(self) -> list[str]:
        """Return the figures as text, in the order of the columns in `_TABLE_HEADER`."""
        bits = ("-" if value is None else f"{value:.4f}" for value in (self.first, self.second))
        change = "-" if self.gap is None else f"{self.gap:+.4f}"
        interval = "-" if self.low is None else f"{self.low:+.4f} to {self.high:+.4f}"
        better = "-" if self.second_better_share is None else f"{100 * self.second_better_share:.1f} %"
        return [f"{self.rows:,}", f"{self.bytes:,}", *bits, change, interval, better]


@dataclass(frozen=True)
class ScoreGap:
    """Comparison of two models over all rows, by split and by domain.

    `excluded` counts the rows of each split that are not compared: rows that only one model scored (`only_first`,
    `only_second`), and rows in which the models scored different numbers of bytes (`other_bytes`).
    """

    total: Comparison
    splits: Mapping[str, Comparison]
    domains: Mapping[str, Comparison]
    excluded: Mapping[str, Mapping[str, int]]

    def table_rows(self) -> list[tuple[str, ...]]:
        """Return a header, a row of totals, and a row for each split and each domain."""
        gaps = {"all": self.total, **self.splits, **{f"domain {name}": gap for name, gap in self.domains.items()}}
        return [_TABLE_HEADER, *((name, *gap.cells()) for name, gap in gaps.items())]

    def warnings(self) -> Iterator[str]:
        """Yield a line for each split with excluded rows."""
        for name, counts in self.excluded.items():
            if excluded := [f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items() if count]:
                yield f"{name}: left out {', '.join(excluded)}"


def compare_scores(first_splits: Sequence[ScoredSplit], second_splits: Sequence[ScoredSplit]) -> ScoreGap:
    """Compare two models on rows with equal split, id and byte count in both scores.

    One split is in memory at a time. The interval of a gap is the gap ± 1.96 standard errors of a ratio of sums.
    """
    first_by_name = {split.name: split for split in first_splits}
    second_by_name = {split.name: split for split in second_splits}
    sums, excluded = dict[str, pl.DataFrame](), dict[str, dict[str, int]]()
    for name in dict.fromkeys([*first_by_name, *second_by_name]):
        first_scores, second_scores = _read_scores(first_by_name.get(name)), _read_scores(second_by_name.get(name))
        both = first_scores.join(second_scores, on="id", suffix="_second")
        equal = both.filter(pl.col("completion_bytes") == pl.col("completion_bytes_second"))
        excluded[name] = {
            "only_first": len(first_scores) - len(both),
            "only_second": len(second_scores) - len(both),
            "other_bytes": len(both) - len(equal),
        }
        sums[name] = _sum_by_domain(equal)
    total = pl.concat([*sums.values(), _sum_by_domain(pl.DataFrame(schema={**_SCHEMA, "nll_sum_second": pl.Float64}))])
    domain_sums, compare = sorted(total.partition_by("domain", as_dict=True).items()), Comparison.from_sums
    domains = {str(name): compare(rows) for [name], rows in domain_sums}
    return ScoreGap(compare(total), {name: compare(rows) for name, rows in sums.items()}, domains, excluded)


def _read_scores(split: ScoredSplit | None) -> pl.DataFrame:
    """Read the scored rows of a split with their domains; an empty frame for None."""
    tables = [pl.DataFrame(schema=_SCHEMA)]
    for rows in split.rows([*_SCHEMA][:-1], ["meta_domain"]) if split is not None else ():
        table = pl.DataFrame(pl.from_arrow(rows.select([*_SCHEMA]))).cast(_SCHEMA)
        tables.append(table.drop_nulls("nll_sum"))
    return pl.concat(tables)


def _sum_by_domain(rows: pl.DataFrame) -> pl.DataFrame:
    """Add up the scores of the rows that both models scored, by domain.

    Columns: `domain`, `rows`, `bytes`; `first` and `second`, the nats of each model; `better`, the number of rows for
    which the second model is better. A row's change is the nats of the second model minus the nats of the first. For
    the standard error: `changes` (Σ change²), `products` (Σ change · bytes), `sizes` (Σ bytes²).
    """
    first, second, size = pl.col("nll_sum"), pl.col("nll_sum_second"), pl.col("completion_bytes")
    change = second - first
    return rows.group_by(domain=pl.col("meta_domain").fill_null("").replace("", UNKNOWN)).agg(
        rows=pl.len(),
        bytes=size.sum(),
        first=first.sum(),
        second=second.sum(),
        better=(second < first).sum(),
        changes=(change * change).sum(),
        products=(change * size).sum(),
        sizes=(size * size).sum(),
    )

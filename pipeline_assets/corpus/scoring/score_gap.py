"""The gap between two models in bits per byte, on the rows that both scored: it needs no common tokenizer."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit

_STANDARD_ERRORS = 1.96  # on either side of a 95 % interval
_DIGITS = 6  # of an interval: squares of equal changes cancel out to eight digits
_ROWS = pl.Schema({"id": pl.String, "nll_sum": pl.Float64, "completion_bytes": pl.Int64, "meta_domain": pl.String})
_HEAD = ("", "rows", "bytes", "first", "second", "gap", "95 % interval", "second better")


@dataclass(frozen=True)
class Gap:
    """Two models on the same rows.

    Attributes:
        rows, bytes: rows, and UTF-8 bytes of their completions.
        first, second: bits per byte of each model over all of them; None without bytes.
        gap: second - first; below 0 the second model is better.
        low, high: 95 % interval of the gap, by the spread of rows; None below two rows, of which no spread can be told.
        second_better: share of rows where the second model's is lower; None without rows.
    """

    rows: int
    bytes: int
    first: float | None = None
    second: float | None = None
    gap: float | None = None
    low: float | None = None
    high: float | None = None
    second_better: float | None = None

    @classmethod
    def from_sums(cls, sums: pl.DataFrame) -> "Gap":
        """Add up sums over rows, as `_sums` has them."""
        rows, size, first, second, better, *squares = sums.select(pl.exclude("domain").sum()).row(0)
        share = better / rows if rows else None
        if not size:
            return cls(rows, 0, second_better=share)
        bits, rate, low, high = math.log(2) * size, (second - first) / size, None, None
        if rows > 1:
            # The standard error of a ratio of sums, to first order: the spread of what each row is off the common rate.
            spread = max(squares[0] - 2 * rate * squares[1] + rate * rate * squares[2], 0.0)
            error = math.sqrt(spread * rows / (rows - 1)) / bits
            low, high = (round((second - first) / bits + side * _STANDARD_ERRORS * error, _DIGITS) for side in (-1, 1))
        return cls(rows, size, first / bits, second / bits, (second - first) / bits, low, high, share)

    def cells(self) -> list[str]:
        """Return the figures as text, in the order of the table's columns."""
        bits = ("-" if one is None else f"{one:.4f}" for one in (self.first, self.second))
        change = "-" if self.gap is None else f"{self.gap:+.4f}"
        interval = "-" if self.low is None else f"{self.low:+.4f} to {self.high:+.4f}"
        better = "-" if self.second_better is None else f"{100 * self.second_better:.1f} %"
        return [f"{self.rows:,}", f"{self.bytes:,}", *bits, change, interval, better]


@dataclass(frozen=True)
class ScoreGap:
    """The gap in all, by split and by domain.

    Attributes:
        left_out: rows of each split that aren't compared: `only_first`, `only_second`, which one model alone has a
            score of, and `other_bytes`, of which other bytes count.
    """

    total: Gap
    splits: Mapping[str, Gap]
    domains: Mapping[str, Gap]
    left_out: Mapping[str, Mapping[str, int]]

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of a table, its head first."""
        named = {"all": self.total, **self.splits, **{f"domain {name}": gap for name, gap in self.domains.items()}}
        return [_HEAD, *((name, *gap.cells()) for name, gap in named.items())]

    def warnings(self) -> Iterator[str]:
        """What was left out, a line a split."""
        for name, counts in self.left_out.items():
            if told := [f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items() if count]:
                yield f"{name}: left out {', '.join(told)}"


def score_gap(first: Sequence[ScoredSplit], second: Sequence[ScoredSplit]) -> ScoreGap:
    """Both models on the rows that both scored, joined by split and id. The scores of one split are held at a time.

    Intervals are of the gap's standard error, which is that of a ratio of sums over rows, paired by row.

    Raises:
        InputError: a pool has fewer rows than were scored.
    """
    of_first, of_second = ({split.name: split for split in splits} for splits in (first, second))
    sums, left_out = dict[str, pl.DataFrame](), dict[str, dict[str, int]]()
    for name in dict.fromkeys([*of_first, *of_second]):
        one, other = _scores(of_first.get(name)), _scores(of_second.get(name))
        both = one.join(other, on="id", suffix="_second")
        equal = both.filter(pl.col("completion_bytes") == pl.col("completion_bytes_second"))
        alone = {"only_first": len(one) - len(both), "only_second": len(other) - len(both)}
        left_out[name] = {**alone, "other_bytes": len(both) - len(equal)}
        sums[name] = _sums(equal)
    every = pl.concat([*sums.values(), _sums(pl.DataFrame(schema={**_ROWS, "nll_sum_second": pl.Float64}))])
    domains = {
        str(name): Gap.from_sums(rows) for [name], rows in sorted(every.partition_by("domain", as_dict=True).items())
    }
    return ScoreGap(Gap.from_sums(every), {name: Gap.from_sums(rows) for name, rows in sums.items()}, domains, left_out)


def _scores(split: ScoredSplit | None) -> pl.DataFrame:
    """Rows with a score, and the domain that their pools name."""
    found = [pl.DataFrame(schema=_ROWS)]
    for rows in split.rows([*_ROWS][:-1], ["meta_domain"]) if split is not None else ():
        table = pl.DataFrame(pl.from_arrow(rows.select([*_ROWS]))).cast(_ROWS)
        found.append(table.drop_nulls("nll_sum"))
    return pl.concat(found)


def _sums(rows: pl.DataFrame) -> pl.DataFrame:
    """Add up rows that both scored, by domain.

    Columns: rows, bytes, nats of the first model and of the second, rows where the second is better; squares of the
    change in nats, its products with bytes, squares of bytes.
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

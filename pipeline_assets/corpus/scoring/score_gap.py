"""The gap between two models on the rows that both scored, in bits per byte: these need no common tokenizer."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.parquet import mask, no_rows, numbers, truths
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.scoring.scores import ScoredSplit, places_by_name
from pipeline_assets.corpus.spine.files import rank

_SEED = "corpusmill/score_gap/1"
_RESAMPLES, _QUANTA = 1000, 1 << 16
_ROWS_AT_A_TIME = 2048  # each with a weight in each resample: 16 MiB
_DIGITS = 9  # of an interval: sums over resamples differ in the last digits between machines
_NUMBERS = {"nll_sum": pa.float64(), "completion_bytes": pa.int64()}
_SCHEMA = pa.schema({"id": pa.large_string(), **_NUMBERS, "meta_domain": pa.string()})
_HEAD = ["", "rows", "bytes", "first", "second", "gap", "95 % interval", "second better"]


class Gap(msgspec.Struct, frozen=True):
    """Two models on the same rows.

    Attributes:
        rows, bytes: rows, and UTF-8 bytes of their completions.
        first, second: bits per byte of each model over all of them; None without bytes.
        gap: second - first; below 0 the second model is better.
        low, high: 95 % interval of the gap, by resampling rows; None below two rows, of which no spread can be told.
        second_better: share of rows where the second model's is lower; None without rows.
    """

    rows: int
    bytes: int
    first: float | None
    second: float | None
    gap: float | None
    low: float | None
    high: float | None
    second_better: float | None


class ScoreGap(msgspec.Struct, frozen=True):
    """The gap in all, by split and by domain.

    Attributes:
        left_out: rows of each split that aren't compared: `only_first`, `only_second`, which one model alone has a
            score of, and `other_bytes`, of which other bytes count.
    """

    total: Gap
    splits: dict[str, Gap]
    domains: dict[str, Gap]
    left_out: dict[str, dict[str, int]]

    def lines(self) -> Iterator[str]:
        """A table for a terminal, and what was left out."""
        named = {"all": self.total, **self.splits, **{f"domain {name}": gap for name, gap in self.domains.items()}}
        rows = [_HEAD, *([name, *_cells(gap)] for name, gap in named.items())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for name, *cells in rows:
            yield "  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])
        for name, counts in self.left_out.items():
            if told := [f"{count:,} {reason.replace('_', ' ')}" for reason, count in counts.items() if count]:
                yield f"{name}: left out {', '.join(told)}"


def _cells(gap: Gap) -> list[str]:
    bits = ("-" if one is None else f"{one:.4f}" for one in (gap.first, gap.second))
    change = "-" if gap.gap is None else f"{gap.gap:+.4f}"
    interval = "-" if gap.low is None else f"{gap.low:+.4f} to {gap.high:+.4f}"
    better = "-" if gap.second_better is None else f"{100 * gap.second_better:.1f} %"
    return [f"{gap.rows:,}", f"{gap.bytes:,}", *bits, change, interval, better]


@dataclass(frozen=True)
class _Sums:
    """Sums over rows that both scored, which add up.

    Attributes:
        figures: rows, bytes, nats of the first model and of the second, rows where the second is better.
        resampled: shape (resamples, 2): nats of the second less those of the first, and bytes, in each resample.
    """

    figures: NDArray[np.float64]
    resampled: NDArray[np.float64]

    def __add__(self, other: "_Sums") -> "_Sums":
        return _Sums(self.figures + other.figures, self.resampled + other.resampled)

    def told(self) -> Gap:
        rows, size, *nats, better = self.figures.tolist()
        first, second = (one / math.log(2) / size if size else None for one in nats)
        low, high = None, None
        change, sizes = self.resampled[self.resampled[:, 1] > 0].T
        if rows > 1 and len(sizes):
            low, high = np.quantile(change / sizes / math.log(2), (0.025, 0.975)).round(_DIGITS).tolist()
        gap = None if first is None or second is None else second - first
        return Gap(int(rows), int(size), first, second, gap, low, high, better / rows if rows else None)


_NOTHING = _Sums(np.zeros(5), np.zeros((_RESAMPLES, 2)))


def score_gap(first: Sequence[ScoredSplit], second: Sequence[ScoredSplit]) -> ScoreGap:
    """Both models on the rows that both scored, joined by split and id. The scores of one split are held at a time.

    Intervals are of a Poisson bootstrap over rows with a fixed seed: in each of 1,000 resamples a row counts as often
    as a draw from Poisson(1) says, the same for both models. What a split and domain come to doesn't depend on others.

    Raises:
        InputError: a pool has fewer rows than were scored.
    """
    of_first, of_second = ({split.name: split for split in splits} for splits in (first, second))
    splits, domains, left_out = dict[str, _Sums](), dict[str, _Sums](), dict[str, dict[str, int]]()
    for name in dict.fromkeys([*of_first, *of_second]):
        splits[name] = _NOTHING
        by_domain, left_out[name] = _compared(name, _scores(of_first.get(name)), _scores(of_second.get(name)))
        for domain, sums in by_domain.items():
            splits[name] += sums
            domains[domain] = domains.get(domain, _NOTHING) + sums
    total = sum(splits.values(), _NOTHING)
    of_domains = {name: domains[name].told() for name in sorted(domains)}
    return ScoreGap(total.told(), {name: sums.told() for name, sums in splits.items()}, of_domains, left_out)


def _scores(split: ScoredSplit | None) -> pa.Table:
    """Rows with a score."""
    found = [no_rows(_SCHEMA)]
    for rows in split.rows(_SCHEMA.names[:-1], ["meta_domain"]) if split is not None else ():
        scored = rows.filter(mask(truths(rows["nll_sum"].combine_chunks().is_valid())))
        found.append(scored.select(_SCHEMA.names).cast(_SCHEMA))
    return pa.concat_tables(found)


def _compared(split: str, first: pa.Table, second: pa.Table) -> tuple[dict[str, _Sums], dict[str, int]]:
    """Sums over the rows of a split that both scored, by the domain in the first one's pools; rows in none."""
    import pyarrow.compute as pc

    found = pc.index_in(first["id"], value_set=second["id"]).combine_chunks()
    is_shared = truths(found.is_valid())
    shared, places = first.filter(mask(is_shared)), numbers(found)[is_shared]
    bytes_of_second, nats_of_second = (numbers(second[name])[places] for name in ("completion_bytes", "nll_sum"))
    is_equal = numbers(shared["completion_bytes"]) == bytes_of_second
    alone = {"only_first": len(first) - len(shared), "only_second": len(second) - len(shared)}
    left_out = {**alone, "other_bytes": len(shared) - int(is_equal.sum())}
    rows = np.stack([bytes_of_second, numbers(shared["nll_sum"]), nats_of_second], axis=1)[is_equal]
    domains = [one or UNKNOWN for one in shared["meta_domain"].filter(mask(is_equal)).to_pylist()]
    return {name: _sums(rows[own], split, name) for name, own in places_by_name(domains).items()}, left_out


def _sums(rows: NDArray[np.float64], split: str, domain: str) -> _Sums:
    """
    Args:
        rows: bytes, nats of the first model and of the second; shape (rows, 3).
    """
    sizes, first, second = rows.T
    pairs, resampled = np.stack([second - first, sizes], axis=1), np.zeros((_RESAMPLES, 2))
    draws = np.random.default_rng(int.from_bytes(rank(_SEED, split, domain)))
    for start in range(0, len(pairs), _ROWS_AT_A_TIME):
        some = pairs[start : start + _ROWS_AT_A_TIME]
        resampled += _weights()[draws.integers(0, _QUANTA, (_RESAMPLES, len(some)), np.uint16)] @ some
    figures = np.array([len(rows), *rows.sum(axis=0), np.count_nonzero(second < first)])
    return _Sums(figures, resampled)


@functools.cache
def _weights() -> NDArray[np.float64]:
    """Draws from Poisson(1) by equally likely 16 bits, several times faster than one after the other."""
    up_to = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(10)])
    return np.searchsorted(up_to, (np.arange(_QUANTA) + 0.5) / _QUANTA).astype(np.float64)

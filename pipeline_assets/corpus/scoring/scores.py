"""Scores of a split's rows: the columns of `scores.parquet`, percentiles, the pools' rows that they are of, what is
asked of scores and said of them; and the gap between two models on the rows that both scored, in bits per byte: these
need no common tokenizer.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.parquet import column_of, mask, no_rows, numbers, open_parquet, truths
from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.spine.artifact import Artifact, Verdict
from pipeline_assets.corpus.spine.errors import InputError

SCORES_FILE = "scores.parquet"
_TABLE: Mapping[str, tuple[pa.DataType, str]] = {
    "id": (pa.string(), "The row's id in its pools; each is scored once."),
    "nll_mean": (
        pa.float64(),
        "Mean negative log-likelihood of the completion's tokens, in nats; null with a `reason`.",
    ),
    "nll_sum": (pa.float64(), "Their sum, in nats."),
    "ppl": (pa.float64(), "exp(nll_mean)."),
    "completion_token_count": (
        pa.int64(),
        "Tokens of the bodies that count by the row's loss mode, as far as they were scored.",
    ),
    "percentile_within_split": (
        pa.float64(),
        "100 · (mean rank of nll_mean - 0.5) / rows with a score; null without one.",
    ),
    "bits_per_byte": (pa.float64(), "nll_sum / ln 2 / completion_bytes: comparable between tokenizers."),
    "completion_bytes": (pa.int64(), "UTF-8 bytes of the tokens that count."),
    "tokens": (pa.int64(), "Tokens of the row as it was scored, prompt included."),
    "truncated": (pa.bool_(), "Whether the row was longer than `max_length` and lost its end."),
    "tokens_lost": (pa.int64(), "Tokens that were cut off."),
    "reason": (pa.string(), "Why there is no score; null where there is one."),
    "tokenizer_digest": (pa.string(), "sha256 of the tokenizer's file."),
    "batch": (pa.int64(), "The batch, numbered within its score shard, that the row was scored in."),
    "batch_rows": (pa.int32(), "Rows of that batch."),
    "batch_tokens": (pa.int64(), "Tokens of that batch, padding included."),
    "pool_file": (pa.string(), "The file of the pools that the row was read from: the first that has its id."),
    "pool_row": (pa.int64(), "Its row there."),
}
SCORES = pa.schema([(name, kind) for name, (kind, _) in _TABLE.items()])
COLUMNS: Final[dict[str, str]] = {name: said for name, (_, said) in _TABLE.items()}
_PREVIEWED = ("id", "nll_mean", "percentile_within_split", "bits_per_byte", "completion_token_count", "reason")
_PREVIEW_ROWS = 10
_LARGE = 0.05  # nats a token


def preview_rows(scores: Artifact) -> list[dict[str, str]]:
    """The scores of the first rows."""
    with open_parquet(scores.path(SCORES_FILE)) as file:
        batches = file.iter_batches(_PREVIEW_ROWS, columns=list(_PREVIEWED), use_threads=False)
        rows: list[dict[str, Any]] = next((batch.to_pylist() for batch in batches), [])
    return [{name.replace("_", " "): _shown(row[name]) for name in _PREVIEWED} for row in rows]


def _shown(value: str | float | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class ScoredSplit:
    """The scores of a split, and the rows that they are of.

    Attributes:
        name: `dataset/split`.
        scores: the Parquet file, columns `SCORES`, rows by (`pool_file`, `pool_row`).
        pool_files: where the files lie that `pool_file` names; they may have more rows, and more columns, than asked.
        decisions: what the manifest of the scores says of the model and of how sure scores are.
    """

    name: str
    scores: Path
    pool_files: Mapping[str, Path]
    decisions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> str:
        return self.name.partition("/")[0]

    def rows(self, columns: Sequence[str], pool_columns: Sequence[str]) -> Iterator[pa.Table]:
        """Scores beside columns of the pools, in the order of the scores, a row group of a pool at a time.

        A column that a pool doesn't have is null, of type null.

        Raises:
            InputError: a pool has fewer rows than were scored.
        """
        with open_parquet(self.scores) as scores:
            names = [*dict.fromkeys([*columns, "pool_file", "pool_row"])]
            for file, runs in itertools.groupby(_by_file(scores, names), key=lambda run: run[0]):
                yield from _beside(self.pool_files[file], [table for _, table in runs], pool_columns)


def _by_file(scores: Any, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Runs of rows that are of one file of the pools."""
    for group in range(scores.num_row_groups):
        table = scores.read_row_group(group, columns=list(columns), use_threads=False)
        files = table["pool_file"].to_pylist()
        start = 0
        for file, run in itertools.groupby(files):
            length = sum(1 for _ in run)
            yield file, table.slice(start, length)
            start += length


def _beside(path: Path, runs: Sequence[pa.Table], columns: Sequence[str]) -> Iterator[pa.Table]:
    table, first = pa.concat_tables(runs), 0
    rows: NDArray[np.int64] = numbers(table["pool_row"])
    with open_parquet(path) as file:
        there = [name for name in columns if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            stop = first + file.metadata.row_group(group).num_rows
            start_at, stop_at = np.searchsorted(rows, [first, stop]).tolist()
            if stop_at > start_at:
                asked = table.slice(start_at, stop_at - start_at)
                of_pool = file.read_row_group(group, columns=there, use_threads=False)
                of_pool = of_pool.take(column_of(rows[start_at:stop_at] - first))
                for name in columns:
                    if name not in asked.column_names:
                        missing = pa.nulls(len(asked))
                        asked = asked.append_column(name, of_pool[name] if name in there else missing)
                yield asked
            first = stop
    if len(rows) and rows[-1] >= first:
        what = f"it has {first:,} rows, and row {rows[-1]:,} was scored"
        raise InputError(what, path, "run `corpusmill verify` on its folder")


def percentiles(nll: NDArray[np.float64]) -> NDArray[np.float64]:
    """100 · (mean rank - 0.5) / n of each value among those that aren't NaN, which stay NaN.

    Equal values share the mean of their ranks (1 is the lowest): of n values the percentiles are 50 on the average.

    Args:
        nll: shape (rows,).
    Returns:
        shape (rows,), within (0, 100).
    """
    result = np.full(len(nll), np.nan)
    is_scored = ~np.isnan(nll)
    _, place, count = np.unique(nll[is_scored], return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    mean_rank = ends - (count - 1) / 2
    result[is_scored] = 100 * (mean_rank[place] - 0.5) / max(int(is_scored.sum()), 1)
    return result


def places_by_name(names: Iterable[str]) -> dict[str, list[int]]:
    """Which places have each name, in order."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name, []).append(place)
    return places


def rows_have_scores(scores: Artifact) -> Verdict:
    """Some rows have a score; of the others, it is said why not."""
    counts = scores.manifest.identity.counts
    without = sum(counts["unscored"].values())
    left, words = counts["documents"] - without, scored_words(counts)
    if "unknown_loss_mode" in counts["unscored"]:
        words += f" (known loss modes: {AssistantAll.name}, {AssistantLast.name})"
    return Verdict(left > 0, words, {"scored": left, "without": without})


def scored_words(counts: Mapping[str, Any]) -> str:
    """How many rows have a score, why others have none, and how many lost their end."""
    unscored, rows = counts["unscored"], counts["documents"]
    words = f"{rows - sum(unscored.values()):,} of {rows:,} rows have a score"
    if unscored:
        words += f"; without one: {', '.join(f'{count:,} {reason}' for reason, count in sorted(unscored.items()))}"
    gone = counts["ledger"]["dropped"]
    if gone:
        words += f"; left out: {', '.join(f'{count:,} {reason}' for reason, count in sorted(gone.items()))}"
    if counts["truncated"]:
        words += f"; cut at their end: {counts['truncated']:,} rows, by {counts['tokens_lost']:,} tokens"
    return words


def scores_are_sure(scores: Artifact) -> Verdict:
    """Scores hardly change with the batches that rows are scored in."""
    said = scores.manifest.identity.decisions["how_sure"]
    if said["error_bar"] is None:
        return Verdict(True, "no row was scored again", applies=False)
    rows, error_bar, largest = said["rescored"], float(said["error_bar"]), float(said["largest"])
    words = f"95 % of {rows:,} rows that were scored again are within {error_bar:.2g} nats a token"
    return Verdict(
        error_bar <= _LARGE, f"{words}, all within {largest:.2g}", {"rescored": rows, "error_bar": error_bar}
    )


_STANDARD_ERRORS = 1.96  # on either side of a 95 % interval
_DIGITS = 6  # of an interval: squares of equal changes cancel out to eight digits
_NUMBERS = {"nll_sum": pa.float64(), "completion_bytes": pa.int64()}
_SCHEMA = pa.schema({"id": pa.large_string(), **_NUMBERS, "meta_domain": pa.string()})
_HEAD = ["", "rows", "bytes", "first", "second", "gap", "95 % interval", "second better"]


class Gap(msgspec.Struct, frozen=True):
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
        squares: of the nats of the second less those of the first, of these by bytes, of bytes.
    """

    figures: NDArray[np.float64]
    squares: NDArray[np.float64]

    def __add__(self, other: "_Sums") -> "_Sums":
        return _Sums(self.figures + other.figures, self.squares + other.squares)

    def told(self) -> Gap:
        rows, size, *nats, better = self.figures.tolist()
        if not size:
            return Gap(int(rows), 0, None, None, None, None, None, better / rows if rows else None)
        first, second = (one / math.log(2) / size for one in nats)
        gap, low, high = second - first, None, None
        if rows > 1:
            # The standard error of a ratio of sums, to first order: the spread of what each row is off the common rate.
            rate = (nats[1] - nats[0]) / size
            spread = max(float(self.squares @ [1, -2 * rate, rate * rate]), 0.0)
            error = math.sqrt(spread * rows / (rows - 1)) / math.log(2) / size
            low, high = (round(gap + side * _STANDARD_ERRORS * error, _DIGITS) for side in (-1, 1))
        return Gap(int(rows), int(size), first, second, gap, low, high, better / rows)


_NOTHING = _Sums(np.zeros(5), np.zeros(3))


def score_gap(first: Sequence[ScoredSplit], second: Sequence[ScoredSplit]) -> ScoreGap:
    """Both models on the rows that both scored, joined by split and id. The scores of one split are held at a time.

    Intervals are of the gap's standard error, which is that of a ratio of sums over rows, paired by row.

    Raises:
        InputError: a pool has fewer rows than were scored.
    """
    of_first, of_second = ({split.name: split for split in splits} for splits in (first, second))
    splits, domains, left_out = dict[str, _Sums](), dict[str, _Sums](), dict[str, dict[str, int]]()
    for name in dict.fromkeys([*of_first, *of_second]):
        splits[name] = _NOTHING
        by_domain, left_out[name] = _compared(_scores(of_first.get(name)), _scores(of_second.get(name)))
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


def _compared(first: pa.Table, second: pa.Table) -> tuple[dict[str, _Sums], dict[str, int]]:
    """Sums over the rows that both scored, by the domain in the first one's pools; rows in none."""
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
    return {name: _sums(rows[own]) for name, own in places_by_name(domains).items()}, left_out


def _sums(rows: NDArray[np.float64]) -> _Sums:
    """
    Args:
        rows: bytes, nats of the first model and of the second; shape (rows, 3).
    """
    sizes, first, second = rows.T
    change = second - first
    figures = np.array([len(rows), *rows.sum(axis=0), np.count_nonzero(second < first)])
    return _Sums(figures, np.array([change @ change, change @ sizes, sizes @ sizes]))

"""Scores of a split's rows: the columns of `scores.parquet`, percentiles, the pools' rows that they are of, and what is
asked of scores and said of them.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import numbers, to_array
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.errors import InputError, one_line

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

    def rows(self, columns: Sequence[str], pool_columns: Sequence[str]) -> Iterator[pa.Table]:
        """Scores beside columns of the pools, in the order of the scores, a row group of a pool at a time.

        A column that a pool doesn't have is null, of type null.

        Raises:
            InputError: as `pool_rows`.
        """
        with open_parquet(self.scores) as scores:
            names = [*dict.fromkeys([*columns, "pool_file", "pool_row"])]
            for file, runs in itertools.groupby(_by_file(scores, names), key=lambda run: run[0]):
                yield from _join_scores(self.pool_files[file], [table for _, table in runs], pool_columns)


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


def _join_scores(path: Path, runs: Sequence[pa.Table], columns: Sequence[str]) -> Iterator[pa.Table]:
    table, given = pa.concat_tables(runs), 0
    for of_pool in pool_rows(path, numbers(table["pool_row"]), columns):
        asked = table.slice(given, len(of_pool))
        given += len(asked)
        for name in columns:
            if name not in asked.column_names:
                there = name in of_pool.column_names
                asked = asked.append_column(name, of_pool[name] if there else pa.nulls(len(asked)))
        yield asked


def pool_rows(path: Path, rows: NDArray[np.int64], columns: Iterable[str]) -> Iterator[pa.Table]:
    """Rows of a file of pools, a row group at a time, with those of the columns that it has, or else its first.

    Args:
        rows: their numbers, ascending, shape (rows,).
    Raises:
        InputError: the file is damaged, or has fewer rows; this in the end.
    """
    first = given = 0
    with open_parquet(path) as file:
        there = [name for name in dict.fromkeys(columns) if name in file.schema_arrow.names]
        there = there or file.schema_arrow.names[:1]
        for group in range(file.num_row_groups):
            stop = first + file.metadata.row_group(group).num_rows
            inside = rows[np.searchsorted(rows, first) : np.searchsorted(rows, stop)] - first
            if len(inside):
                with naming_unreadable(path):
                    table = file.read_row_group(group, there, use_threads=False)
                yield table.take(to_array(inside))
            first, given = stop, given + len(inside)
    if given < len(rows):
        what = f"it has {first:,} rows, and row {rows[0 if rows[0] < 0 else -1]:,} was scored"
        raise InputError(what, path, "run `corpusmill verify` on its folder")


@contextlib.contextmanager
def naming_unreadable(path: Path) -> Iterator[None]:
    """Raise InputError in place of what pyarrow raises in the block where a file of pools is damaged."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        what = f"its rows can't be read ({one_line(error, 120)})"
        raise InputError(what, path, "the file is damaged: write it again") from None


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


def rows_have_scores(scores: Artifact) -> Verdict:
    """Some rows have a score; of the others, it is said why not."""
    counts = scores.manifest.identity.counts
    without = sum(counts["unscored"].values())
    left, words = counts["documents"] - without, scored_summary(counts)
    if "unknown_loss_mode" in counts["unscored"]:
        words += f" (known loss modes: {AssistantAll.name}, {AssistantLast.name})"
    return Verdict(left > 0, words, {"scored": left, "without": without})


def scored_summary(counts: Mapping[str, Any]) -> str:
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


def scores_are_stable(scores: Artifact) -> Verdict:
    """Scores hardly change with the batches that rows are scored in."""
    said = scores.manifest.identity.decisions["how_sure"]
    if said["error_bar"] is None:
        return Verdict(True, "no row was scored again", applies=False)
    rows, error_bar, largest = said["rescored"], float(said["error_bar"]), float(said["largest"])
    words = f"95 % of {rows:,} rows that were scored again are within {error_bar:.2g} nats a token"
    return Verdict(
        error_bar <= _LARGE, f"{words}, all within {largest:.2g}", {"rescored": rows, "error_bar": error_bar}
    )

"""Scores of a split: columns of `scores.parquet`, percentiles and checks."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.parquet import StoredParquet
from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.plural import pluralize

SCORES_FILE = "scores.parquet"
NO_SCORE = "no_score"  # drop reason of training subsets
_TEXT, _INT, _FLOAT = pa.string(), pa.int64(), pa.float64()
_COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "id": (_TEXT, "The row's id in its pools; each is scored once."),
    "nll_mean": (_FLOAT, "Mean negative log-likelihood of the completion's tokens, in nats; null with a `reason`."),
    "nll_sum": (_FLOAT, "Their sum, in nats."),
    "ppl": (_FLOAT, "exp(nll_mean)."),
    "completion_token_count": (
        _INT,
        "Tokens of the bodies that count by the row's loss mode, as far as they were scored.",
    ),
    "percentile_within_split": (_FLOAT, "100 · (mean rank of nll_mean - 0.5) / rows with a score; null without one."),
    "bits_per_byte": (_FLOAT, "nll_sum / ln 2 / completion_bytes: comparable between tokenizers."),
    "completion_bytes": (_INT, "UTF-8 bytes of the tokens that count."),
    "tokens": (_INT, "Tokens of the scored row, prompt included."),
    "truncated": (pa.bool_(), "Whether the row was longer than `max_length` and lost its end."),
    "tokens_lost": (_INT, "Tokens that were cut off."),
    "reason": (_TEXT, "Reason for a missing score; null with a score."),
    "tokenizer_digest": (_TEXT, "sha256 of the tokenizer's file."),
    "batch": (_INT, "The batch, numbered within its score shard, that the row was scored in."),
    "batch_rows": (pa.int32(), "Rows of that batch."),
    "batch_tokens": (_INT, "Tokens of that batch, padding included."),
    "pool_file": (_TEXT, "The file of the pools that the row was read from: the first that has its id."),
    "pool_row": (_INT, "Its row there."),
}
SCORES_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()])
COLUMN_DESCRIPTIONS: Final[dict[str, str]] = {name: description for name, (_, description) in _COLUMNS.items()}
SCORES_WITH_TOKENS_SCHEMA = SCORES_SCHEMA.append(pa.field("token_nll", pa.list_(pa.float32())))
"""Schema if the recipe requests `token_nll`: NLL of each token that counts, in order; null without a score."""
_PREVIEW_COLUMNS = ("id", "nll_mean", "percentile_within_split", "bits_per_byte", "completion_token_count", "reason")
_PREVIEW_ROWS = 10
_MAX_ERROR_BAR = 0.05  # nats per token


def preview_rows(scores: Artifact) -> list[dict[str, str]]:
    with StoredParquet(scores.path(SCORES_FILE)) as file:
        batches = file.iter_batches(_PREVIEW_ROWS, columns=list(_PREVIEW_COLUMNS))
        rows: list[dict[str, Any]] = next((batch.to_pylist() for batch in batches), [])
    return [{name.replace("_", " "): _format_value(row[name]) for name in _PREVIEW_COLUMNS} for row in rows]


def _format_value(value: str | float | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def percentiles(nll: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the percentile of each value, 100 · (mean rank - 0.5) / n, in (0, 100).

    Ranks start at 1; equal values share the mean of their ranks. NaN remains NaN, and n does not count it.
    """
    result = np.full(len(nll), np.nan)
    is_scored = ~np.isnan(nll)
    _, group, sizes = np.unique(nll[is_scored], return_inverse=True, return_counts=True)
    last_rank = np.cumsum(sizes)  # equal values, a group, have consecutive ranks up to this one
    mean_rank = last_rank - (sizes - 1) / 2
    result[is_scored] = 100 * (mean_rank[group] - 0.5) / max(int(is_scored.sum()), 1)
    return result


def rows_have_scores(scores: Artifact) -> Verdict:
    """Check that at least one row has a score; count rows without a score by reason."""
    identity = scores.manifest.identity
    counts = identity.counts
    if not identity.ledger.rows_in:
        return Verdict(False, f"no pool has a row of the split {identity.recipe['split']}", is_minor=True)
    without = sum(counts["unscored"].values())
    scored, summary = counts["documents"] - without, scored_summary(counts)
    if "unknown_loss_mode" in counts["unscored"]:
        summary += f" (known loss modes: {AssistantAll.name}, {AssistantLast.name})"
    return Verdict(scored > 0, summary, {"scored": scored, "without": without})


def scored_summary(counts: Mapping[str, Any]) -> str:
    """Format a manifest's counts of scored, unscored, dropped and truncated rows."""
    unscored, rows = counts["unscored"], counts["documents"]
    summary = f"{rows - sum(unscored.values()):,} of {rows:,} rows have a score"
    if unscored:
        summary += f"; without one: {', '.join(f'{count:,} {reason}' for reason, count in sorted(unscored.items()))}"
    dropped = counts["ledger"]["dropped"]
    if dropped:
        summary += f"; left out: {', '.join(f'{count:,} {reason}' for reason, count in sorted(dropped.items()))}"
    if counts["truncated"]:
        truncated, lost = pluralize(counts["truncated"], "row"), pluralize(counts["tokens_lost"], "token")
        summary += f"; truncated: {truncated}, by {lost}"
    return summary


def scores_are_stable(scores: Artifact) -> Verdict:
    """Check that scores hardly depend on the batches in which rows are scored."""
    stability = scores.manifest.identity.decisions["how_sure"]
    if stability["error_bar"] is None:
        return Verdict(True, "no row was scored again", applies=False)
    rows, error_bar = stability["rescored"], float(stability["error_bar"])
    summary = (
        f"95 % of {rows:,} rows that were scored again are within {error_bar:.2g} nats per token, "
        f"all within {float(stability['largest']):.2g}"
    )
    return Verdict(error_bar <= _MAX_ERROR_BAR, summary, {"rescored": rows, "error_bar": error_bar})


def subsets_have_rows(subsets: Artifact) -> Verdict:
    """Check that at least one training subset has rows."""
    identity = subsets.manifest.identity
    rows_by_rule: Mapping[str, int] = identity.counts["subsets"]
    if any(rows_by_rule.values()):
        return Verdict(True, ", ".join(f"{rule} {rows:,}" for rule, rows in rows_by_rule.items()))
    rules = identity.recipe["rules"]
    bands = ", ".join(f"{rule} from {' to '.join(rules[rule]['percentile'])}" for rule in rows_by_rule)
    what = f"no row is in a subset; the rules take percentiles (0 to 100): {bands}"
    return Verdict(False, f"{what}; widen one, or relax its `where`")

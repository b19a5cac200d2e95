"""What is asked of the scores of a split, and said of them."""

from collections.abc import Mapping
from typing import Any

from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast
from pipeline_assets.corpus.spine.artifact import Artifact, Verdict

_LARGE = 0.05  # nats a token


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

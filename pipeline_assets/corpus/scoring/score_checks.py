"""What is asked of the scores of a split."""

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.checks import Verdict

_LARGE = 0.05  # nats a token


def rows_have_scores(scores: Artifact) -> Verdict:
    """Some rows have a score; of the others, it is said why not."""
    counts = scores.manifest.identity.counts
    unscored: dict[str, int] = counts["unscored"]
    left, rows = counts["documents"] - sum(unscored.values()), counts["documents"]
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(unscored.items()))
    words = f"{left:,} of {rows:,} rows have a score" + (f"; without one: {reasons}" if reasons else "")
    return Verdict(left > 0, words, {"scored": left, "without": rows - left})


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

"""Why a row of a source is in no Document: it was not read, a rule dropped it, it was rejected."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.rejects import Reject


def why_not_read(entry: Mapping[str, Any], row: int) -> str | None:
    """Why a row of a hub file, as a manifest lists it, was not read; None if it was."""
    if "row_groups" not in entry:
        return "no row group of the file was drawn"
    ranges = rows_read(entry["row_groups"])
    if any(row in rows for rows in ranges):
        return None
    return "rows read of the file: " + (", ".join(f"{rows.start:,} to {rows.stop - 1:,}" for rows in ranges) or "none")


def rows_read(row_groups: Sequence[Mapping[str, int]]) -> list[range]:
    """Rows of a hub file that were read, sorted; neighbouring row groups make one range, empty ones none.

    Args:
        row_groups: those of the manifest, any order: first_row, and how many rows were read from there on.
    """
    ranges: list[range] = []
    for group in sorted(row_groups, key=lambda group: group["first_row"]):
        start, stop = group["first_row"], group["first_row"] + group["rows"]
        if ranges and ranges[-1].stop == start:
            ranges[-1] = range(ranges[-1].start, stop)
        elif group["rows"]:
            ranges.append(range(start, stop))
    return ranges


def dropped_by(corpus: Artifact) -> str:
    """The rules that dropped rows of a corpus, in words; which of them took a row, no manifest says."""
    dropped = corpus.manifest.identity.counts["ledger"]["dropped"]
    return "by " + (" or ".join(f"`{rule}`" for rule in dropped) or "a rule that the ledger doesn't name")


def reason_of(reject: Reject) -> str:
    """The reason of a reject, and what was seen."""
    return reject.reason + (f" ({reject.detail})" if reject.detail else "")

"""Staleness of artifacts that contain, or may contain, rows on the removal list."""

from pathlib import Path

from pipeline_assets.build.removal_state import RemovalComparison, read_comparisons
from pipeline_assets.corpus.removals import FORGOTTEN, REMOVALS_KEY, Removals
from pipeline_assets.spine.manifest import Manifest


def omitted_listed_rows(manifest: Manifest) -> bool:
    """Check whether a build left out rows because they were on the removal list."""
    return FORGOTTEN in manifest.identity.counts.get("ledger", {}).get("dropped", ())


def lacks_applied_entries(removals: Removals, manifest: Manifest) -> bool:
    """Check whether a build dropped rows because of entries not in `removals`.

    Such an artifact was pulled or copied from another data root. Built in this data root, it would contain these rows.
    """
    return omitted_listed_rows(manifest) and manifest.provenance.get(REMOVALS_KEY) not in removals.positions


def has_listed_rows(root: Path, manifest: Manifest) -> bool:
    """Check whether `forget` found rows to forget in an artifact or upstream of it."""
    digests = {manifest.digest, *(entry["digest"] for entry in manifest.identity.upstream)}
    return any(compared.has_listed_rows for digest, compared in read_comparisons(root).items() if digest in digests)


def count_compared_entries(removals: Removals, manifest: Manifest, comparison: RemovalComparison) -> int:
    """Count the removal-list entries that the build applied or that `forget` compared."""
    return max(map(removals.count_before, (manifest.provenance.get(REMOVALS_KEY), comparison.position)))


def removal_staleness(root: Path, removals: Removals, manifest: Manifest) -> str | None:
    """Return why the removal list makes an artifact stale; None if it does not."""
    comparison = read_comparisons(root).get(manifest.digest, RemovalComparison())
    if rows := sum(comparison.rows.values()):
        return f"{rows:,} row{'s are' if rows > 1 else ' is'} on the removal list"
    new = len(removals.entries) - count_compared_entries(removals, manifest, comparison)
    if not new:
        return None
    entries = "a new entry" if new == 1 else f"{new:,} new entries"
    return f"not compared with {entries} of the removal list; run `corpusmill forget`"

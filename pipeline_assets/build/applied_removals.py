"""Artifacts whose builds left out rows on the removal list."""

from pipeline_assets.corpus.removals import FORGOTTEN, REMOVALS_KEY, Removals
from pipeline_assets.spine.manifest import Manifest


def lacks_listed_rows(manifest: Manifest) -> bool:
    """Check whether a build left out rows because they were on the removal list."""
    return FORGOTTEN in manifest.identity.counts.get("ledger", {}).get("dropped", ())


def lacks_applied_entries(removals: Removals, manifest: Manifest) -> bool:
    """Check whether a build dropped rows because of entries not in `removals`.

    This happens if the artifact was pulled or copied from another data root. If it were built from the same files in
    this data root, it would contain these rows.
    """
    return lacks_listed_rows(manifest) and manifest.provenance.get(REMOVALS_KEY) not in removals.positions

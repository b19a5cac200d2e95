"""Artifacts from which a build left out rows on the removal list."""

from pipeline_assets.corpus.removals import FORGOTTEN, REMOVALS_KEY, Removals
from pipeline_assets.spine.manifest import Manifest


def lacks_listed_rows(manifest: Manifest) -> bool:
    """Check whether a build left out rows because they were on the removal list."""
    return FORGOTTEN in manifest.identity.counts.get("ledger", {}).get("dropped", ())


def lacks_applied_entries(removals: Removals, manifest: Manifest) -> bool:
    """Check whether a build left out rows because of entries that `removals` lacks.

    This happens if the artifact was pulled or copied from another data root. A build in this data root, from the same
    files, would contain the rows.
    """
    return lacks_listed_rows(manifest) and manifest.provenance.get(REMOVALS_KEY) not in removals.positions

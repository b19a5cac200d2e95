"""What must hold of a normalised Wikipedia extraction."""

from pipeline_assets.corpus.readers.wikipedia_count import PageLedger
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import Verdict


def pages_add_up(normalized: Artifact) -> Verdict:
    """Pages of a Wikipedia extraction, counted by their first lines alone, are articles and rejects."""
    counts = normalized.manifest.identity.counts
    if "pages" not in counts:
        return Verdict(True, "it is no Wikipedia extraction", applies=False)
    rejects = sum(counts["ledger"]["rejected"].values())
    ledger = PageLedger(counts["pages"], counts["documents"], rejects)
    return Verdict(ledger.adds_up, str(ledger), {"pages": ledger.pages, "articles": ledger.articles})

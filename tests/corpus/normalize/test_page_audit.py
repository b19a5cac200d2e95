"""What must hold of a normalised Wikipedia extraction: its pages are articles and rejects."""

from pathlib import Path

import pytest

from pipeline_assets.corpus.normalize.files import pages_add_up
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import Identity, Manifest, StageVersion


def normalized(**counts: object) -> Artifact:
    identity = Identity(StageVersion("normalize", 1), {}, [], None, {}, counts, [])
    return Artifact(Path("anywhere"), Manifest("stage_a/normalized", "wikipedia", identity, [], {}))


@pytest.mark.parametrize(
    ("pages", "documents", "rejected", "holds"),
    [
        (5, 3, {"title_only": 2}, True),
        (5, 3, {"title_only": 1, "duplicate_doc_id": 1}, True),
        (5, 3, {"title_only": 1}, False),
        (5, 3, {"title_only": 3}, False),
        (0, 0, {}, False),
    ],
)
def test_pages_are_articles_and_rejects(pages: int, documents: int, rejected: dict[str, int], holds: bool) -> None:
    verdict = pages_add_up(normalized(pages=pages, documents=documents, ledger={"rejected": rejected}))

    assert verdict.holds is holds
    assert verdict.because == f"{pages} pages in = {documents} articles + {sum(rejected.values())} rejected"
    assert verdict.numbers == {"pages": pages, "articles": documents}


def test_other_sources_have_no_pages() -> None:
    verdict = pages_add_up(normalized(documents=3, ledger={"rejected": {}}))

    assert (verdict.holds, verdict.applies, verdict.because) == (True, False, "it is no Wikipedia extraction")

"""What tests of deduplication share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dedup_build import decisions_of, deduplicate, recipe, write_corpus
from plain_dedup import PlainDocument

from pipeline_assets.corpus.dedup import dedup_run
from pipeline_assets.corpus.dedup.decision import Decision
from pipeline_assets.corpus.dedup.recipe import DedupRecipe


@pytest.fixture
def decisions(tmp_path: Path) -> Callable[..., list[Decision]]:
    """What becomes of texts, or documents, under the recipe with some keys changed."""

    def run(*documents: str | PlainDocument, rules: DedupRecipe | None = None, **changes: Any) -> list[Decision]:
        plain = [
            PlainDocument(f"d{number}", one) if isinstance(one, str) else one for number, one in enumerate(documents)
        ]
        sources = write_corpus(tmp_path / "corpus", plain, 1000)
        return decisions_of(deduplicate(tmp_path, sources, rules or recipe(**changes)))

    return run


@pytest.fixture
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory is short, a worker holds 5,000 bytes of a corpus."""
    monkeypatch.setattr(dedup_run, "_MIN_WORKER_BYTES", 5000)

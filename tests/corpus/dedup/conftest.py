"""Fixtures for tests of deduplication."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dedup_build import deduplicate, list_decisions, recipe, write_corpus
from plain_dedup import PlainDocument

from pipeline_assets.corpus.dedup import dedup_run
from pipeline_assets.corpus.dedup.decision import Decision
from pipeline_assets.corpus.dedup.recipe import DedupRecipe


@pytest.fixture
def decisions(tmp_path: Path) -> Callable[..., list[Decision]]:
    """Return a function that deduplicates texts or documents by a changed recipe."""

    def run(*documents: str | PlainDocument, rules: DedupRecipe | None = None, **changes: Any) -> list[Decision]:
        plain = [
            PlainDocument(f"d{number}", doc) if isinstance(doc, str) else doc for number, doc in enumerate(documents)
        ]
        sources = write_corpus(tmp_path / "corpus", plain, 1000)
        return list_decisions(deduplicate(tmp_path, sources, rules or recipe(**changes)))

    return run


@pytest.fixture
def small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the corpus share of a worker to 5,000 bytes when memory is short."""
    monkeypatch.setattr(dedup_run, "_MIN_WORKER_BYTES", 5000)

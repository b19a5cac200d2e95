"""Fixtures for tests of token shards."""

import pydoc_data.topics
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Return paragraphs of Python's own manual."""
    manual = "\n\n".join(pydoc_data.topics.topics[name] for name in sorted(pydoc_data.topics.topics))
    paragraphs = [" ".join(paragraph.split()) for paragraph in manual.split("\n\n")]
    return [paragraph for paragraph in paragraphs if len(paragraph) > 30 and paragraph.isascii()][:400]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """Train a SentencePiece model of 400 pieces on the texts."""
    from pipeline_assets.corpus.tokens.unigram import UnigramRecipe, train_unigram

    path = tmp_path_factory.mktemp("model") / "tokenizer.model"
    path.write_bytes(train_unigram(texts, UnigramRecipe(vocab_size=400, character_coverage="1")).model_bytes)
    return path

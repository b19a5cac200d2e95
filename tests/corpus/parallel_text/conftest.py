"""Fixtures for tests of parallel text: a sample of 120 pairs and its tokens."""

from pathlib import Path

import pytest
from sentence_pairs import SOURCE, real_or_synthetic_rows, translation_lines

from pipeline_assets.corpus.parallel_text.draw import materialize
from pipeline_assets.corpus.parallel_text.encode import encode


@pytest.fixture(scope="session")
def manifest(tmp_path_factory: pytest.TempPathFactory, real: bool) -> Path:
    folder = tmp_path_factory.mktemp("sample")
    rows = real_or_synthetic_rows(400, real)
    rows[7:9] = [{"fr": "ﬁn de partie ①", "en": "ｅｎｄ of the ﬁle"}, {"fr": "𝒳 ☃ 日本", "en": "snow ☃"}]
    file = translation_lines(folder / "a.jsonl", rows)
    return materialize(files=[file], languages=("fr", "en"), source=SOURCE, folder=folder)


@pytest.fixture(scope="session")
def cache(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(manifest, None, tmp_path_factory.mktemp("cache"))

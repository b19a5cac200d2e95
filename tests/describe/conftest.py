"""Fixtures for tests of descriptions: a data root of web sites that is described."""

from pathlib import Path

import pytest
from description_checks import describe_artifact
from stage_a_build import build, local_source, parse_recipe

from pipeline_assets.corpus.publishing.description import Description

ANSWERS = {"url": "https://data.example/sites", "creator": "Example Lab", "date_published": "2026-01-02"}
URLS = {"https://www.one.example.co.uk/a": 100, "http://two.example.org:80/": 900, "one.example.co.uk": 1000, "": 50}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a data root with four generated documents of web sites."""
    root = tmp_path_factory.mktemp("sites")
    rows = [
        {"key": str(number), "text": "é" * (size // 2), "url": url, "license": "MIT" if number else None}
        for number, (url, size) in enumerate(URLS.items())
    ]
    build(parse_recipe(local_source(root, "sites", rows, generated_by="some-model 1")), root)
    return root


@pytest.fixture(scope="module")
def folder(root: Path) -> Path:
    return root / "stage_a" / "mixed" / "filtered" / "sites"


@pytest.fixture(scope="module")
def description(folder: Path, root: Path) -> Description:
    return describe_artifact(folder, root, **ANSWERS)

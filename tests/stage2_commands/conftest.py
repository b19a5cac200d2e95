"""Fixtures for tests of `corpusmill stage2`: a hub and a mixture built from it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from command_results import Corpusmill, Result
from stage2_build import recipe_with, write_datasets

from pipeline_assets.demo.loopback_hub import LoopbackHub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    folder = tmp_path_factory.mktemp("hub")
    write_datasets(folder)
    with LoopbackHub(folder) as served:
        yield served


@pytest.fixture(scope="module")
def typed(hub: LoopbackHub, corpusmill: Corpusmill) -> Corpusmill:
    def run(*args: object, env: dict[str, str] | None = None, status: int = 0) -> Result:
        result = corpusmill(*args, env=hub.client_environment() | (env or {}))
        assert result.returncode == status, result.stderr
        return result

    return run


@pytest.fixture(scope="module")
def out(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory, typed: Corpusmill) -> Path:
    root = tmp_path_factory.mktemp("out")
    recipe_with(root, hub.commits())
    result = typed("stage2", "process", "small", "--out-dir", root, "--log-file", root / "logs" / "process.log")
    assert "inventory" in result.stdout and (root / "logs" / "process.log").read_text()
    return root

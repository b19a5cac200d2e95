"""Stage A as a whole: five sources through assets and command line, to the same digests whatever runs them."""

from pathlib import Path

import pytest
from stage_a_sources import write_hub, write_recipe, write_sources

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.kind import RunSettings
from pipeline_assets.corpus.recipes.stage_a import StageARecipe
from pipeline_assets.corpus.recipes.systems import KINDS
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import files_match_manifest, ledger_adds_up
from pipeline_assets.corpus.spine.engine import EngineSettings
from resources.loopback_hub import LoopbackHub


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> LoopbackHub:
    folder = tmp_path_factory.mktemp("hub")
    write_hub(folder)
    with LoopbackHub(folder) as running:
        yield running


def build(root: Path, hub: LoopbackHub, workers: int) -> dict[str, Artifact]:
    write_sources(root)
    recipe = StageARecipe.read(write_recipe(root, hub.commits()["maker/pages"]))
    settings = RunSettings(EngineSettings(workers), HubFiles(root / "hub_cache", endpoint=hub.endpoint))
    return {target.role: KINDS[target.kind].build(target, root, False, settings) for target in recipe.targets()}


def test_all(tmp_path: Path, hub: LoopbackHub) -> None:
    built = build(tmp_path / "a", hub, 0)
    again = build(tmp_path / "b", hub, 2)
    for role, artifact in built.items():
        print(role, artifact.manifest.identity.counts)
        assert files_match_manifest(artifact).holds
        if "ledger" in artifact.manifest.identity.counts:
            assert ledger_adds_up(artifact).holds, ledger_adds_up(artifact).because
        assert again[role].manifest.digest == artifact.manifest.digest

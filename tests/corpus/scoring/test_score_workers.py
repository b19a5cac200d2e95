"""Scores of a split: the same bytes on one machine, whatever workers there are, and in whatever order they finish."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked_here import forked_here
from launcher_work import score_first_rows_last
from subsets_made import talk

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.scoring import score_split
from pipeline_assets.corpus.scoring.model_pin import write_made_model
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.worker import StartMethod
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import KINDS

STEPS = ("nemotron/raw", "nemotron/model", "nemotron/nll_scores")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> NemotronRecipe:
    """Scores of ten rows of many lengths, in four shards, by a tiny model."""
    pytest.importorskip("torch", reason="torch is not installed")
    folder = tmp_path_factory.mktemp("sources")
    rows = [talk(f"row-{number}", "four and " * number**2 + "four") for number in range(10)]
    (folder / "talks").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "talks" / "train.parquet", row_group_size=4)
    model = {"path": str(write_made_model(folder / "model"))}
    talks = {"dataset": "talks", "path": str(folder / "talks"), "splits": ["train"], "domain": "chat_if"}
    scoring = {"model": model, "tokenizer": "o200k_harmony", "shard_rows": 3, "batch_tokens": 200, "rescored": 4}
    return NemotronRecipe.of({"system": "nemotron", "name": "made", "datasets": [talks], "scoring": scoring}, "made")


def scores_of(recipe: NemotronRecipe, root: Path, settings: RunSettings) -> Artifact:
    """The scores, below a data root of their own."""
    targets = [target for target in recipe.targets() if target.kind in STEPS]
    with forked_here():
        [*_, scores] = [KINDS[target.kind].build(target, Run(root, settings)) for target in targets]
    return scores


@pytest.fixture(scope="module")
def sealed(recipe: NemotronRecipe, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return scores_of(recipe, tmp_path_factory.mktemp("sealed"), RunSettings(1))


def test_rows_have_scores_in_the_order_of_the_pools(sealed: Artifact) -> None:
    rows = pq.read_table(sealed.path("scores.parquet")).to_pylist()

    assert [row["id"] for row in rows] == [f"row-{number}" for number in range(10)]
    assert all(row["nll_mean"] > 0 for row in rows)
    assert sealed.manifest.identity.decisions["how_sure"]["rescored"] == 4


@pytest.mark.parametrize(
    ("workers", "start_method"),
    [(2, "forkserver"), *(pytest.param(number, "spawn", marks=pytest.mark.slow) for number in (1, 2))],
)
def test_neither_the_number_of_workers_nor_how_they_start_changes_a_byte(
    workers: int, start_method: StartMethod, recipe: NemotronRecipe, sealed: Artifact, tmp_path: Path
) -> None:
    scores = scores_of(recipe, tmp_path, RunSettings(workers, start_method))

    assert scores.manifest.digest == sealed.manifest.digest


def test_the_order_in_which_shards_finish_changes_no_byte(
    recipe: NemotronRecipe, sealed: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_split, "score_shard", partial(score_first_rows_last, marker=tmp_path / "last is done"))
    scores = scores_of(recipe, tmp_path, RunSettings(2))

    assert scores.manifest.digest == sealed.manifest.digest

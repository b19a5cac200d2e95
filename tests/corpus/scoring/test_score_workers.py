"""Scores of a split: the same bytes on one machine, whatever workers there are, and in whatever order they finish."""

import multiprocessing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from subsets_made import talk

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.scoring import score_split
from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.model_pin import write_made_model
from pipeline_assets.corpus.scoring.score_shard import score_shard
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import StartMethod, Window
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import KINDS

STEPS = ("nemotron/raw", "nemotron/model", "nemotron/nll_scores")
ONE_FORK = RunSettings(workers=1, start_method="fork")
TWO_FORKS = RunSettings(workers=2, start_method="fork")


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
    [*_, scores] = [KINDS[target.kind].build(target, Run(root, settings)) for target in targets]
    return scores


@pytest.fixture(scope="module")
def sealed(recipe: NemotronRecipe, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return scores_of(recipe, tmp_path_factory.mktemp("sealed"), ONE_FORK)


def test_rows_have_scores_in_the_order_of_the_pools(sealed: Artifact) -> None:
    rows = pq.read_table(sealed.path("scores.parquet")).to_pylist()

    assert [row["id"] for row in rows] == [f"row-{number}" for number in range(10)]
    assert all(row["nll_mean"] > 0 for row in rows)
    assert sealed.manifest.identity.decisions["how_sure"]["rescored"] == 4


@pytest.mark.parametrize(
    ("workers", "start_method"),
    [
        (2, "fork"),
        pytest.param(2, "forkserver", marks=pytest.mark.slow),
        pytest.param(1, "forkserver", marks=pytest.mark.slow),
        pytest.param(1, "spawn", marks=pytest.mark.slow),
        pytest.param(2, "spawn", marks=pytest.mark.slow),
    ],
)
def test_neither_the_number_of_workers_nor_how_they_start_changes_a_byte(
    workers: int, start_method: StartMethod, recipe: NemotronRecipe, sealed: Artifact, tmp_path: Path
) -> None:
    scores = scores_of(recipe, tmp_path, RunSettings(workers, start_method))

    assert scores.manifest.digest == sealed.manifest.digest


def test_the_order_in_which_shards_finish_changes_no_byte(
    recipe: NemotronRecipe, sealed: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_is_done = multiprocessing.get_context("fork").Event()

    def first_comes_last(job: ScoreJob, window: Window, folder: BuildFolder, **scorer: Any) -> Receipt:
        if 0 in job.row_numbers and job.batch_rows is None:
            last_is_done.wait()
        receipt = score_shard(job, window, folder, **scorer)
        if 9 in job.row_numbers:
            last_is_done.set()
        return receipt

    monkeypatch.setattr(score_split, "score_shard", first_comes_last)
    scores = scores_of(recipe, tmp_path, TWO_FORKS)

    assert scores.manifest.digest == sealed.manifest.digest

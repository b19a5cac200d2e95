"""Training subsets are built from published pools, in one run of the UI."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from materialized import Materialized, resources
from real_samples import some
from tiny_scoring import save_whole_model

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.scoring.scores import percentiles
from pipeline_assets.demo.demo import HUB_TOKEN
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.nemotron import SCORED_RECIPE_NAME, write_scored_recipe
from pipeline_assets.demo.recipes import write_nemotron_recipe
from pipeline_assets.spine.recipe_yaml import read_yaml

pytestmark = pytest.mark.slow


def read_rows(path: Path) -> list[dict[str, object]]:
    return pq.ParquetFile(path).read().to_pylist()


def test_each_row_of_each_split_is_scored_once_and_ranked(scored_root: Path) -> None:
    for scores in some((scored_root / "nemotron" / SCORED_RECIPE_NAME / "nll_scores").glob("*/*/scores.parquet")):
        rows, recipe = read_rows(scores), read_yaml(scored_root / "recipes" / f"{SCORED_RECIPE_NAME}.yaml")
        [section] = [entry for entry in recipe["datasets"] if entry["dataset"].endswith(scores.parts[-3])]
        hub, split = scored_root / "hub" / "datasets" / section["dataset"], scores.parts[-2]
        files = [path for pattern in section["files"][split] for path in hub.glob(pattern)]
        assert sorted(row["id"] for row in rows) == sorted({row["id"] for path in files for row in read_rows(path)})
        nll = np.array([row["nll_mean"] for row in rows], np.float64)
        assert [row["percentile_within_split"] for row in rows] == percentiles(nll).tolist()


def test_one_ui_run_builds_subsets_from_the_hub(
    scored_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", HUB_TOKEN)  # the published datasets are private
    shutil.copytree(scored_root / "hub", tmp_path / "hub")
    shutil.copytree(scored_root / "recipes", tmp_path / "recipes")
    path = tmp_path / "recipes" / f"{SCORED_RECIPE_NAME}.yaml"
    with LoopbackHub(tmp_path / "hub") as hub:
        pool_recipe = write_nemotron_recipe(tmp_path, hub.commits())
        write_scored_recipe(
            tmp_path,
            pool_recipe,
            Run.from_settings(tmp_path, {}, hub=HubFiles(tmp_path / "cache", endpoint=hub.endpoint)),
        )
        content = read_yaml(path)
        model = save_whole_model(tmp_path / "models" / "tiny")
        content["scoring"] |= {"model": {"path": str(model)}, "tokenizer": "model", "max_rows": 2, "rescored": 1}
        path.write_text(json.dumps(content))
        run = Materialized(tmp_path, hub.endpoint)
        job = run.definitions.resolve_job_def(SCORED_RECIPE_NAME)
        result = job.execute_in_process(instance=run.instance, resources=resources(hub.endpoint, workers=2))

    assert result.success
    events = result.get_asset_materialization_events()
    steps = {event.step_materialization_data.materialization.asset_key.path[2] for event in events}
    assert steps == {"raw", "model", "nll_scores", "score_report", "training_subsets"}
    report = json.loads((tmp_path / "nemotron" / SCORED_RECIPE_NAME / "score_report" / "report.json").read_bytes())
    assert report["total"]["scored"]["rows"] == report["total"]["rows"] == 26

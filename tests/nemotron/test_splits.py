"""Builds of the shipped datasets at their hub layout have equal digests."""

import json
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest
import yaml
from materialized import Materialized
from nemotron_build import SHIPPED, build, offline
from nemotron_hub import SPLITS, render_split

from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.nemotron.splits import partition_key
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.trust.plan import plan_recipe

PARTITIONS = [partition_key(dataset, split) for dataset, splits in SPLITS.items() for split in splits]
DATASETS = [key.partition("/")[0] for key in PARTITIONS]


def test_every_partition_of_the_datasets_is_built(undisturbed: dict[str, str]) -> None:
    split_kinds = ("raw", "inventory", "normalized_shards", "prompts", "near_duplicates", "deduplicated")
    for kind in split_kinds:
        assert {f"nemotron/{kind}/{key}" for key in PARTITIONS} < undisturbed.keys()
    assert {f"nemotron/hf_layout/{dataset}" for dataset in DATASETS} < undisturbed.keys()
    assert len(set(undisturbed.values())) == len(undisturbed) == len(split_kinds) * 13 + 6 + 6 + 1


def test_assets_built_by_partition_have_the_same_digests(
    nemotron_hub: LoopbackHub, recipe: NemotronRecipe, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    (recipes / "nemotron_v1.yaml").write_text(yaml.safe_dump(recipe.content()))
    run = Materialized(tmp_path, nemotron_hub.endpoint)
    science = ("nemotron-science-v1/MCQ", "nemotron-science-v1/RQA")
    steps = ["raw", "inventory", "normalized_shards", "prompts", "near_duplicates", "deduplicated"]

    first = run("nemotron_v1", *steps, partition=science[0])
    with pytest.raises(
        dg.Failure, match=f"inputs are missing or stale: nemotron/normalized_shards/{science[1]}; materialize"
    ):
        run("nemotron_v1", "hf_layout", partition="nemotron-science-v1")
    run("nemotron_v1", *steps, partition=science[1])
    run("nemotron_v1", "hf_layout", "candidate_pools", partition="nemotron-science-v1")

    checks = {check.check_name: check for check in first.get_asset_check_evaluations()}
    assert all(check.passed for check in checks.values())
    assert checks["texts_parse"].description == f"{science[0]}: 3 texts"
    assert checks["tokens_round_trip"].description == f"{science[0]}: checked 1 of 3 rows"
    built = [target for target in recipe.targets() if "nemotron-science-v1" in (target.partition or "")]
    assert len(built) == 2 * len(steps) + 2
    for target in built:
        assert open_artifact(tmp_path / target.folder).manifest.digest == undisturbed[target.role]
    folder = ["nemotron", "nemotron_v1"]
    [layout] = [asset for asset in run.definitions.assets or [] if asset.key.path == [*folder, "hf_layout"]]
    mapping = layout.get_partition_mapping_for_dep(dg.AssetKey([*folder, "normalized_shards"]))
    assert mapping == dg.StaticPartitionMapping({key: [key.partition("/")[0]] for key in PARTITIONS})


def test_build_from_the_cache_equals_that_from_the_hub(
    recipe: NemotronRecipe, cache: Path, undisturbed: dict[str, str], tmp_path: Path
) -> None:
    science = recipe.model_copy(update={"datasets": recipe.datasets[2:3]})

    digests = build(science, tmp_path, offline(cache), RunSettings())

    science_digests = {role: digest for role, digest in digests.items() if "nemotron-science-v1" in role}
    assert len(science_digests) == 14
    assert science_digests.items() <= undisturbed.items()


def test_plan_counts_the_bytes_to_download(
    nemotron_hub: LoopbackHub, recipe: NemotronRecipe, cache: Path, tmp_path: Path, real: bool
) -> None:
    def missing_bytes(hub: HubFiles) -> int:
        run = Run(tmp_path, RunSettings(), hub)
        return plan_recipe(artifact_statuses(tmp_path, recipe.targets()), run).bytes_to_fetch

    sizes = [len(render_split(section.dataset, split, real)) for section, split in recipe.all_splits()]
    assert missing_bytes(HubFiles(tmp_path / "cache", nemotron_hub.endpoint)) == sum(sizes)
    assert missing_bytes(offline(cache)) == 0


CARD = """---
configs:
- config_name: en
  data_files: en/*.jsonl
- config_name: default
  data_files: [{split: test, path: test.jsonl}]
---
"""


@pytest.mark.parametrize(("configured", "subsets"), [(None, ["en", "default"]), ("mine", ["mine", "mine"])])
def test_subset_is_the_config_or_the_recipes(configured: str | None, subsets: list[str], tmp_path: Path) -> None:
    row = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
    for path in ("chats/en/a.jsonl", "chats/test.jsonl"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(row) + "\n")
    (tmp_path / "chats" / "README.md").write_text(CARD)
    section = {"dataset": "chats", "path": str(tmp_path / "chats"), "splits": ["train", "test"], "subset": configured}
    rows = yaml.safe_load(SHIPPED.read_text())["rows"]
    content = {"system": "nemotron", "name": "chats", "rows": rows, "datasets": [section | {"domain": "math"}]}

    recipe = NemotronRecipe.from_mapping(content, "the test")
    build(recipe, tmp_path / "out", offline(tmp_path / "cache"), RunSettings())

    folder = tmp_path / "out" / "nemotron" / "chats" / "normalized_shards" / "chats"
    subset_columns = [pq.read_table(folder / split / "data")["subset"].to_pylist() for split in ("train", "test")]
    assert subset_columns == [[subset] for subset in subsets]

"""Versions of a recipe as partitions of one asset.

They are reported once and in order, and built one by one.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from materialized import NOWHERE, QUIET, resources, run_job
from stage2_build import CODE, PAGES, WEB, recipe_with, texts, without_languages, write_datasets

from pipeline_assets.code_location import build_definitions
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.events import AssetView, materialization
from pipeline_assets.sealed_sensor import report_sealed_artifacts
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.versions import asset_key

pytest.importorskip("sentencepiece", reason="needs the extra `tokenizers`")
DATES = ("20261102", "20261109", "20261116")
MONDAYS = [f"{date[:4]}-{date[4:6]}-{date[6:]}T05:00:00+00:00" for date in DATES]
SHARDS, TOKENIZER, INVENTORY = (
    dg.AssetKey(["stage2", "small", "versions", name]) for name in ("token_shards", "tokenizer", "inventory")
)


@dataclass(frozen=True)
class Weeks:
    """A data root after three weeks, its runs, and its definitions."""

    root: Path
    definitions: dg.Definitions
    instance: dg.DagsterInstance
    runs: Sequence[dg.ExecuteInProcessResult]


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Weeks]:
    folder = tmp_path_factory.mktemp("weeks")
    root, hub_folder = folder / "data", folder / "hub"
    write_datasets(hub_folder, documents=12)

    def change(content: dict[str, Any]) -> None:
        without_languages(content)
        content["tokenizer"]["vocab_size"] = 120

    recipe_with(root, dict.fromkeys((WEB, PAGES, CODE), UNPINNED), change)
    schedule = {"name": "weekly", "recipe": "small", "cron": "0 5 * * 1", "action": "repin", "period": "week"}
    (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": [schedule]}))
    definitions, runs = build_definitions(root), []
    with dg.DagsterInstance.ephemeral() as instance:
        for number, due in enumerate(MONDAYS):
            with open(hub_folder / "datasets" / WEB / "en" / "part-0.jsonl", "a") as file:
                file.write(json.dumps({"text": texts(50 + number, 1)[0], "id": f"new-{number}"}) + "\n")
            with LoopbackHub(hub_folder) as hub:
                runs.append(run_job(definitions.resolve_job_def("weekly__repin"), instance, hub.endpoint, due))
        yield Weeks(root, build_definitions(root), instance, runs)


def partitions_with_events(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str | None]:
    """Return the partition of each materialization, oldest first; twice if it was reported twice."""
    return [record.partition_key for record in reversed(instance.fetch_materializations(key, limit=1000).records)]


def version_keys(definitions: dg.Definitions) -> list[dg.AssetKey]:
    graph = definitions.resolve_asset_graph()
    return [key for key in graph.get_all_asset_keys() if key.path[:3] == ["stage2", "small", "versions"]]


def test_the_run_of_a_week_has_the_materializations_and_checks_of_its_version(weeks: Weeks) -> None:
    for date, run in zip(DATES, weeks.runs, strict=True):
        assert run.success
        targets = SYSTEMS.read_recipe(weeks.root / "recipes" / f"small_{date}.yaml").targets()
        made = [event.materialization for event in run.get_asset_materialization_events()]
        assert len(made) == len(targets) and all("versions" in event.asset_key.path for event in made)
        [tokenizer] = [event for event in made if event.asset_key == TOKENIZER]
        assert tokenizer.partition == date
        of_shards = [event.partition for event in made if event.asset_key == SHARDS]
        assert sorted(map(str, of_shards)) == [f"{source}|{date}" for source in ("code", "pages", "web")]
        checks = run.get_asset_check_evaluations()
        assert {(SHARDS, "files_match_manifest"), (INVENTORY, "files_match_manifest")} <= {
            (check.asset_key, check.check_name) for check in checks
        }
        assert all(check.passed or check.severity == dg.AssetCheckSeverity.WARN for check in checks)


def test_each_asset_has_a_point_for_each_week_and_the_newest_week_comes_last(weeks: Weeks) -> None:
    report_sealed_artifacts(SYSTEMS.load_recipes(weeks.root)[0], weeks.root, weeks.instance)

    assert len(version_keys(weeks.definitions)) == 8
    assert partitions_with_events(weeks.instance, TOKENIZER) == list(DATES)
    for source in ("code", "pages", "web"):
        of_source = [one for one in partitions_with_events(weeks.instance, SHARDS) if str(one).startswith(source)]
        assert of_source == [f"{source}|{date}" for date in DATES]
    keys = weeks.definitions.resolve_asset_graph().get(SHARDS).partitions_def
    assert keys is not None
    assert len(keys.get_partition_keys(dynamic_partitions_store=weeks.instance)) == 9


def test_a_version_has_no_assets_of_its_own_and_keeps_folders_and_job(weeks: Weeks) -> None:
    keys = weeks.definitions.resolve_asset_graph().get_all_asset_keys()

    assert not [key for key in keys if any(date in part for part in key.path for date in DATES)]
    assert weeks.definitions.resolve_job_def(f"small_{DATES[0]}")
    assert (weeks.root / "stage2" / f"small_{DATES[0]}" / "shards" / "web" / "manifest.json").exists()


def test_an_old_home_starts_and_gets_each_old_version_once(weeks: Weeks) -> None:
    recipes = SYSTEMS.load_recipes(weeks.root)[0]
    with dg.DagsterInstance.ephemeral() as instance:
        old = []
        for date in DATES:  # as the program reported them before versions were partitions
            for target in SYSTEMS.read_recipe(weeks.root / "recipes" / f"small_{date}.yaml").targets():
                shown = AssetView(asset_key(target.kind.name, f"small_{date}"), target.partition, "1")
                artifact = open_artifact(weeks.root / target.folder)
                instance.report_runless_asset_event(materialization(artifact, shown, instance))
                old.append(shown.key)

        for _ in range(2):
            report_sealed_artifacts(recipes, weeks.root, instance)

        assert partitions_with_events(instance, TOKENIZER) == list(DATES)
        assert len(partitions_with_events(instance, SHARDS)) == 9
        for key in old:
            assert instance.get_latest_materialization_event(key) is not None
        [sensor] = [one for one in weeks.definitions.sensors or [] if one.name == "sealed_artifacts"]
        with dg.build_sensor_context(instance=instance, cursor="of another program") as context:
            assert sensor.evaluate_tick(context).skip_message == "events reported: 0"


def test_all_weeks_are_fresh_and_checks_are_those_of_the_newest(weeks: Weeks) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        report_sealed_artifacts(SYSTEMS.load_recipes(weeks.root)[0], weeks.root, instance)
        graph = weeks.definitions.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        states = {
            (key, partition): resolver.get_status(key, partition).value
            for key in version_keys(weeks.definitions)
            for partition in graph.get(key).partitions_def.get_partition_keys(dynamic_partitions_store=instance)  # type: ignore[union-attr]
        }
        [record] = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(TOKENIZER, "files_match_manifest"), limit=1
        )

    assert set(states.values()) == {"FRESH"}
    evaluation = record.evaluation
    assert evaluation is not None and evaluation.passed
    assert DATES[-1] in str(evaluation.description) and DATES[0] not in str(evaluation.description)


def test_a_week_is_built_from_the_ui_and_no_other_with_it(weeks: Weeks, tmp_path: Path) -> None:
    root = Path(shutil.copytree(weeks.root, tmp_path / "data"))
    target = SYSTEMS.read_recipe(root / "recipes" / f"small_{DATES[1]}.yaml").target("stage2/token_shards", "web")
    digest = open_artifact(root / target.folder).manifest.digest
    shutil.rmtree(root / target.folder)
    assets = [one for one in build_definitions(root).assets or [] if isinstance(one, dg.AssetsDefinition)]
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("small/versions", list(DATES))
        result = dg.materialize(
            assets,
            selection=[SHARDS],
            partition_key=dg.MultiPartitionKey({"source": "web", "version": DATES[1]}),
            instance=instance,
            resources=resources(NOWHERE),
            run_config=QUIET,
        )

    assert result.success
    [event] = result.get_asset_materialization_events()
    assert str(event.partition) == f"web|{DATES[1]}"
    assert open_artifact(root / target.folder).manifest.digest == digest


def test_a_recipe_that_ends_in_a_date_and_belongs_to_none_keeps_its_assets(notes_root: Path) -> None:
    path = notes_root / "recipes" / "mixed.yaml"
    text = path.read_text().replace("name: mixed", "name: alone_20260101")
    (notes_root / "recipes" / "alone_20260101.yaml").write_text(text)

    keys = build_definitions(notes_root).resolve_asset_graph().get_all_asset_keys()

    assert dg.AssetKey(["stage_a", "alone_20260101", "filtered"]) in keys

"""Versions of a recipe are partitions of one asset.

They are reported once and in order, and built one by one.
"""

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
from stage2_build import CODE, PAGES, WEB, append_rows, recipe_with, texts, without_languages, write_datasets

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
    """Data root after three weeks, its runs and definitions."""

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
            append_rows(hub_folder, texts(50 + number, 1), number)
            with LoopbackHub(hub_folder) as hub:
                runs.append(run_job(definitions.resolve_job_def("weekly__repin"), instance, hub.endpoint, due))
        yield Weeks(root, build_definitions(root), instance, runs)


def list_partitions(instance: dg.DagsterInstance, key: dg.AssetKey) -> list[str | None]:
    """List the partition of each materialization, oldest first, with repetitions."""
    return [record.partition_key for record in reversed(instance.fetch_materializations(key, limit=1000).records)]


def list_version_keys(definitions: dg.Definitions) -> list[dg.AssetKey]:
    graph = definitions.resolve_asset_graph()
    return [key for key in graph.get_all_asset_keys() if key.path[:3] == ["stage2", "small", "versions"]]


def list_assets(definitions: dg.Definitions) -> list[dg.AssetsDefinition]:
    return [asset for asset in definitions.assets or [] if isinstance(asset, dg.AssetsDefinition)]


def test_a_weekly_run_has_the_materializations_and_checks_of_its_version(weeks: Weeks) -> None:
    for date, run in zip(DATES, weeks.runs, strict=True):
        assert run.success
        targets = SYSTEMS.read_recipe(weeks.root / "recipes" / f"small_{date}.yaml").targets()
        events = [event.materialization for event in run.get_asset_materialization_events()]
        assert len(events) == len(targets) and all("versions" in event.asset_key.path for event in events)
        [tokenizer] = [event for event in events if event.asset_key == TOKENIZER]
        assert tokenizer.partition == date
        shard_partitions = [event.partition for event in events if event.asset_key == SHARDS]
        assert sorted(map(str, shard_partitions)) == [f"{source}|{date}" for source in ("code", "pages", "web")]
        checks = run.get_asset_check_evaluations()
        assert {(SHARDS, "files_match_manifest"), (INVENTORY, "files_match_manifest")} <= {
            (check.asset_key, check.check_name) for check in checks
        }
        assert all(check.passed or check.severity == dg.AssetCheckSeverity.WARN for check in checks)


def test_each_asset_has_an_event_for_each_week_in_order(weeks: Weeks) -> None:
    report_sealed_artifacts(SYSTEMS.load_recipes(weeks.root)[0], weeks.root, weeks.instance)

    keys = weeks.definitions.resolve_asset_graph().get_all_asset_keys()
    assert not [key for key in keys if any(date in part for part in key.path for date in DATES)]
    assert weeks.definitions.resolve_job_def(f"small_{DATES[0]}")
    assert (weeks.root / "stage2" / f"small_{DATES[0]}" / "shards" / "web" / "manifest.json").exists()
    assert len(list_version_keys(weeks.definitions)) == 8
    assert list_partitions(weeks.instance, TOKENIZER) == list(DATES)
    for source in ("code", "pages", "web"):
        partitions = [key for key in list_partitions(weeks.instance, SHARDS) if str(key).startswith(source)]
        assert partitions == [f"{source}|{date}" for date in DATES]
    partitions_def = weeks.definitions.resolve_asset_graph().get(SHARDS).partitions_def
    assert partitions_def is not None
    assert len(partitions_def.get_partition_keys(dynamic_partitions_store=weeks.instance)) == 9


@pytest.mark.slow
def test_an_instance_from_before_partitions_gets_each_version_once(weeks: Weeks) -> None:
    recipes = SYSTEMS.load_recipes(weeks.root)[0]
    with dg.DagsterInstance.ephemeral() as instance:
        old_keys = []
        for date in DATES:  # reported by the program before versions were partitions
            for target in SYSTEMS.read_recipe(weeks.root / "recipes" / f"small_{date}.yaml").targets():
                view = AssetView(asset_key(target.kind.name, f"small_{date}"), target.partition, "1")
                artifact = open_artifact(weeks.root / target.folder)
                instance.report_runless_asset_event(materialization(artifact, view, instance))
                old_keys.append(view.key)

        for _ in range(2):
            report_sealed_artifacts(recipes, weeks.root, instance)

        assert list_partitions(instance, TOKENIZER) == list(DATES)
        assert len(list_partitions(instance, SHARDS)) == 9
        for key in old_keys:
            assert instance.get_latest_materialization_event(key) is not None
        [sensor] = [sensor for sensor in weeks.definitions.sensors or [] if sensor.name == "sealed_artifacts"]
        with dg.build_sensor_context(instance=instance, cursor="of another program") as context:
            assert sensor.evaluate_tick(context).skip_message == "events reported: 0"


def test_all_weeks_are_fresh_and_checks_belong_to_the_newest(weeks: Weeks) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        report_sealed_artifacts(SYSTEMS.load_recipes(weeks.root)[0], weeks.root, instance)
        graph = weeks.definitions.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
        states = {
            (key, partition): resolver.get_status(key, partition).value
            for key in list_version_keys(weeks.definitions)
            for partition in graph.get(key).partitions_def.get_partition_keys(dynamic_partitions_store=instance)  # type: ignore[union-attr]
        }
        [record] = instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(TOKENIZER, "files_match_manifest"), limit=1
        )

    assert set(states.values()) == {"FRESH"}
    evaluation = record.evaluation
    assert evaluation is not None and evaluation.passed
    assert DATES[-1] in str(evaluation.description) and DATES[0] not in str(evaluation.description)


def test_the_ui_builds_a_single_week(weeks: Weeks, tmp_path: Path) -> None:
    root = Path(shutil.copytree(weeks.root, tmp_path / "data"))
    target = SYSTEMS.read_recipe(root / "recipes" / f"small_{DATES[1]}.yaml").target("stage2/token_shards", "web")
    digest = open_artifact(root / target.folder).manifest.digest
    shutil.rmtree(root / target.folder)
    assets = list_assets(build_definitions(root))
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


def test_a_run_without_a_version_asks_for_one(weeks: Weeks) -> None:
    assets = list_assets(weeks.definitions)

    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.Failure) as failure:
        dg.materialize(assets, selection=[TOKENIZER], instance=instance, resources=resources(NOWHERE), run_config=QUIET)

    assert failure.value.description == f"recipe small: no version is chosen; choose a partition, such as {DATES[-1]}"


def test_a_dated_recipe_without_base_recipe_has_its_own_assets(notes_root: Path) -> None:
    path = notes_root / "recipes" / "mixed.yaml"
    text = path.read_text().replace("name: mixed", "name: alone_20260101")
    (notes_root / "recipes" / "alone_20260101.yaml").write_text(text)

    keys = build_definitions(notes_root).resolve_asset_graph().get_all_asset_keys()

    assert dg.AssetKey(["stage_a", "alone_20260101", "filtered"]) in keys

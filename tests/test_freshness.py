"""Freshness: what a schedule was to keep as its recipe asks, and isn't, is overdue, partition for partition."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from materialized import run_job

from pipeline_assets.code_location import build_definitions
from pipeline_assets.freshness import FreshnessChecks
from pipeline_assets.schedules import read_schedules
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.systems.registry import SYSTEMS

FILTERED = dg.AssetKey(["stage_a", "mixed", "filtered"])
NOW = datetime.now(UTC)


@pytest.fixture
def root(notes_root: Path) -> Path:
    """The data root with the notes, which are run each night; built, and all of it a month old."""
    schedule = {"name": "nightly", "recipe": "mixed", "cron": "30 2 * * *", "action": "run"}
    (notes_root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": [schedule]}))
    age(notes_root)
    return notes_root


def age(root: Path) -> None:
    month = (NOW - timedelta(days=30)).timestamp()
    for path in [*root.rglob("manifest.json"), root / "recipes" / "mixed.yaml"]:
        os.utime(path, (month, month))


def edit(root: Path) -> None:
    path = root / "recipes" / "mixed.yaml"
    recipe = yaml.safe_load(path.read_text())
    recipe["sources"][0]["filters"] = {"length": {"min_characters": 1}}
    path.write_text(yaml.safe_dump(recipe))


def said(root: Path, instance: dg.DagsterInstance, days: int = 0) -> dict[str | None, CheckResult]:
    [section] = [one for one in read_schedules(root)[0] if one.name == "nightly"]
    fresh = FreshnessChecks(section, SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml"), root)
    by_asset = {spec.asset_key: results for spec, results in fresh.results(instance, NOW + timedelta(days=days))}
    return by_asset[FILTERED]


def run(root: Path, instance: dg.DagsterInstance) -> bool:
    return run_job(build_definitions(root).resolve_job_def("mixed"), instance, replace=True).success


def test_what_is_as_the_recipe_asks_is_fresh_however_old(root: Path, instance: dg.DagsterInstance) -> None:
    assert {one.because for one in said(root, instance, days=300).values()} == {"up to date"}


def test_an_edit_is_overdue_when_the_clock_struck_twice_and_fresh_when_a_run_has_built_it(
    root: Path, instance: dg.DagsterInstance
) -> None:
    edit(root)

    at_once, later = said(root, instance)["notes"], said(root, instance, days=3)["notes"]
    ran = run(root, instance)
    after = said(root, instance, days=3)["notes"]

    assert at_once.passed and at_once.because.startswith("stale since the last run (the recipe changed")
    assert not later.passed and later.because.startswith("overdue since ")
    assert ran and after.passed


def test_a_version_of_the_time_of_the_last_but_one_tick_is_in_time(root: Path, instance: dg.DagsterInstance) -> None:
    edit(root)
    later = NOW + timedelta(days=3)
    tick = later.replace(hour=2, minute=30, second=0, microsecond=0)
    last_but_one = tick - timedelta(days=1 if tick <= later else 2)

    passed = []
    for seconds in (0, -1):
        changed = last_but_one.timestamp() + seconds
        for path in (*root.rglob("manifest.json"), root / "recipes" / "mixed.yaml"):
            os.utime(path, (changed, changed))
        passed.append(said(root, instance, days=3)["notes"].passed)

    assert passed == [True, False]


@pytest.mark.parametrize("years", [10, 100_000])
def test_times_of_a_clock_that_was_ahead_do_not_count(years: int, root: Path, instance: dg.DagsterInstance) -> None:
    edit(root)
    ahead = NOW.timestamp() + years * 365 * 86_400
    for path in (*root.rglob("manifest.json"), root / "recipes" / "mixed.yaml"):
        os.utime(path, (ahead, ahead))

    assert said(root, instance, days=3)["notes"].because.startswith("overdue since ")


def test_what_changed_after_a_run_that_built_nothing_waits_a_tick(root: Path, instance: dg.DagsterInstance) -> None:
    ran = run(root, instance)
    edit(root)
    age(root)

    assert ran
    assert said(root, instance)["notes"].passed
    assert not said(root, instance, days=3)["notes"].passed


def test_the_sensor_reports_what_it_says_of_every_asset_once(root: Path, instance: dg.DagsterInstance) -> None:
    edit(root)
    age(root)
    definitions = build_definitions(root)
    [sensor] = [one for one in definitions.sensors or [] if one.name == "freshness"]

    with dg.build_sensor_context(instance=instance) as context:
        first = sensor.evaluate_tick(context)
    with dg.build_sensor_context(instance=instance, cursor=first.cursor) as context:
        second = sensor.evaluate_tick(context)

    graph = definitions.resolve_asset_graph()
    told = {event.asset_key: event for event in first.asset_events if isinstance(event, dg.AssetCheckEvaluation)}
    assert {event.asset_check_key for event in told.values()} <= graph.asset_check_keys
    assert set(told) == {key for key in graph.get_all_asset_keys() if key.path[1] == "mixed"}
    assert (told[FILTERED].passed, told[FILTERED].severity) == (False, dg.AssetCheckSeverity.WARN)
    assert told[FILTERED].description is not None and told[FILTERED].description.startswith("notes: overdue since ")
    assert second.asset_events == []


@pytest.mark.parametrize("text", [None, "name: ["])
def test_a_recipe_that_was_removed_or_broken_since_the_last_reload_is_still_checked(
    text: str | None, root: Path, instance: dg.DagsterInstance
) -> None:
    [sensor] = [one for one in build_definitions(root).sensors or [] if one.name == "freshness"]
    path = root / "recipes" / "mixed.yaml"
    path.unlink() if text is None else path.write_text(text)

    with dg.build_sensor_context(instance=instance) as context:
        events = sensor.evaluate_tick(context).asset_events

    told = {event.asset_key: event for event in events if isinstance(event, dg.AssetCheckEvaluation)}
    assert told[FILTERED].description == "notes: up to date"


def test_the_ui_asks_it_too(root: Path, instance: dg.DagsterInstance) -> None:
    checks = [one for one in build_definitions(root).asset_checks or [] if isinstance(one, dg.AssetChecksDefinition)]

    result = dg.materialize(checks, instance=instance, selection=dg.AssetSelection.checks(*checks))

    assert {evaluation.passed for evaluation in result.get_asset_check_evaluations()} == {True}


def test_a_backfill_of_some_assets_of_a_scheduled_recipe_has_a_job(root: Path) -> None:
    definitions = build_definitions(root)
    raw = dg.AssetKey(["stage_a", "mixed", "raw"])

    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={raw})

    assert job.asset_layer.executable_asset_keys == {raw}
    assert {check.asset_key for check in job.asset_layer.asset_graph.asset_check_keys} >= {raw}


def test_a_run_that_builds_nothing_draws_no_point_in_the_plots(root: Path, instance: dg.DagsterInstance) -> None:
    points = []
    for _ in range(2):
        assert run(root, instance)
        points.append(len(instance.fetch_materializations(FILTERED, limit=9).records))

    assert points == [1, 1]

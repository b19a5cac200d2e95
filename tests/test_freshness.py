"""Freshness checks: a partition that its schedule left stale is overdue."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest
import yaml
from materialized import run_job
from schedule_files import NOTES, write_schedules

from pipeline_assets.code_location import build_definitions
from pipeline_assets.freshness import FreshnessChecks
from pipeline_assets.schedules import read_schedules
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.systems.registry import SYSTEMS

FILTERED = dg.AssetKey(["stage_a", "mixed", "filtered"])
NOW = datetime.now(UTC)
MONTH_AGO = (NOW - timedelta(days=30)).timestamp()


@pytest.fixture
def root(notes_root: Path) -> Path:
    """Return a data root with a nightly run of the notes, all built a month ago."""
    write_schedules(notes_root, NOTES | {"timezone": "UTC"})
    set_times(notes_root, MONTH_AGO)
    return notes_root


def set_times(root: Path, seconds: float) -> None:
    """Set the times of the artifacts and of the recipe."""
    for path in [*root.rglob("manifest.json"), root / "recipes" / "mixed.yaml"]:
        os.utime(path, (seconds, seconds))


def edit(root: Path) -> None:
    path = root / "recipes" / "mixed.yaml"
    recipe = yaml.safe_load(path.read_text())
    recipe["sources"][0]["filters"] = {"length": {"min_characters": 1}}
    path.write_text(yaml.safe_dump(recipe))


def read_checks(root: Path, instance: dg.DagsterInstance, days: int = 0) -> dict[str | None, CheckResult]:
    [section] = [schedule for schedule in read_schedules(root)[0] if schedule.name == "nightly"]
    fresh = FreshnessChecks(section, SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml"), root)
    by_asset = {spec.asset_key: results for spec, results in fresh.results(instance, NOW + timedelta(days=days))}
    return by_asset[FILTERED]


def run(root: Path, instance: dg.DagsterInstance) -> bool:
    return run_job(build_definitions(root).resolve_job_def("mixed"), instance, replace=True).success


def test_up_to_date_assets_are_fresh_at_any_age(root: Path, instance: dg.DagsterInstance) -> None:
    assert {result.because for result in read_checks(root, instance, days=300).values()} == {"up to date"}


def test_an_edited_recipe_is_overdue_after_two_ticks_and_fresh_after_a_run(
    root: Path, instance: dg.DagsterInstance
) -> None:
    edit(root)

    immediately, later = read_checks(root, instance)["notes"], read_checks(root, instance, days=3)["notes"]
    ran = run(root, instance)
    after = read_checks(root, instance, days=3)["notes"]

    assert immediately.passed and immediately.because.startswith("stale since the last run (the recipe changed")
    assert not later.passed and later.because.startswith("overdue since ")
    assert ran and after.passed


def test_a_version_from_the_penultimate_tick_is_in_time(root: Path, instance: dg.DagsterInstance) -> None:
    edit(root)
    later = NOW + timedelta(days=3)
    tick = later.replace(hour=2, minute=30, second=0, microsecond=0)
    penultimate_tick = tick - timedelta(days=1 if tick <= later else 2)

    passed = []
    for seconds in (0, -1):
        set_times(root, penultimate_tick.timestamp() + seconds)
        passed.append(read_checks(root, instance, days=3)["notes"].passed)

    assert passed == [True, False]


@pytest.mark.parametrize("years", [10, 100_000])
def test_times_in_the_future_are_ignored(years: int, root: Path, instance: dg.DagsterInstance) -> None:
    edit(root)
    set_times(root, NOW.timestamp() + years * 365 * 86_400)

    assert read_checks(root, instance, days=3)["notes"].because.startswith("overdue since ")


def test_an_edit_after_a_run_without_builds_waits_a_tick(root: Path, instance: dg.DagsterInstance) -> None:
    ran = run(root, instance)
    edit(root)
    set_times(root, MONTH_AGO)

    assert ran
    assert read_checks(root, instance)["notes"].passed
    assert not read_checks(root, instance, days=3)["notes"].passed


def test_the_sensor_reports_each_asset_once(root: Path, instance: dg.DagsterInstance) -> None:
    edit(root)
    set_times(root, MONTH_AGO)
    definitions = build_definitions(root)
    [sensor] = [sensor for sensor in definitions.sensors or [] if sensor.name == "freshness"]

    with dg.build_sensor_context(instance=instance) as context:
        first = sensor.evaluate_tick(context)
    with dg.build_sensor_context(instance=instance, cursor=first.cursor) as context:
        second = sensor.evaluate_tick(context)
    with dg.build_sensor_context(instance=instance, cursor="edited in the UI") as context:
        third = sensor.evaluate_tick(context)

    graph = definitions.resolve_asset_graph()
    checks = {event.asset_key: event for event in first.asset_events if isinstance(event, dg.AssetCheckEvaluation)}
    assert {event.asset_check_key for event in checks.values()} <= graph.asset_check_keys
    assert set(checks) == {key for key in graph.get_all_asset_keys() if key.path[1] == "mixed"}
    assert (checks[FILTERED].passed, checks[FILTERED].severity) == (False, dg.AssetCheckSeverity.WARN)
    assert checks[FILTERED].description is not None and checks[FILTERED].description.startswith("notes: overdue since ")
    assert second.asset_events == []
    assert third.asset_events == first.asset_events


@pytest.mark.parametrize("text", [None, "name: ["])
def test_a_recipe_removed_or_broken_since_the_last_reload_is_still_checked(
    text: str | None, root: Path, instance: dg.DagsterInstance
) -> None:
    [sensor] = [sensor for sensor in build_definitions(root).sensors or [] if sensor.name == "freshness"]
    path = root / "recipes" / "mixed.yaml"
    path.unlink() if text is None else path.write_text(text)

    with dg.build_sensor_context(instance=instance) as context:
        events = sensor.evaluate_tick(context).asset_events

    checks = {event.asset_key: event for event in events if isinstance(event, dg.AssetCheckEvaluation)}
    assert checks[FILTERED].description == "notes: up to date"


def test_the_ui_runs_the_checks_too(root: Path, instance: dg.DagsterInstance) -> None:
    checks = [item for item in build_definitions(root).asset_checks or [] if isinstance(item, dg.AssetChecksDefinition)]

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

"""Schedules of recipes, with their ticks, actions and errors."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from materialized import run_job
from schedule_files import NOTES, write_schedules

from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.code_location import build_definitions
from pipeline_assets.schedules import SENSOR_NAMES, read_schedules
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS


def test_shipped_schedules_are_off_and_name_shipped_recipes(tmp_path: Path) -> None:
    sections, wrong = read_schedules(tmp_path)

    schedules = build_definitions(tmp_path).schedules or []
    assert wrong == []
    assert [schedule.name for schedule in schedules] == [section.name for section in sections]
    assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.STOPPED}
    recipes = {recipe.name: recipe.system for recipe in SYSTEMS.load_recipes(tmp_path)[0]}
    systems = {recipes[section.recipe] for section in sections}
    assert systems == {"healing", "nemotron", "parallel_text", "stage2", "stage_a"}


def test_a_tick_requests_one_run_of_the_recipes_job(notes_root: Path, instance: dg.DagsterInstance) -> None:
    write_schedules(notes_root, NOTES)
    [schedule] = [entry for entry in build_definitions(notes_root).schedules or [] if entry.name == "nightly"]
    assert isinstance(schedule, dg.ScheduleDefinition)

    with dg.build_schedule_context(instance, scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC)) as context:
        data = schedule.evaluate_tick(context)

    [request] = data.run_requests or []
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 2 * * *", "Europe/Berlin")
    assert schedule.job.name == "mixed"
    assert request.tags["corpusmill/recipe"] == "mixed"


def test_a_schedule_with_replace_rebuilds_changed_sources(notes_root: Path, instance: dg.DagsterInstance) -> None:
    recipe = SYSTEMS.read_recipe(notes_root / "recipes" / "mixed.yaml")
    assert all(outcome.failure is None for outcome in run_targets(recipe.targets(), Run(notes_root, RunSettings())))
    write_schedules(notes_root, NOTES, {**NOTES, "name": "replacing", "replace": True})
    path = notes_root / "recipes" / "mixed.yaml"
    path.write_text(path.read_text().replace("min_words: 5", "min_words: 6"))
    definitions = build_definitions(notes_root)

    def tick(name: str) -> bool:
        [schedule] = [entry for entry in definitions.schedules or [] if entry.name == name]
        assert isinstance(schedule, dg.ScheduleDefinition)
        with dg.build_schedule_context(instance, scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC)) as context:
            [request] = schedule.evaluate_tick(context).run_requests or []
        job = definitions.resolve_job_def(schedule.job_name)
        return job.execute_in_process(request.run_config, instance, raise_on_error=False).success

    assert not tick("nightly")
    assert tick("replacing")
    assert tick("nightly")


def test_a_tick_of_repin_passes_keep_versions(notes_root: Path, instance: dg.DagsterInstance) -> None:
    write_schedules(notes_root, {**NOTES, "action": "repin", "keep_versions": 8})
    [schedule] = [entry for entry in build_definitions(notes_root).schedules or [] if entry.name == "nightly"]
    assert isinstance(schedule, dg.ScheduleDefinition)

    with dg.build_schedule_context(instance, scheduled_execution_time=datetime(2026, 1, 1, tzinfo=UTC)) as context:
        [request] = schedule.evaluate_tick(context).run_requests or []

    assert request.run_config == {"resources": {"store": {"config": {"keep_versions": 8}}}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"action": "verify", "replace": True}, "`schedules.0`: `replace` requires the action run, got verify"),
        ({"keep_versions": 8}, "`schedules.0`: `keep_versions` requires the action repin, got run"),
        ({"action": "repin", "keep_versions": 0}, "`schedules.0.keep_versions` must be >= 1, got 0"),
    ],
)
def test_a_key_of_another_action_is_refused(keys: dict[str, object], message: str, notes_root: Path) -> None:
    write_schedules(notes_root, {**NOTES, **keys})

    assert [error.what for error in read_schedules(notes_root)[1]] == [message]


def test_a_wrong_schedule_is_reported_and_others_are_kept(notes_root: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_schedules(
        notes_root,
        NOTES,
        NOTES | {"name": "of-nothing", "recipe": "nothing"},
        NOTES | {"name": "never", "cron": "61 * * * *"},
        *(NOTES | {"name": sensor} for sensor in sorted(SENSOR_NAMES)),
        NOTES | {"name": "no", "action": "verify"},
    )
    recipe_path("mixed", notes_root).with_name("no__verify.yaml").write_text(
        recipe_path("mixed", notes_root).read_text().replace("name: mixed", "name: no__verify")
    )

    definitions = build_definitions(notes_root)
    names = [schedule.name for schedule in definitions.schedules or []]

    repository = definitions.get_repository_def()
    assert "nightly" in names and not {"of-nothing", "never", "no", *SENSOR_NAMES} & set(names)
    assert {sensor.name for sensor in repository.sensor_defs} == SENSOR_NAMES
    log = " ".join(record.getMessage() for record in caplog.records)
    assert "schedule of-nothing: recipe nothing not found" in log
    assert "schedule never" in log
    for name in ("no", *SENSOR_NAMES):
        assert f"schedule {name}: a sensor or the job of a recipe has this name" in log
    shown = repository.asset_graph.get(dg.AssetKey(["recipes_left_out", "schedules.yaml"])).description or ""
    assert "schedule of-nothing: recipe nothing not found" in shown and "schedule never" in shown


@pytest.mark.parametrize(
    ("action", "jobs", "cause"),
    [
        ("run", ["renamed", "renamed"], "schedules.yaml: schedule nightly: recipe renamed not found; name one of"),
        ("verify", ["nightly__verify", "again__verify"], "renamed: recipe not found; "),
        ("repin", ["nightly__repin", "again__repin"], "renamed: recipe not found; "),
    ],
)
def test_runs_of_schedules_whose_recipe_is_missing_fail(
    action: str, jobs: list[str], cause: str, notes_root: Path, instance: dg.DagsterInstance
) -> None:
    renamed = NOTES | {"recipe": "renamed", "action": action}
    write_schedules(notes_root, renamed, renamed | {"name": "again"}, NOTES | {"name": "never", "cron": "61 * * * *"})

    definitions = build_definitions(notes_root)

    schedules = [schedule for schedule in definitions.schedules or [] if isinstance(schedule, dg.ScheduleDefinition)]
    assert [schedule.job_name for schedule in schedules if schedule.name in ("nightly", "again")] == jobs
    for job in jobs:
        [failed] = run_job(definitions.resolve_job_def(job), instance).get_step_failure_events()
        failure = failed.step_failure_data.user_failure_data
        assert failure is not None and failure.description is not None
        assert cause in failure.description and "\n" not in failure.description


def test_a_schedule_of_an_invalid_recipe_fails_with_its_error(notes_root: Path, instance: dg.DagsterInstance) -> None:
    write_schedules(
        notes_root,
        NOTES,
        NOTES | {"name": "checked", "action": "verify"},
        NOTES | {"name": "at-head", "action": "repin"},
    )
    path = recipe_path("mixed", notes_root)
    path.write_text(path.read_text() + "dedupe: {}\n")

    definitions = build_definitions(notes_root)

    jobs = [schedule.job for schedule in definitions.schedules or [] if isinstance(schedule, dg.ScheduleDefinition)]
    chosen = [job for job in jobs if job.tags["corpusmill/recipe"] == "mixed"]
    assert len(chosen) == 3
    for job in chosen:
        [failed] = run_job(definitions.resolve_job_def(job.name), instance).get_step_failure_events()
        failure = failed.step_failure_data.user_failure_data
        assert failure is not None and failure.description is not None
        assert "mixed.yaml:" in failure.description and "unknown key `dedupe`" in failure.description


def test_errors_of_a_schedule_file_name_the_key(notes_root: Path) -> None:
    write_schedules(notes_root, NOTES | {"sample": "lots", "action": "verify"})
    rule = "must be a share above 0 and up to 100 %, got 'lots'"
    assert f"`schedules.0.sample` {rule}" in read_schedules(notes_root)[1][0].what

    write_schedules(notes_root, NOTES, NOTES)
    assert "several schedules are called nightly" in read_schedules(notes_root)[1][0].what

    write_schedules(notes_root, NOTES | {"timezone": ""})
    assert "`schedules.0.timezone` must have at least 1 character, got ''" in read_schedules(notes_root)[1][0].what

    write_schedules(notes_root, NOTES | {"cron": "0," * 100_000 + "0 * * * *"})
    assert "`schedules.0.cron` must have at most 200 characters, got" in read_schedules(notes_root)[1][0].what

    (notes_root / "schedules.yaml").write_text("schedules:\n  # - {name: nightly}\n")
    [error] = read_schedules(notes_root)[1]
    assert (error.what, error.fix) == ("`schedules` must be a list, got None", "list its entries")


def test_an_error_in_a_schedule_keeps_the_others(notes_root: Path) -> None:
    weekly = NOTES | {"name": "weekly", "action": "verify"}
    write_schedules(
        notes_root,
        weekly | {"sample": "lots", "zone": "UTC"},
        NOTES,
        NOTES | {"name": "twice"},
        NOTES | {"name": "twice"},
    )

    sections, errors = read_schedules(notes_root)

    assert [section.name for section in sections if section.recipe == "mixed"] == ["nightly"]
    assert [error.what for error in errors] == [
        "`schedules.0.sample` must be a share above 0 and up to 100 %, got 'lots'",
        "unknown key `schedules.0.zone`",
        "several schedules are called twice",
    ]


def test_a_link_to_a_missing_schedule_file_is_an_error(notes_root: Path) -> None:
    (notes_root / "schedules.yaml").symlink_to(notes_root / "gone.yaml")

    [error] = read_schedules(notes_root)[1]

    assert str(error) == f"{notes_root / 'schedules.yaml'}: schedule file not found; correct the path"

"""Schedules of recipes, with their ticks, actions and errors."""

from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
from materialized import QUIET, resources, run_job
from schedule_files import NOTES, failure_text, write_schedules

from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.code_location import build_definitions
from pipeline_assets.compat import AUTOMATION_TAG
from pipeline_assets.schedules import SENSOR_NAMES, read_schedules
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS

AUTOMATED = {AUTOMATION_TAG: "true"}


def list_schedules(definitions: dg.Definitions) -> dict[str, dg.ScheduleDefinition]:
    schedules = definitions.schedules or []
    return {schedule.name: schedule for schedule in schedules if isinstance(schedule, dg.ScheduleDefinition)}


def request_run(schedule: dg.ScheduleDefinition, instance: dg.DagsterInstance) -> dg.RunRequest:
    """Evaluate a tick and return the only run that it requests."""
    due = datetime(2026, 1, 1, tzinfo=UTC)
    with dg.build_schedule_context(instance, scheduled_execution_time=due) as context:
        [request] = schedule.evaluate_tick(context).run_requests or []
    return request


def test_shipped_schedules_are_off_and_name_shipped_recipes(tmp_path: Path) -> None:
    sections, wrong = read_schedules(tmp_path)

    schedules = list_schedules(build_definitions(tmp_path))
    assert wrong == []
    assert [*schedules] == [section.name for section in sections]
    assert {schedule.default_status for schedule in schedules.values()} == {dg.DefaultScheduleStatus.STOPPED}
    recipes = {recipe.name: recipe.system for recipe in SYSTEMS.load_recipes(tmp_path)[0]}
    systems = {recipes[section.recipe] for section in sections}
    assert systems == {"healing", "nemotron", "parallel_text", "stage2", "stage_a"}


def test_a_tick_requests_one_run_of_the_recipes_job(notes_root: Path, instance: dg.DagsterInstance) -> None:
    repin = {"name": "at_head", "action": "repin", "keep_versions": 8}
    write_schedules(notes_root, NOTES, NOTES | repin)
    schedules = list_schedules(build_definitions(notes_root))

    request, repinning = (request_run(schedules[name], instance) for name in ("nightly", "at_head"))

    nightly = schedules["nightly"]
    assert (nightly.cron_schedule, nightly.execution_timezone) == ("30 2 * * *", "Europe/Berlin")
    assert nightly.job.name == "mixed"
    assert request.tags["corpusmill/recipe"] == "mixed"
    assert repinning.run_config == {"resources": {"store": {"config": {"keep_versions": 8}}}}


def test_a_schedule_with_replace_rebuilds_changed_sources(notes_root: Path, instance: dg.DagsterInstance) -> None:
    recipe = SYSTEMS.read_recipe(notes_root / "recipes" / "mixed.yaml")
    assert all(outcome.failure is None for outcome in run_targets(recipe.targets(), Run(notes_root, RunSettings())))
    write_schedules(notes_root, NOTES, {**NOTES, "name": "replacing", "replace": True})
    path = notes_root / "recipes" / "mixed.yaml"
    path.write_text(path.read_text().replace("min_words: 5", "min_words: 6"))
    definitions = build_definitions(notes_root)

    def run_succeeds(name: str) -> bool:
        schedule = list_schedules(definitions)[name]
        job, config = definitions.resolve_job_def(schedule.job_name), request_run(schedule, instance).run_config
        return job.execute_in_process(config, instance, raise_on_error=False).success

    assert [run_succeeds(name) for name in ("nightly", "replacing", "nightly")] == [False, True, True]


@pytest.mark.parametrize(("has_replace", "tags"), [(True, {}), (False, AUTOMATED), (True, AUTOMATED)])
def test_automated_runs_replace_stale_artifacts_if_the_schedule_does(
    notes_root: Path, instance: dg.DagsterInstance, has_replace: bool, tags: dict[str, str]
) -> None:
    recipe = SYSTEMS.read_recipe(notes_root / "recipes" / "mixed.yaml")
    assert all(outcome.failure is None for outcome in run_targets(recipe.targets(), Run(notes_root, RunSettings())))
    write_schedules(notes_root, NOTES | {"replace": has_replace})
    path = notes_root / "recipes" / "mixed.yaml"
    path.write_text(path.read_text().replace("min_words: 5", "min_words: 6"))
    definitions = build_definitions(notes_root)

    result = dg.materialize(
        [asset for asset in definitions.assets or [] if isinstance(asset, dg.AssetsDefinition)],
        selection=[dg.AssetKey(["stage_a", "mixed", "filtered"])],
        partition_key="notes",
        instance=instance,
        resources=resources(),
        run_config=QUIET,
        tags=tags,
        raise_on_error=False,
    )

    assert result.success == (has_replace and tags == AUTOMATED)


def test_a_wrong_schedule_is_reported_and_others_are_kept(notes_root: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_schedules(
        notes_root,
        NOTES,
        NOTES | {"name": "of-nothing", "recipe": "nothing"},
        NOTES | {"name": "never", "cron": "61 * * * *"},
        NOTES | {"name": "no-date", "cron": "0 0 30 2 *"},
        NOTES | {"name": "no-zone", "cron": "0 0 1 * *", "timezone": "Europe/Bern"},
        NOTES | {"name": "no", "action": "verify"},
        *(NOTES | {"name": name} for name in SENSOR_NAMES),
    )
    recipe = recipe_path("mixed", notes_root)
    text = recipe.read_text().replace("name: mixed", "name: no__verify")
    recipe.with_name("no__verify.yaml").write_text(text)

    definitions = build_definitions(notes_root)

    names, repository = list_schedules(definitions).keys(), definitions.get_repository_def()
    assert "nightly" in names and not {"of-nothing", "never", "no", *SENSOR_NAMES} & names
    assert {sensor.name for sensor in repository.sensor_defs} == SENSOR_NAMES
    log = " ".join(record.getMessage() for record in caplog.records)
    shown = repository.asset_graph.get(dg.AssetKey(["recipes_left_out", "schedules.yaml"])).description or ""
    for text in (log, shown):
        assert "schedule of-nothing: recipe nothing not found" in text and "schedule never" in text
    for cron, zone in (("61 * * * *", "Europe/Berlin"), ("0 0 30 2 *", "Europe/Berlin"), ("0 0 1 * *", "Europe/Bern")):
        assert f"`cron` '{cron}' with `timezone` '{zone}' is never due; write five fields that fall on a date" in log
    for name in ("no", *SENSOR_NAMES):
        assert f"schedule {name}: a sensor or the job of a recipe has this name" in log


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

    schedules = list_schedules(definitions)
    assert [schedules[name].job_name for name in ("nightly", "again")] == jobs
    for job in jobs:
        message = failure_text(run_job(definitions.resolve_job_def(job), instance))
        assert cause in message and "\n" not in message


def test_a_schedule_of_an_invalid_recipe_fails_with_its_error(notes_root: Path, instance: dg.DagsterInstance) -> None:
    verify, repin = {"name": "checked", "action": "verify"}, {"name": "at-head", "action": "repin"}
    write_schedules(notes_root, NOTES, NOTES | verify, NOTES | repin)
    path = recipe_path("mixed", notes_root)
    path.write_text(path.read_text() + "dedupe: {}\n")

    definitions = build_definitions(notes_root)

    jobs = [schedule.job for schedule in list_schedules(definitions).values()]
    chosen = [job.name for job in jobs if job.tags["corpusmill/recipe"] == "mixed"]
    assert len(chosen) == 3
    for name in chosen:
        message = failure_text(run_job(definitions.resolve_job_def(name), instance))
        assert "mixed.yaml:" in message and "unknown key `dedupe`" in message


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"action": "verify", "replace": True}, "`schedules.0`: `replace` requires the action run, got verify"),
        ({"keep_versions": 8}, "`schedules.0`: `keep_versions` requires the action repin, got run"),
        ({"action": "repin", "keep_versions": 0}, "`schedules.0.keep_versions` must be >= 1, got 0"),
        ({"timezone": ""}, "`schedules.0.timezone` must have at least 1 character, got ''"),
        ({"cron": "0," * 100_000 + "0 * * * *"}, "`schedules.0.cron` must have at most 200 characters, got"),
    ],
)
def test_an_invalid_key_of_a_schedule_is_named(keys: dict[str, object], message: str, notes_root: Path) -> None:
    write_schedules(notes_root, NOTES | keys)
    path, key = notes_root / "schedules.yaml", message.split("`")[1].rpartition(".")[2]
    starts = [number for number, line in enumerate(path.read_text().splitlines(), 1) if f" {key}: " in line]

    [error] = read_schedules(notes_root)[1]

    assert error.what.startswith(message)
    assert error.where == f"{path}:{starts[0] if starts else 2}"  # 2: the first line of the schedule


def test_a_file_without_a_list_of_schedules_is_an_error(notes_root: Path) -> None:
    (notes_root / "schedules.yaml").write_text("schedules:\n  # - {name: nightly}\n")

    [error] = read_schedules(notes_root)[1]

    assert (error.what, error.fix) == ("`schedules` must be a list, got None", "list its entries")


def test_an_error_in_a_schedule_keeps_the_others(notes_root: Path) -> None:
    weekly, twice = NOTES | {"name": "weekly", "action": "verify"}, NOTES | {"name": "twice"}
    write_schedules(notes_root, weekly | {"sample": "lots", "zone": "UTC"}, NOTES, twice, twice)

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

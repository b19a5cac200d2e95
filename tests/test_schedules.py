"""Schedules: their ticks, actions and versions, and alerts of failed runs."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml
from demo_variants import copy_demo
from forgery import flip
from materialized import NOWHERE, run_job

from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.recipe_versions import delete_old_artifacts, find_or_write_version
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.code_location import build_definitions
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.schedules import SENSOR_NAMES, alert, read_schedules
from pipeline_assets.sealed_sensor import report_sealed_artifacts
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.ui import ui
from resources.webhook import WEBHOOK_VARIABLE

NOTES = {"name": "nightly", "recipe": "mixed", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "action": "run"}


def write_schedules(root: Path, *schedules: Mapping[str, object]) -> None:
    (root / "schedules.yaml").write_text(yaml.safe_dump({"schedules": list(map(dict, schedules))}))


def find_job(root: Path, name: str) -> dg.JobDefinition:
    return build_definitions(root).resolve_job_def(name)


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
    write_schedules(notes_root, renamed, renamed | {"name": "again"})

    definitions = build_definitions(notes_root)

    schedules = [schedule for schedule in definitions.schedules or [] if isinstance(schedule, dg.ScheduleDefinition)]
    assert [schedule.job_name for schedule in schedules if schedule.name in ("nightly", "again")] == jobs
    for job in jobs:
        [failed] = run_job(definitions.resolve_job_def(job), instance).get_step_failure_events()
        failure = failed.step_failure_data.user_failure_data
        assert failure is not None and failure.description is not None
        assert cause in failure.description


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
    assert (error.what, error.fix) == ("`schedules` must be a list, got None", "list entries, or write []")


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
        "`schedules.0.sample` must be a share above 0 and up to 100 %, got 'lots': write 5% or 0.05",
        "unknown key `schedules.0.zone`",
        "several schedules are called twice",
    ]


def test_verify_fails_after_a_changed_byte(notes_root: Path, instance: dg.DagsterInstance) -> None:
    recipe = SYSTEMS.read_recipe(notes_root / "recipes" / "mixed.yaml")
    assert all(outcome.failure is None for outcome in run_targets(recipe.targets(), Run(notes_root, RunSettings())))
    report_sealed_artifacts(SYSTEMS.load_recipes(notes_root)[0], notes_root, instance)
    write_schedules(notes_root, NOTES | {"name": "weekly", "action": "verify", "sample": "100%"})
    job = find_job(notes_root, "weekly__verify")
    passed = run_job(job, instance)
    assert passed.success and {check.passed for check in passed.get_asset_check_evaluations()} == {True}

    path = next((notes_root / "stage_a/mixed/filtered/notes").glob("shards/*"))
    flip(path)

    failed = run_job(job, instance)
    assert not failed.success
    [event] = failed.get_step_failure_events()
    assert event.step_failure_data.user_failure_data is not None
    assert str(path) in (event.step_failure_data.user_failure_data.description or "")
    checks = failed.get_asset_check_evaluations()
    key = dg.AssetCheckKey(dg.AssetKey(["stage_a", "mixed", "filtered"]), "files_match_manifest")
    assert [check.asset_check_key for check in checks if not check.passed] == [key]
    assert len(checks) == len({target.kind.name for target in recipe.targets()})

    report_sealed_artifacts(
        SYSTEMS.load_recipes(notes_root)[0], notes_root, instance
    )  # the build's result does not hide the damage

    [record] = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
    assert record.evaluation is not None and not record.evaluation.passed


def test_the_check_of_a_sample_states_how_much_was_read(notes_root: Path, instance: dg.DagsterInstance) -> None:
    write_schedules(notes_root, NOTES | {"name": "weekly", "action": "verify", "sample": "0.01%"})

    verified = run_job(find_job(notes_root, "weekly__verify"), instance)

    [normalized] = [
        check.description
        for check in verified.get_asset_check_evaluations()
        if check.asset_key.path[-1] == "normalized"
    ]
    assert "a sample of 0.01% matches the manifest; 0.0 % of the bytes were read" in str(normalized)


def _cut(file: Path) -> str:
    file.unlink()  # it may be a hard link to a shard of another artifact
    file.write_bytes(b"short")
    return f"{file}: 1 differences from the manifests, the first: has 5 bytes, sealed with "


def _remove(file: Path) -> str:
    file.unlink()
    return f"{file}: 1 differences from the manifests, the first: the file is missing; "


def _edit_manifest(file: Path) -> str:
    manifest = file.parents[1] / "manifest.json"
    manifest.unlink()
    manifest.write_text("{")
    return f"{manifest}: 1 differences from the manifests, the first: "


@pytest.mark.parametrize("damage", [_cut, _remove, _edit_manifest])
def test_verify_fails_on_a_damaged_artifact(
    notes_root: Path, instance: dg.DagsterInstance, damage: Callable[[Path], str]
) -> None:
    recipe = SYSTEMS.read_recipe(notes_root / "recipes" / "mixed.yaml")
    assert all(outcome.failure is None for outcome in run_targets(recipe.targets(), Run(notes_root, RunSettings())))
    write_schedules(notes_root, NOTES | {"name": "weekly", "action": "verify", "sample": "100%"})
    expected = damage(min((notes_root / "stage_a/mixed/filtered/notes").glob("shards/*")))

    failed = run_job(find_job(notes_root, "weekly__verify"), instance)

    [event] = failed.get_step_failure_events()
    assert event.step_failure_data.user_failure_data is not None
    assert (event.step_failure_data.user_failure_data.description or "").startswith(expected)
    checks = {check.asset_key.path[-1]: check.passed for check in failed.get_asset_check_evaluations()}
    assert (checks["filtered"], checks["normalized"]) == (False, True)


def test_verify_reads_the_versions_of_its_recipe_too(notes_root: Path, instance: dg.DagsterInstance) -> None:
    version = notes_root / "recipes" / "mixed_20261102.yaml"
    version.write_text(
        (notes_root / "recipes" / "mixed.yaml").read_text().replace("name: mixed", f"name: {version.stem}")
    )
    targets = SYSTEMS.read_recipe(version).targets()
    assert all(outcome.failure is None for outcome in run_targets(targets, Run(notes_root, RunSettings())))
    write_schedules(notes_root, NOTES | {"name": "weekly", "action": "verify", "sample": "100%"})
    job = find_job(notes_root, "weekly__verify")
    passed = run_job(job, instance)
    assert passed.success
    assert {"/".join(check.asset_key.path[:-1]) for check in passed.get_asset_check_evaluations()} == {
        "stage_a/mixed",
        "stage_a/mixed/versions",
    }

    flip(next((notes_root / "stage_a/mixed_20261102/filtered/notes").glob("shards/*")))

    assert not run_job(job, instance).success


@pytest.mark.slow
def test_repin_builds_a_dated_recipe_only_after_a_head_moved(
    demo_root: Path, tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    root = copy_demo(demo_root, tmp_path / "data")
    write_schedules(root, {"name": "monthly", "recipe": "healing_text_v1", "cron": "0 5 1 * *", "action": "repin"})
    due = "2026-12-01T05:00:00+00:00"
    folder = tmp_path / "hub"
    copy_demo(demo_root / "hub", folder)

    with LoopbackHub(folder) as hub:
        unchanged = run_job(find_job(root, "monthly__repin"), instance, hub.endpoint, due)
        written = sorted(path.name for path in (root / "recipes").iterdir())
    assert unchanged.success and written == ["healing_text_v1.yaml"]

    card = next(folder.rglob("README.md"))
    card.chmod(0o644)
    card.write_text(card.read_text() + "\nAnother line.\n")
    with LoopbackHub(folder) as hub:
        [head] = set(hub.commits().values())
        for _ in range(2):
            assert run_job(find_job(root, "monthly__repin"), instance, hub.endpoint, due).success
    recipe = SYSTEMS.read_recipe(root / "recipes" / "healing_text_v1_20261201.yaml")
    assert recipe.revisions() == [("HuggingFaceFW/fineweb-edu", head)]
    assert {target.state(root)[0] for target in recipe.targets()} == {"current"}
    assert len(list((root / "recipes").iterdir())) == 2


def test_a_recipe_without_hub_datasets_has_no_head_changes(notes_root: Path) -> None:
    version = find_or_write_version("mixed", notes_root, SYSTEMS, None, datetime(2026, 1, 1, tzinfo=UTC))  # type: ignore[arg-type]
    assert (version.path.stem, version.head_changes) == ("mixed", [])


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("name: weekly", "name: weekly_20261102"),
        ("\ufeffname: weekly", "name: weekly_20261102"),  # Notepad begins a file with a byte order mark
        ('"name" : weekly', '"name": weekly_20261102'),
        ("name:\n  weekly", "name: weekly_20261102"),
    ],
)
def test_a_version_has_its_own_name_in_any_yaml_form(
    demo_root: Path, demo_hub: LoopbackHub, tmp_path: Path, head: str, expected: str
) -> None:
    text = (demo_root / "recipes" / "healing_text_v1.yaml").read_text()
    path = tmp_path / "recipes" / "weekly.yaml"
    path.parent.mkdir()
    revision = SYSTEMS.read_recipe(demo_root / "recipes" / "healing_text_v1.yaml").revisions()[0][1]
    rest = text.replace("name: healing_text_v1\n", "", 1).replace(revision, "0a" * 20)
    path.write_text(f"{head}\n{rest}")
    hub = HubFiles(tmp_path / "cache", endpoint=demo_hub.endpoint)

    version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))

    written = version.path.read_text()
    assert written == f"{expected}\n{rest.replace('0a' * 20, revision)}"
    assert SYSTEMS.read_recipe(version.path).name == "weekly_20261102"


@pytest.mark.parametrize("name", ["123", "1_2", "1.5"])
def test_a_version_of_a_recipe_with_a_numeric_name_is_readable(
    demo_root: Path, demo_hub: LoopbackHub, tmp_path: Path, name: str
) -> None:
    text = (demo_root / "recipes" / "healing_text_v1.yaml").read_text()
    (tmp_path / "recipes").mkdir()
    revision = SYSTEMS.read_recipe(demo_root / "recipes" / "healing_text_v1.yaml").revisions()[0][1]
    base = text.replace("name: healing_text_v1", f"name: '{name}'", 1).replace(revision, "0a" * 20)
    (tmp_path / "recipes" / f"{name}.yaml").write_text(base)
    hub = HubFiles(tmp_path / "cache", endpoint=demo_hub.endpoint)

    version = find_or_write_version(name, tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))

    assert SYSTEMS.read_recipe(version.path).name == f"{name}_20261102"


def test_a_version_repins_its_datasets_except_those_read_at_two_commits(tmp_path: Path) -> None:
    news, wiki = "maker/news", "maker/wiki"
    for name in (news, wiki):
        folder = tmp_path / "hub" / "datasets" / name
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text("{}\n")
    path = tmp_path / "recipes" / "weekly.yaml"
    path.parent.mkdir()

    def version_on(day: int, *commits: tuple[str, str]) -> tuple[list[tuple[str, str]], list[str]]:
        source = "{kind: hub, split: train, files: ['*'], license_tag: odc-by, domain: web, columns: {text: text},"
        rows = [
            f"- {source} source: s{number}, amount: {{files: 1}}, dataset: {dataset}, revision: {commit}}}"
            for number, (dataset, commit) in enumerate(commits)
        ]
        path.write_text("\n".join(["system: stage_a", "name: weekly", "sources:", *rows, ""]))
        with LoopbackHub(tmp_path / "hub") as server:
            hub = HubFiles(tmp_path / "cache", endpoint=server.endpoint)
            version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, day, tzinfo=UTC))
        return SYSTEMS.read_recipe(version.path).revisions(), list(map(str, version.head_errors))

    with LoopbackHub(tmp_path / "hub") as server:
        heads = server.commits()
    commit, older_commit = "0a" * 20, "0b" * 20
    assert version_on(2, (news, commit), (news, older_commit), (wiki, commit)) == (
        [(news, commit), (news, older_commit), (wiki, heads[wiki])],
        [
            f"{path}: this recipe reads {news} at 2 revisions; write the commits by hand, or set one revision for all "
            "its sources"
        ],
    )
    assert version_on(3, (news, commit), (wiki, commit)) == ([(news, heads[news]), (wiki, heads[wiki])], [])
    (tmp_path / "recipes" / "weekly_20261103.yaml").write_text(path.read_text().replace("weekly", "weekly_20261103"))
    assert version_on(4, (wiki, commit)) == ([(wiki, heads[wiki])], [])  # the last version read news, too


def test_a_change_of_local_files_alone_writes_a_version(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.jsonl").write_text('{"text": "Soil is soil."}\n')
    (tmp_path / "recipes").mkdir()
    source = "{kind: local, source: notes, path: notes, files: ['*.jsonl'], domain: web}"
    text = f"system: stage_a\nname: mixed\nsources: [{source}]\noutputs: {{up_to: normalized}}\n"
    (tmp_path / "recipes" / "mixed.yaml").write_text(text)
    write_schedules(tmp_path, {**NOTES, "name": "daily", "action": "repin"})
    job = find_job(tmp_path, "daily__repin")

    def recipes_after(day: int) -> list[str]:
        assert run_job(job, instance, due=f"2026-11-{day:02d}T12:00:00+00:00").success
        return sorted(file.stem for file in (tmp_path / "recipes").iterdir())

    assert recipes_after(1) == ["mixed"]
    (tmp_path / "notes" / "b.jsonl").write_text('{"text": "Mud is mud."}\n')
    assert recipes_after(2) == ["mixed", "mixed_20261102"]
    assert recipes_after(3) == ["mixed", "mixed_20261102"]


def test_versions_that_would_share_a_folder_are_refused_before_a_write(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "datasets" / "maker" / "news"
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text("{}\n")
    path = tmp_path / "recipes" / "weekly.yaml"
    path.parent.mkdir()
    source = f"{{kind: hub, source: news, dataset: maker/news, revision: {'0a' * 20}, split: train, files: ['*'],"
    source += " amount: {files: 1}, license_tag: odc-by, domain: web, columns: {text: text}}"
    text = f"system: stage_a\nname: weekly\nsources: [{source}]\n"
    path.write_text(text + "outputs: {normalized_dir: stage_a/normalized, up_to: normalized}\n")

    with LoopbackHub(tmp_path / "hub") as server:
        hub = HubFiles(tmp_path / "cache", endpoint=server.endpoint)
        with pytest.raises(UsageError) as refused:
            find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))

        assert str(refused.value) == (
            f"{path}: each version would replace the artifact of the earlier one in stage_a/raw/news; "
            "remove `outputs.normalized_dir`, so that each version has its own folders"
        )
        assert list(path.parent.iterdir()) == [path]
        path.write_text(text)
        version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, 2, tzinfo=UTC))
    assert version.path.name == "weekly_20261102.yaml"


def test_an_error_that_keeps_artifacts_of_old_versions_is_reported(notes_root: Path) -> None:
    recipes, reported = notes_root / "recipes", list[str]()
    for date in ("20261102", "20261103"):
        text = (recipes / "mixed.yaml").read_text().replace("name: mixed", f"name: mixed_{date}")
        (recipes / f"mixed_{date}.yaml").write_text(text)
    (recipes / "other.yaml").write_text("name: other\nsystem: stage_a\n")

    delete_old_artifacts("mixed", notes_root, SYSTEMS, 1, reported.append)

    assert reported == [
        f"WARNING {recipes / 'other.yaml'}: the key `sources` is missing; add it; "
        "until then the artifacts of old versions are kept"
    ]


def test_a_repeated_run_of_an_earlier_period_writes_no_version(
    demo_root: Path, demo_hub: LoopbackHub, tmp_path: Path
) -> None:
    text = (demo_root / "recipes" / "healing_text_v1.yaml").read_text()
    revision = SYSTEMS.read_recipe(demo_root / "recipes" / "healing_text_v1.yaml").revisions()[0][1]
    (tmp_path / "recipes").mkdir()
    hub = HubFiles(tmp_path / "cache", endpoint=demo_hub.endpoint)
    for name in ("weekly", "weekly_20261109"):
        content = text.replace("name: healing_text_v1", f"name: {name}", 1).replace(revision, "0a" * 20)
        (tmp_path / "recipes" / f"{name}.yaml").write_text(content)

    def written(day: int) -> list[str]:
        version = find_or_write_version("weekly", tmp_path, SYSTEMS, hub, datetime(2026, 11, day, tzinfo=UTC), "week")
        return [version.path.stem, *version.head_changes]

    assert written(2) == ["weekly_20261109"]
    assert written(16) == ["weekly_20261116", f"HuggingFaceFW/fineweb-edu: {'0a' * 20} → {revision}"]
    assert written(9) == ["weekly_20261109"]


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []

    class Recorder(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.HTTPServer(("127.0.0.1", 0), Recorder)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", bodies
    server.shutdown()


def test_a_failed_run_is_posted_to_the_webhook_and_a_dead_webhook_is_ignored(
    webhook: tuple[str, list[bytes]],
    notes_root: Path,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, bodies = webhook
    monkeypatch.setenv(WEBHOOK_VARIABLE, f"{NOWHERE}/secret")
    for path in (notes_root / "sources" / "notes").rglob("*.jsonl*"):
        path.unlink()
    failed = run_job(find_job(notes_root, "mixed"), instance)
    assert not failed.success
    [event] = [event for event in failed.all_events if event.is_run_failure] or [failed.all_events[-1]]
    context = dg.build_run_status_sensor_context("alert", event, instance, failed.dagster_run).for_run_failure()

    with caplog.at_level("WARNING"):
        alert(context)
    monkeypatch.delenv(WEBHOOK_VARIABLE)
    alert(context)
    assert bodies == [] and "secret" not in caplog.text

    monkeypatch.setenv(WEBHOOK_VARIABLE, address)
    alert(context)
    [body] = bodies
    assert json.loads(body)["text"].startswith("mixed failed: ")
    assert "no file matches" in json.loads(body)["text"]


@pytest.mark.parametrize(
    "address",
    [
        "secret",
        "file:///secret",
        "http:///secret",
        "http://host:secret/",
        "http://host:0/secret",
        "http://[secret/",
        "https://secret@host/",
        "http://host/secret\n",
        "http://host/secret\x1b[2J",
        "http://häst/secret",
    ],
)
def test_an_invalid_webhook_is_refused_at_the_start_without_its_value(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(WEBHOOK_VARIABLE, address)

    for start in (lambda: build_definitions(tmp_path), lambda: ui(tmp_path)):
        with pytest.raises(UsageError) as refused:
            start()

        assert str(refused.value).startswith(f"{WEBHOOK_VARIABLE}: ")
        assert "secret" not in str(refused.value)

"""Scheduled jobs that verify the artifacts of a recipe or repin its datasets."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from demo_variants import copy_demo
from forgery import flip
from materialized import QUIET, find_job, resources, run_job
from schedule_files import NOTES, failure_text, write_schedules
from sealed_scans import load_sensor
from stage2_build import write_local_mixture

from pipeline_assets import jobs
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.code_location import build_definitions
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.sealed_sensor import report_sealed_artifacts
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.result import Verification
from pipeline_assets.trust.verify import scan_chain

WEEKLY = NOTES | {"name": "weekly", "action": "verify", "sample": "100%"}
FILTERED = "stage_a/mixed/filtered/notes"


def build_recipe(root: Path, name: str) -> None:
    targets = SYSTEMS.read_recipe(root / "recipes" / f"{name}.yaml").targets()
    assert all(outcome.failure is None for outcome in run_targets(targets, Run(root, RunSettings())))


def _flip(file: Path) -> str:
    flip(file)
    return f"{file}: 1 differences from the manifests, the first: sha256 is "


def _edit_manifest(file: Path) -> str:
    manifest = file.parents[1] / "manifest.json"
    manifest.unlink()
    manifest.write_text("{")
    return f"{manifest}: 1 differences from the manifests, the first: "


@pytest.mark.parametrize("damage", [_flip, _edit_manifest])
def test_damage_found_by_verify_is_shown_until_the_artifact_is_built_again(
    notes_root: Path, instance: dg.DagsterInstance, damage: Callable[[Path], str]
) -> None:
    build_recipe(notes_root, "mixed")
    recipes = SYSTEMS.load_recipes(notes_root)[0]
    report_sealed_artifacts(recipes, notes_root, instance)
    write_schedules(notes_root, WEEKLY)
    job = find_job(notes_root, "weekly__verify")
    passed = run_job(job, instance)
    checks = {check.asset_check_key: check.passed for check in passed.get_asset_check_evaluations()}
    kinds = {target.kind.name for target in SYSTEMS.read_recipe(notes_root / "recipes" / "mixed.yaml").targets()}
    assert passed.success and len(checks) == len(kinds) and {*checks.values()} == {True}

    expected = damage(min((notes_root / FILTERED).glob("shards/*")))
    failed = run_job(job, instance)

    assert failure_text(failed).startswith(expected)
    checks = {check.asset_check_key: check.passed for check in failed.get_asset_check_evaluations()}
    key = dg.AssetCheckKey(dg.AssetKey(["stage_a", "mixed", "filtered"]), "files_match_manifest")
    assert [name for name, is_passed in checks.items() if not is_passed] == [key]
    cursor = None
    for is_repaired in (False, True):  # neither the build's result nor the event of a stale artifact hides the damage
        if is_repaired:
            shutil.rmtree(notes_root / FILTERED)
            build_recipe(notes_root, "mixed")
        with dg.build_sensor_context(instance=instance, cursor=cursor) as context:
            cursor = load_sensor(notes_root).evaluate_tick(context).cursor
        [record] = instance.event_log_storage.get_asset_check_execution_history(key, limit=1)
        newest = instance.get_latest_materialization_event(key.asset_key)
        assert record.evaluation is not None and record.evaluation.passed == is_repaired
        assert newest is not None and record.event is not None and record.event.timestamp >= newest.timestamp


def test_the_check_of_a_sample_states_how_much_was_read(notes_root: Path, instance: dg.DagsterInstance) -> None:
    write_schedules(notes_root, WEEKLY | {"sample": "0.01%"})

    result = run_job(find_job(notes_root, "weekly__verify"), instance)

    checks = result.get_asset_check_evaluations()
    [normalized] = [check.description for check in checks if check.asset_key.path[-1] == "normalized"]
    assert "a sample of 0.01% matches the manifest; 0.0 % of the bytes were read" in str(normalized)
    log = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert {f"stage_a/{artifact}/notes: 0 findings" for artifact in ("raw", "normalized", "filtered")} <= set(log)


def test_verify_reads_the_versions_of_its_recipe_too(notes_root: Path, instance: dg.DagsterInstance) -> None:
    version = notes_root / "recipes" / "mixed_20261102.yaml"
    text = (notes_root / "recipes" / "mixed.yaml").read_text()
    version.write_text(text.replace("name: mixed", f"name: {version.stem}"))
    build_recipe(notes_root, version.stem)
    write_schedules(notes_root, WEEKLY)
    job = find_job(notes_root, "weekly__verify")
    checks = run_job(job, instance).get_asset_check_evaluations()
    assert all(check.passed for check in checks)
    assert {"/".join(check.asset_key.path[:-1]) for check in checks} == {"stage_a/mixed", "stage_a/mixed/versions"}

    flip(next((notes_root / "stage_a/mixed_20261102/filtered/notes").glob("shards/*")))

    assert not run_job(job, instance).success


@pytest.mark.parametrize("moment", ["before the scan", "after the scan"])
def test_a_version_removed_during_its_verification_hides_no_damage_and_is_none(
    notes_root: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    version = notes_root / "recipes" / "mixed_20261102.yaml"
    text = (notes_root / "recipes" / "mixed.yaml").read_text()
    version.write_text(text.replace("name: mixed", f"name: {version.stem}"))
    build_recipe(notes_root, version.stem)
    flip(next((notes_root / FILTERED).glob("shards/*")))
    removed = notes_root / "stage_a" / version.stem / "normalized" / "notes"

    def scan_and_remove(folder: Path, *arguments: Any) -> Verification:
        if folder == removed and moment == "before the scan":
            shutil.rmtree(removed)
        verification = scan_chain(folder, *arguments)
        if folder == removed:
            shutil.rmtree(removed)
        return verification

    monkeypatch.setattr(jobs, "scan_chain", scan_and_remove)
    write_schedules(notes_root, WEEKLY)

    result = run_job(find_job(notes_root, "weekly__verify"), instance)

    evaluations = result.get_asset_check_evaluations()
    failed = {check.asset_key.to_user_string() for check in evaluations if not check.passed}
    assert failed == {"stage_a/mixed/filtered"}
    assert ": 1 differences from the manifests, the first: sha256 is " in failure_text(result)
    log = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert "stage_a/normalized/notes: missing, not read" in log


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


def test_a_missing_tokenizer_ends_builds_of_dagster_before_the_first_artifact(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    tokenizer = {"kind": "file", "path": "none.model", "family": "sentencepiece", "end_of_document": "</s>"}
    content = write_local_mixture(tmp_path).content() | {"tokenizer": tokenizer | {"sha256": "0" * 64}}
    content = {key: value for key, value in content.items() if key not in ("dedup", "segments")}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "local.yaml").write_text(json.dumps(content))
    assets = [asset for asset in build_definitions(tmp_path).assets or [] if isinstance(asset, dg.AssetsDefinition)]

    def materialize(*names: str) -> dg.ExecuteInProcessResult:
        selected = dg.AssetSelection.assets(*(["stage2", "local", name] for name in names))
        used, first = resources(), {"partition_key": "first", "run_config": QUIET}
        return dg.materialize(assets, selection=selected, resources=used, raise_on_error=False, **first)

    in_ui = materialize("raw", "raw_corpus", "filtered", "token_shards")
    scheduled = run_job(find_job(tmp_path, "local"), instance)

    for failed in (in_ui, scheduled):
        assert failure_text(failed).startswith(f"{tmp_path}/none.model: cannot read the tokenizer file ")
    assert not (tmp_path / "stage2").exists()
    assert materialize("raw").success  # alone, it needs no tokenizer

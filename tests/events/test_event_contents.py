"""Events of artifacts and checks, with their figures, tags and times."""

import shutil
from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml
from command_results import Corpusmill
from materialized import run_job
from sealed_scans import FILTERED, RAW, REPORT, Scan, check_records, count_materializations, passed
from stage_a_build import NO_COMMIT, local_source
from stage_a_sources import recipe_content, with_dedup

from pipeline_assets import events
from pipeline_assets.code_location import build_definitions
from pipeline_assets.corpus.document import COLUMN_DESCRIPTIONS
from pipeline_assets.events import COMMAND_TAG
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.registry import SYSTEMS


def test_code_version_is_independent_of_the_order_of_partitions_and_sources(root: Path) -> None:
    targets = SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml").targets()

    forwards = events.code_version(targets[0].kind, targets, [RAW, FILTERED, REPORT])
    backwards = events.code_version(targets[0].kind, targets[::-1], [REPORT, FILTERED, RAW])

    assert forwards == backwards != events.code_version(targets[0].kind, targets, [RAW])


def latest_materialization(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.AssetMaterialization:
    event = instance.get_latest_materialization_event(key)
    assert event is not None and event.asset_materialization is not None
    return event.asset_materialization


def test_artifacts_of_one_command_have_its_tag(
    scan: Scan, instance: dg.DagsterInstance, root: Path, corpusmill: Corpusmill
) -> None:
    shutil.rmtree(root / "stage_a")
    result = corpusmill("run", "mixed", "--data", root, "--workers", 0)
    scan()

    reported = [latest_materialization(instance, key) for key in (RAW, FILTERED, REPORT)]
    assert result.returncode == 0
    assert len({event.tags[COMMAND_TAG] for event in reported}) == 1
    assert {event.metadata["command"].value for event in reported} == {
        f"corpusmill run mixed --data {root} --workers 0"
    }


def test_event_has_figures_checks_and_the_build_time(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()

    manifest = require_manifest(root / "stage_a/mixed/filtered/notes")
    event = latest_materialization(instance, FILTERED)
    assert (event.partition, event.tags["dagster/data_version"]) == ("notes", manifest.digest)
    metadata, provenance = event.metadata, manifest.provenance
    sealed_at = datetime.fromisoformat(provenance["started_at_utc"]).timestamp() + provenance["seconds"]
    assert metadata["built_at"].value == pytest.approx(sealed_at)
    assert metadata["documents"].value == metadata["dagster/row_count"].value == manifest.identity.counts["documents"]
    columns = metadata["dagster/column_schema"].value.columns
    assert {column.name: column.type for column in columns}.items() >= {
        ("text", "large_string"),
        ("meta.source_row", "int64"),
    }
    assert {column.name: column.description for column in columns} == COLUMN_DESCRIPTIONS
    [evaluation] = [record.evaluation for record in check_records(instance, FILTERED, "ledger_adds_up")]
    assert (evaluation.passed, evaluation.blocking) == (True, True)
    assert evaluation.description.startswith("notes: 40 in = ")
    assert evaluation.metadata["in"].value == 40


def test_artifact_of_a_command_is_shown_under_the_name_of_its_folder(
    scan: Scan, instance: dg.DagsterInstance, root: Path, corpusmill: Corpusmill
) -> None:
    folder = root / "stage_a" / "mixed" / "deduplicated" / "apart"
    variables = {"CORPUSMILL_ZSTD_LEVEL": "19", "CORPUSMILL_START_METHOD": "spawn"}

    result = corpusmill(
        "stage-a", "dedup", "--input", root / "stage_a/mixed/filtered/notes", "--out-dir", folder,
        "--cpu-threads", 0, env=variables,
    )  # fmt: skip
    scan()

    assert result.returncode == 0, result.stderr
    manifest = require_manifest(folder)
    settings = manifest.provenance["run_settings"]
    assert (settings["zstd_level"], settings["start_method"]) == (19, "spawn")
    key = dg.AssetKey(["stage_a", "apart", "deduplicated"])
    assert latest_materialization(instance, key).tags["dagster/data_version"] == manifest.digest
    assert passed(instance, key, "ledger_adds_up") == [True]


def test_job_of_a_recipe_shows_a_failed_blocking_check(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    rows = [{"text": f"Some words of the same note {number % 2}.", "key": f"n-{number}"} for number in range(4)]
    content = recipe_content(NO_COMMIT) | {"name": "held", "sources": [local_source(tmp_path, "notes", rows)]}
    with_dedup(content)
    content |= {"max_removed": {"every_source": "0"}}
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "held.yaml").write_text(yaml.safe_dump(content))
    deduplicated = dg.AssetKey(["stage_a", "held", "deduplicated"])

    for _ in range(2):  # the second run finds the artifact and runs its checks again
        assert not run_job(build_definitions(tmp_path).resolve_job_def("held"), instance).success
        assert not passed(instance, deduplicated, "removals_within_caps")[0]
    assert count_materializations(instance, deduplicated) == 1


def test_event_of_a_check_names_failed_partitions_first() -> None:
    results = {name: CheckResult("size", name != "c", True, f"because of {name}") for name in ("a", "b", "c", "d")}

    fields = events.check_event_fields(results)

    assert fields["passed"] is False
    assert fields["description"].startswith("c: because of c; a: because of a; b: because of b")

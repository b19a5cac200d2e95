"""Scans that report each artifact once, in bounded time."""

import itertools
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
from materialized import NOWHERE, Materialized
from sealed_scans import (
    FILTERED,
    RAW,
    REPORT,
    Scan,
    check_records,
    count_materializations,
    load_sensor,
    passed,
    staleness,
)

from pipeline_assets import events, sealed_sensor
from pipeline_assets.sealed_sensor import report_sealed_artifacts
from pipeline_assets.spine.artifact import read_check_results, write_check_results
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.registry import SYSTEMS


def test_scan_of_known_artifacts_reports_nothing(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    report_sealed_artifacts([SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml")], root, instance)

    assert [scan(), scan()] == ["events reported: 0", "nothing was built since the last scan"]
    assert count_materializations(instance, RAW) == count_materializations(instance, REPORT) == 1


@pytest.mark.parametrize("wipe", [lambda instance: instance.wipe_assets([RAW]), lambda instance: instance.wipe()])
def test_artifacts_whose_events_were_wiped_are_reported_again(
    wipe: Callable[[dg.DagsterInstance], None], scan: Scan, instance: dg.DagsterInstance
) -> None:
    scan()
    wipe(instance)

    messages = [scan(), scan()]

    assert count_materializations(instance, RAW) == count_materializations(instance, REPORT) == 1
    assert passed(instance, RAW, "files_match_manifest")[0]
    assert messages[1] == "nothing was built since the last scan"


@pytest.mark.parametrize("is_wipe", [True, False], ids=["wipe of the asset", "deleted run"])
def test_artifacts_that_lost_their_events_are_fresh_after_a_scan(
    is_wipe: bool, scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    run = Materialized(root, NOWHERE)
    run.instance = instance
    raw, report = run("mixed", "raw", partition="notes"), run("mixed", "report")
    scan()

    if is_wipe:
        instance.wipe_assets([RAW, REPORT])
    else:
        instance.delete_run(raw.run_id)
        instance.delete_run(report.run_id)
    messages = [scan(), scan()]

    assert count_materializations(instance, RAW) == count_materializations(instance, REPORT) == 1
    assert passed(instance, RAW, "files_match_manifest")[0] and passed(instance, REPORT, "files_match_manifest")[0]
    assert set(staleness(root, instance).values()) == {"FRESH"}  # those built from `raw`, too
    assert messages[1] == "nothing was built since the last scan"


def test_new_check_results_need_no_materialization(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()
    folder = root / "stage_a/mixed/filtered/notes"
    digest = require_manifest(folder).digest
    results = [
        type(result)(result.name, False, result.blocking, "it is not")
        for result in read_check_results(folder, digest) or ()
    ]
    write_check_results(folder, digest, results)

    scan()

    assert passed(instance, FILTERED, "ledger_adds_up") == [False, True]
    assert count_materializations(instance, FILTERED) == 1


def test_damaged_artifact_is_not_reported(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    next((root / "stage_a/mixed/filtered/notes").glob("shards/*")).unlink()

    scan()

    assert count_materializations(instance, FILTERED) == 0
    assert count_materializations(instance, RAW) == 1


def test_slow_scans_pause_in_between(instance: dg.DagsterInstance, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(100.0, 2.0)  # two seconds between two readings
    monkeypatch.setattr(sealed_sensor.time, "monotonic", lambda: next(clock))
    sensor, messages = load_sensor(root), []
    for _ in range(2):
        with dg.build_sensor_context(instance=instance) as context:
            messages.append(sensor.evaluate_tick(context).skip_message)

    assert "events reported" in str(messages[0]) or "more to report" in str(messages[0])
    assert messages[1] == "pausing, because the last scan was slow"


def test_events_beyond_a_scan_are_reported_by_the_next(
    scan: Scan, instance: dg.DagsterInstance, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(10**6))
    monkeypatch.setattr(sealed_sensor.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(sealed_sensor, "_MAX_TICK_S", 2)

    messages = [scan()]
    while "too many events" in messages[-1]:
        messages.append(scan())

    assert len(messages) > 1
    assert set(staleness(root, instance).values()) == {"FRESH"}
    assert count_materializations(instance, RAW) == 1


def test_artifact_of_a_dagster_run_is_not_reported_again(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    run = Materialized(root, NOWHERE)
    run.instance = instance
    run("mixed", "raw", partition="notes")
    before = count_materializations(instance, RAW), passed(instance, RAW, "files_match_manifest")

    scan()

    assert (count_materializations(instance, RAW), passed(instance, RAW, "files_match_manifest")) == before
    assert before == (1, [True])


def test_checks_are_reported_again_after_another_materialization(
    scan: Scan, instance: dg.DagsterInstance, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan()
    monkeypatch.setattr(events, "external_assets", lambda targets, root: {})  # like a program with other nodes
    scan()

    [newest, *_] = instance.fetch_materializations(REPORT, limit=9).records
    [check, *_] = check_records(instance, REPORT, "files_match_manifest")
    assert count_materializations(instance, REPORT) == 2
    assert check.event.timestamp >= newest.event_log_entry.timestamp

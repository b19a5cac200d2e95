"""The UI shows built artifacts and their checks, and agrees with `status`."""

import asyncio
import itertools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import dagster as dg
import pytest
import yaml
from command_results import Corpusmill
from dagster._core.definitions.asset_health.asset_materialization_health import AssetMaterializationHealthState
from dagster._core.definitions.data_version import CachingStaleStatusResolver
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord
from marked_rows import forget_ids
from materialized import NOWHERE, Materialized, evaluate_external_sensor, run_job
from stage_a_build import NO_COMMIT, local_source
from stage_a_sources import recipe_content, with_dedup

from pipeline_assets import events, sealed_sensor
from pipeline_assets.build import recipe_paths
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Target
from pipeline_assets.code_location import build_definitions
from pipeline_assets.events import COMMAND_TAG
from pipeline_assets.sealed_sensor import report_sealed_artifacts
from pipeline_assets.spine.artifact import CheckResult, read_check_results, write_check_results
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems import stage_a
from pipeline_assets.systems.registry import SYSTEMS

Scan = Callable[[], str]
LOADED: dict[Path, dg.Definitions] = {}  # definitions of each data root, from its last scan
RAW, FILTERED, REPORT = (dg.AssetKey(["stage_a", "mixed", artifact]) for artifact in ("raw", "filtered", "report"))


def test_code_version_is_independent_of_the_order_of_partitions_and_sources(root: Path) -> None:
    targets = SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml").targets()

    forwards = events.code_version(targets[0].kind, targets, [RAW, FILTERED, REPORT])
    backwards = events.code_version(targets[0].kind, targets[::-1], [REPORT, FILTERED, RAW])

    assert forwards == backwards != events.code_version(targets[0].kind, targets, [RAW])


@pytest.fixture
def has_shipped() -> bool:
    """Decide whether a scan loads the shipped recipes too; a test may override it."""
    return False


@pytest.fixture(autouse=True)
def _recipes(has_shipped: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the shipped recipes, which take five of six seconds of a scan."""
    if not has_shipped:
        monkeypatch.setattr(recipe_paths, "PROJECT_RECIPES_FOLDER", tmp_path / "none")


@pytest.fixture
def root(notes_root: Path) -> Path:
    run_kinds(notes_root)
    return notes_root


@pytest.fixture
def scan(root: Path, instance: dg.DagsterInstance) -> Scan:
    cursor: list[str | None] = [None]
    LOADED.clear()

    def tick() -> str:
        sensor = load_sensor(root)
        with dg.build_sensor_context(instance=instance, cursor=cursor[0]) as context:
            data = sensor.evaluate_tick(context)
        cursor[0] = data.cursor
        return str(data.skip_message)

    return tick


def load_sensor(root: Path) -> dg.SensorDefinition:
    LOADED[root] = build_definitions(root)
    return next(sensor for sensor in LOADED[root].sensors or [] if sensor.name == "sealed_artifacts")


def staleness(root: Path, instance: dg.DagsterInstance, recipe: str = "mixed") -> dict[str, str]:
    graph = LOADED[root].resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    statuses = {}
    for key in graph.get_all_asset_keys():
        partitions = graph.get(key).partitions_def
        if key.path[1:-1] == [recipe]:
            for partition in partitions.get_partition_keys() if partitions else [None]:
                role = "/".join([key.path[0], key.path[2], *([partition] if partition else [])])
                statuses[role] = resolver.get_status(key, partition).value
    return statuses


def states(root: Path, recipe: str = "mixed") -> dict[str, str]:
    return {status.target.role: status.sealed_state for status in artifact_statuses(root, targets(root, recipe))}


def targets(root: Path, recipe: str = "mixed") -> Sequence[Target]:
    return SYSTEMS.read_recipe(root / "recipes" / f"{recipe}.yaml").targets()


def run_kinds(root: Path, kinds: set[str] | None = None) -> None:
    recipe, run = SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml"), Run(root, RunSettings(), replace=True)
    requested = [target for target in recipe.targets() if kinds is None or target.kind.name in kinds]
    assert all(outcome.failure is None for outcome in run_targets(requested, run))


def count_materializations(instance: dg.DagsterInstance, key: dg.AssetKey) -> int:
    return len(instance.fetch_materializations(key, limit=9).records)


def latest_materialization(instance: dg.DagsterInstance, key: dg.AssetKey) -> dg.AssetMaterialization:
    event = instance.get_latest_materialization_event(key)
    assert event is not None and event.asset_materialization is not None
    return event.asset_materialization


def check_records(instance: dg.DagsterInstance, key: dg.AssetKey, check: str) -> list[AssetCheckExecutionRecord]:
    """List the records of a check, newest first."""
    return list(instance.event_log_storage.get_asset_check_execution_history(dg.AssetCheckKey(key, check), limit=9))


def passed(instance: dg.DagsterInstance, key: dg.AssetKey, check: str) -> list[bool]:
    return [record.evaluation.passed for record in check_records(instance, key, check)]


@pytest.mark.parametrize("has_shipped", [False, True], ids=["own recipes", "shipped too"])
def test_artifacts_built_by_a_command_are_fresh(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    shutil.rmtree(root / "stage_a")
    before = scan(), staleness(root, instance)
    run_kinds(root)

    message = scan()
    for observed in evaluate_external_sensor(root, instance).asset_events:  # observations make nothing stale
        instance.report_runless_asset_event(observed)

    assert before == ("events reported: 0", dict.fromkeys(states(root), "MISSING"))
    assert message != before[0]
    assert set(states(root).values()) == {"current"}
    assert staleness(root, instance) == dict.fromkeys(states(root), "FRESH")


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


def test_event_has_the_time_of_the_build(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()

    provenance = require_manifest(root / "stage_a/mixed/filtered/notes").provenance
    sealed_at = datetime.fromisoformat(provenance["started_at_utc"]).timestamp() + provenance["seconds"]
    assert latest_materialization(instance, FILTERED).metadata["built_at"].value == pytest.approx(sealed_at)


def record_failed_run(root: Path, instance: dg.DagsterInstance, key: dg.AssetKey, partition: str | None) -> None:
    """Record a run that failed before it started, like a time-out of the code server."""
    job = LOADED[root].resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
    tags = {} if partition is None else {"dagster/partition": partition}
    run = instance.create_run_for_job(job, tags=tags, asset_selection=frozenset({key}))
    instance.report_run_failed(run, "the code server did not answer in 60 s")


def is_failed(instance: dg.DagsterInstance, root: Path, key: dg.AssetKey) -> bool:
    """Check whether the UI shows a failure of an asset or its partitions."""
    graph = LOADED[root].resolve_asset_graph()
    compute = AssetMaterializationHealthState.compute_for_asset
    state = asyncio.run(compute(key, graph.get(key).partitions_def, LoadingContextForTest(instance)))
    return not state.failed_subset.is_empty


@pytest.mark.parametrize(
    ("key", "partition"), [(FILTERED, "notes"), pytest.param(REPORT, None, marks=pytest.mark.slow)]
)
def test_failed_run_of_a_current_artifact_is_not_shown_as_failed(
    key: dg.AssetKey, partition: str | None, scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    scan()
    record_failed_run(root, instance, key, partition)
    failed = is_failed(instance, root, key)

    reported = scan(), scan()
    record_failed_run(root, instance, RAW, "notes")  # a run of another asset adds no report for this one
    scan()

    assert (failed, is_failed(instance, root, key)) == (True, False)
    assert reported[1] == "nothing was built since the last scan"
    assert count_materializations(instance, key) == 2


@pytest.mark.slow
def test_failed_run_of_a_stale_artifact_is_shown(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()
    with (root / "sources" / "notes" / "rows.jsonl").open("a") as file:
        file.write("{}\n")
    scan()
    record_failed_run(root, instance, FILTERED, "notes")

    scan()

    assert is_failed(instance, root, FILTERED)


def test_event_has_figures_and_checks(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()

    manifest = require_manifest(root / "stage_a/mixed/filtered/notes")
    event = latest_materialization(instance, FILTERED)
    assert (event.partition, event.tags["dagster/data_version"]) == ("notes", manifest.digest)
    metadata = event.metadata
    assert metadata["documents"].value == metadata["dagster/row_count"].value == manifest.identity.counts["documents"]
    columns = metadata["dagster/column_schema"].value.columns
    assert {column.name: column.type for column in columns}.items() >= {
        ("text", "large_string"),
        ("meta.source_row", "int64"),
    }
    [evaluation] = [record.evaluation for record in check_records(instance, FILTERED, "ledger_adds_up")]
    assert (evaluation.passed, evaluation.blocking) == (True, True)
    assert evaluation.description.startswith("notes: 40 in = ")
    assert evaluation.metadata["in"].value == 40


def test_scan_of_known_artifacts_reports_nothing(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    report_sealed_artifacts([SYSTEMS.read_recipe(root / "recipes" / "mixed.yaml")], root, instance)

    assert [scan(), scan()] == ["events reported: 0", "nothing was built since the last scan"]
    assert count_materializations(instance, RAW) == count_materializations(instance, REPORT) == 1


def stale_roles(root: Path, instance: dg.DagsterInstance) -> tuple[set[str], set[str]]:
    return (
        {role for role, state in states(root).items() if state != "current"},
        {role for role, state in staleness(root, instance).items() if state != "FRESH"},
    )


def edit_recipe(old: str, new: str) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        path = root / "recipes" / "mixed.yaml"
        path.write_text(path.read_text().replace(old, new))

    return edit


edit_source_filter = edit_recipe("- proprietary\n", "- proprietary\n- mit\n")
edit_first_step = edit_recipe("domain: books", "domain: letters")
edit_comment = edit_recipe("name: mixed", "# A remark.\nname: mixed")


def edit_files(root: Path) -> None:
    path = next((root / "sources" / "notes").rglob("*.jsonl*"))
    path.write_bytes(path.read_bytes())  # rewritten with equal bytes


def forget_note(root: Path) -> None:
    forget_ids(root, ["note-7"])


@pytest.mark.parametrize(
    "edit",
    [edit_source_filter, edit_first_step, edit_comment, edit_files, forget_note],
    ids=["filter", "first", "comment", "files", "forgotten"],
)
def test_status_and_ui_agree_on_stale_artifacts_after_an_edit(
    edit: Callable[[Path], None], scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    scan()
    assert stale_roles(root, instance) == (set(), set())

    edit(root)
    scan()
    status_stale, ui_stale = stale_roles(root, instance)
    assert ui_stale == status_stale
    assert bool(status_stale) == (edit is not edit_comment)
    for kind in ("raw", "normalized", "filtered", "report"):  # step by step
        run_kinds(root, {f"stage_a/{kind}"})
        scan()
        status_stale, ui_stale = stale_roles(root, instance)
        assert ui_stale == status_stale, kind

    assert stale_roles(root, instance) == (set(), set())


def test_downstream_artifact_of_damaged_files_is_stale(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()
    shard = next((root / "stage_a/mixed/normalized/notes/shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])

    scan()

    assert staleness(root, instance)["stage_a/filtered/notes"] == "STALE"


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def shorten_shard(folder: Path) -> None:
    shard = next((folder / "shards").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.mark.parametrize("lose", [remove_folder, shorten_shard])
def test_lost_artifact_is_stale_until_its_rebuild(
    lose: Callable[[Path], None], scan: Scan, instance: dg.DagsterInstance, root: Path
) -> None:
    scan()

    lose(root / "stage_a/mixed/filtered/notes")
    messages = [scan(), scan()]
    lost = {role for role, state in staleness(root, instance).items() if state == "STALE"}
    run_kinds(root)
    scan()

    assert "stage_a/filtered/notes" in lost
    assert messages[1] == "nothing was built since the last scan"
    assert stale_roles(root, instance) == (set(), set())


def test_status_and_ui_agree_at_the_first_scan(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    edit_source_filter(root)

    scan()

    stale = {role for role, state in states(root).items() if state == "stale"}
    assert stale and stale == {role for role, state in staleness(root, instance).items() if state == "STALE"}


def test_reverted_edit_leaves_nothing_stale(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    scan()
    path = root / "recipes" / "mixed.yaml"
    before = path.read_text()

    edit_first_step(root)
    scan()
    edited = stale_roles(root, instance)
    path.write_text(before)
    scan()

    assert edited[0] and edited[0] == edited[1]
    assert stale_roles(root, instance) == (set(), set())


def test_another_stage_version_makes_its_artifacts_stale(
    scan: Scan, instance: dg.DagsterInstance, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan()
    monkeypatch.setattr(stage_a, "FILTERED", replace(stage_a.FILTERED, stage=StageVersion("filter", 99)))
    kinds = tuple(stage_a.FILTERED if kind.name == stage_a.FILTERED.name else kind for kind in stage_a.KINDS)
    monkeypatch.setattr(stage_a, "KINDS", kinds)

    scan()

    status_stale, ui_stale = stale_roles(root, instance)
    assert "stage_a/filtered/notes" in status_stale
    assert ui_stale == status_stale


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


def test_artifact_of_two_recipes_is_shown_for_both(scan: Scan, instance: dg.DagsterInstance, root: Path) -> None:
    content = (root / "recipes" / "mixed.yaml").read_text()
    outputs = "outputs: {normalized_dir: stage_a/mixed/normalized}"
    (root / "recipes" / "again.yaml").write_text(content.replace("name: mixed", f"name: again\n{outputs}", 1))

    scan()

    current = {role for role, state in states(root, "again").items() if state == "current"}
    fresh = {role for role, state in staleness(root, instance, "again").items() if state == "FRESH"}
    assert current and fresh == current


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

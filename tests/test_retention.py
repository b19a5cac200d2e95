"""Old runs of recipes are deleted with events and logs; shown results are kept."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pytest

from pipeline_assets import retention
from pipeline_assets.build.run import KEEP_RUNS_DAYS
from pipeline_assets.compat import ASSET_JOB
from pipeline_assets.dead_runs import end_dead_runs
from pipeline_assets.instance import instance_home
from pipeline_assets.jobs import RECIPE_TAG
from pipeline_assets.retention import delete_runs, retention_sensor

TAGS = {RECIPE_TAG: "notes"}
PARTS = dg.StaticPartitionsDefinition(["a", "b"])


@dg.multi_asset_check(specs=[dg.AssetCheckSpec("is_whole", asset=["stage_a", "notes", "corpus"])])
def check_whole() -> Iterator[dg.AssetCheckResult]:
    yield dg.AssetCheckResult(passed=True, asset_key=dg.AssetKey(["stage_a", "notes", "corpus"]), check_name="is_whole")


@dg.asset(partitions_def=PARTS, key_prefix=["stage_a", "notes"])
def corpus() -> None:
    print("read by the compute log")


@dg.op
def fail() -> None:
    raise dg.Failure("no")


@dg.job(tags=TAGS)
def failing() -> None:
    fail()


@dg.job
def failing_elsewhere() -> None:
    fail()


@dg.asset(deps=[corpus], partitions_def=PARTS)
def index() -> None: ...


DEFINITIONS = dg.Definitions(
    assets=[corpus, index],
    asset_checks=[check_whole],
    jobs=[
        failing,
        failing_elsewhere,
        dg.define_asset_job("build", [corpus], partitions_def=PARTS, tags=TAGS),
        dg.define_asset_job("check", dg.AssetSelection.checks(check_whole), tags=TAGS),
    ],
    sensors=[retention_sensor()],
    executor=dg.in_process_executor,
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Open the SQLite instance of a data root, which has a file for each run."""
    with dg.DagsterInstance.from_config(str(instance_home(tmp_path))) as instance:
        yield instance


def run(instance: dg.DagsterInstance, job: str, partition: str | None = None) -> str:
    definition = DEFINITIONS.resolve_job_def(job)
    return definition.execute_in_process(instance=instance, partition_key=partition, raise_on_error=False).run_id


def add_check_run(instance: dg.DagsterInstance, asset: dg.AssetKey) -> str:
    """Add a finished run that executed only a check, as the UI starts it."""
    checks = frozenset({dg.AssetCheckKey(asset, "is_whole")})
    status = dg.DagsterRunStatus.SUCCESS
    return instance.add_run(dg.DagsterRun(ASSET_JOB, status=status, asset_check_selection=checks)).run_id


def materialize(instance: dg.DagsterInstance, *keys: dg.AssetKey) -> str:
    job = DEFINITIONS.resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=instance, partition_key="a", asset_selection=keys).run_id


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def run_files(root: Path, run_id: str) -> list[Path]:
    return [path for path in root.rglob("*") if run_id in path.name]


def test_runs_of_other_projects_are_kept(home: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {run(home, "failing_elsewhere"), materialize(home, index.key), materialize(home, index.key, corpus.key)}
    kept.add(add_check_run(home, index.key))
    add_check_run(home, corpus.key)
    own = [materialize(home, corpus.key) for _ in range(2)]
    monkeypatch.setattr(retention, "_PAGE_RUNS", 2)

    deleted = delete_runs(home, DEFINITIONS.get_repository_def(), tomorrow())

    assert (deleted, {entry.run_id for entry in home.get_runs()}) == (2, kept | {own[-1]})


@pytest.mark.slow
def test_runs_with_ui_results_are_kept_and_others_leave_no_files(home: dg.DagsterInstance, tmp_path: Path) -> None:
    first, newest_a, newest_b = run(home, "build", "a"), run(home, "build", "a"), run(home, "build", "b")
    failed, earlier_check, newest_check = run(home, "failing"), run(home, "check"), run(home, "check")
    before = {run_id: run_files(tmp_path, run_id) for run_id in (first, failed)}

    deleted = delete_runs(home, DEFINITIONS.get_repository_def(), tomorrow())

    assert deleted == 3 and all(before.values())
    assert {entry.run_id for entry in home.get_runs()} == {newest_a, newest_b, newest_check}
    assert [run_files(tmp_path, run_id) for run_id in (first, failed, earlier_check)] == [[], [], []]
    assert home.get_materialized_partitions(corpus.key) == {"a", "b"}
    assert len(home.fetch_materializations(corpus.key, limit=9).records) == 2


def test_a_deletion_that_was_killed_leaves_no_logs(
    home: dg.DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = run(home, "failing")
    logs = tmp_path / "dagster" / "compute_logs" / run_id
    logs.mkdir(parents=True, exist_ok=True)
    repository, delete_logs = DEFINITIONS.get_repository_def(), home.compute_log_manager.delete_logs

    def kill(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(home.compute_log_manager, "delete_logs", kill)
    with pytest.raises(KeyboardInterrupt):
        delete_runs(home, repository, tomorrow())
    monkeypatch.setattr(home.compute_log_manager, "delete_logs", delete_logs)

    assert (delete_runs(home, repository, tomorrow()), run_files(tmp_path, run_id)) == (1, [])


def test_recent_and_unfinished_runs_are_kept(home: dg.DagsterInstance) -> None:
    kept, unfinished = run(home, "failing"), home.create_run_for_job(failing).run_id

    recent = delete_runs(home, DEFINITIONS.get_repository_def(), datetime.now(UTC) - timedelta(days=1))
    deleted = delete_runs(home, DEFINITIONS.get_repository_def(), tomorrow())

    assert (recent, deleted) == (0, 1)
    assert kept != unfinished and [entry.run_id for entry in home.get_runs()] == [unfinished]


def test_runs_of_a_dead_code_server_end_and_other_runs_are_unchanged(home: dg.DagsterInstance) -> None:
    finished = run(home, "failing")
    started, canceling, waiting = (home.create_run_for_job(failing) for _ in range(3))
    home.report_run_canceling(canceling)
    home.report_dagster_event(dg.DagsterEvent("PIPELINE_START", failing.name, message=""), started.run_id)

    earlier = end_dead_runs(home, datetime.now(UTC) - timedelta(days=1))
    ended = end_dead_runs(home, tomorrow())

    statuses = {entry.run_id: entry.status.value for entry in home.get_runs()}
    runs = (finished, started.run_id, canceling.run_id, waiting.run_id)
    assert (earlier, ended) == (0, 2)
    assert [statuses[run_id] for run_id in runs] == ["FAILURE", "FAILURE", "CANCELED", "NOT_STARTED"]


def test_the_sensor_reads_the_days_from_the_environment(
    home: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(home, "failing")
    messages = []

    for days in ("", "7", "0"):
        monkeypatch.setenv(KEEP_RUNS_DAYS.variable, days)
        with dg.build_sensor_context(home, definitions=DEFINITIONS) as context:
            messages.append(retention_sensor().evaluate_tick(context).skip_message)

    assert messages == ["deleted 0 runs older than 90 days", "deleted 0 runs older than 7 days", "all runs are kept"]
    assert len(home.get_runs()) == 1

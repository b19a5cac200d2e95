"""The Dagster instance of a data root survives crashes and never fails a build."""

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import sqlalchemy
from command_results import Corpusmill
from mounts import mounted
from refusals import refusal

from pipeline_assets import instance
from pipeline_assets.instance import INSTANCE_CONFIG, instance_home, open_instance
from pipeline_assets.spine.errors import RetryableError, UsageError

DATABASES = ("history/runs.db", "history/runs/index.db", "schedules/schedules.db")
SEEDED = random.Random(7).sample(range(1, 120), 6)


def create_like_dagster_dev(root: Path) -> None:
    """Create the instance as `dagster dev` does: in place and without a lock."""
    home = root / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    config = INSTANCE_CONFIG.read_text().replace("data/dagster", str(home))
    (home / "dagster.yaml").write_text(config)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.get_runs_count()


def is_killed_at_statement(at: int, create: Callable[[Path], object], root: Path) -> bool:
    pid = os.fork()
    if pid == 0:
        statements = iter(range(1, at))

        def die(*_: object) -> None:
            if next(statements, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", die)
        with contextlib.suppress(BaseException):
            create(root)
            os._exit(0)
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


def record_sources(root: Path, name: str = "notes") -> list[str]:
    with open_instance(root) as instance:
        assert instance.get_runs_count() == 0
        instance.add_dynamic_partitions("sources", [name])
    with dg.DagsterInstance.from_config(str(instance_home(root))) as instance:
        return list(instance.get_dynamic_partitions("sources"))


@pytest.mark.parametrize("create", [instance_home, create_like_dagster_dev])
@pytest.mark.parametrize("at", [*SEEDED[:3], *(pytest.param(at, marks=pytest.mark.slow) for at in SEEDED[3:])])
def test_an_instance_killed_during_creation_is_recreated(
    at: int, create: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert is_killed_at_statement(at, create, tmp_path)

    assert record_sources(tmp_path) == ["notes"]
    assert caplog.messages == []
    assert sorted(os.listdir(tmp_path)) == [".dagster.lock", "dagster"]


def test_other_files_and_the_contents_of_an_intact_instance_are_kept(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "notes.txt").write_text("mine")
    (tmp_path / "dagster").symlink_to(tmp_path / "elsewhere")
    create_like_dagster_dev(tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path / "dagster")) as instance:
        instance.add_dynamic_partitions("sources", ["of dagster dev"])

    assert sorted(record_sources(tmp_path)) == ["notes", "of dagster dev"]
    assert sorted(os.listdir(tmp_path / "elsewhere")) == ["dagster.yaml", "history", "notes.txt", "schedules"]


def test_the_instance_is_in_a_data_root_with_any_characters(tmp_path: Path) -> None:
    name = "- web: 2 #2\n'ä' \"b\" %20 {c} $HOME"
    root = tmp_path / "roots" / name
    root.mkdir(parents=True)

    assert record_sources(root) == ["notes"]

    assert os.listdir(tmp_path / "roots") == [name]
    assert all((root / "dagster" / database).is_file() for database in DATABASES)


def test_a_data_root_with_a_question_mark_is_refused_unless_linked(tmp_path: Path) -> None:
    (tmp_path / "web?").mkdir()
    assert refusal(lambda: record_sources(tmp_path / "web?"), UsageError) == (
        f"{tmp_path}/web?/dagster: the path of the UI's database contains `?`; pass a link to the data root as --data"
    )

    (tmp_path / "linked").symlink_to("web?")
    assert record_sources(tmp_path / "linked") == ["notes"]


def test_a_data_root_that_moved_keeps_its_instance(tmp_path: Path) -> None:
    record_sources(tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")

    home = instance_home(tmp_path / "there")

    assert f"base_dir: {home}\n" in (home / "dagster.yaml").read_text()
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.get_dynamic_partitions("sources") == ["notes"]


def test_concurrent_processes_create_one_instance(tmp_path: Path) -> None:
    names = ["notes 0", "notes 1", "notes 2"]  # Dagster refuses one name added twice at once
    processes = [multiprocessing.get_context("fork").Process(target=record_sources, args=(tmp_path, n)) for n in names]

    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert sorted(record_sources(tmp_path)) == ["notes", *names]
    assert sorted(os.listdir(tmp_path)) == [".dagster.lock", "dagster"]


def test_tables_of_an_earlier_dagster_version_are_migrated(tmp_path: Path) -> None:
    before_checks, path = "5771160a95ad", instance_home(tmp_path) / "history/runs/index.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        [newest] = database.execute("SELECT version_num FROM alembic_version").fetchone()
        for table in ("asset_check_executions", "concurrency_limits"):
            database.execute(f"DROP TABLE {table}")
        database.execute("UPDATE alembic_version SET version_num = ?", [before_checks])

    assert record_sources(tmp_path) == ["notes"]

    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [(newest,)]
        assert database.execute("SELECT count(*) FROM asset_check_executions").fetchall() == [(0,)]


def test_tables_of_a_later_dagster_version_are_read_as_they_are(tmp_path: Path) -> None:
    path = instance_home(tmp_path) / "history/runs/index.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")

    assert record_sources(tmp_path) == ["notes"]

    with contextlib.closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT version_num FROM alembic_version").fetchall() == [("ffffffffffff",)]


def fill_with_noise(home: Path) -> None:
    for name in DATABASES:
        (home / name).write_bytes(random.Random(name).randbytes(40_000))


def damage_after_the_first_page(home: Path) -> None:
    path = home / "history/runs/index.db"
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(byte ^ 0x5A for byte in data[4096:]))


def replace_with_file(home: Path) -> None:
    shutil.rmtree(home)
    home.write_text("")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (fill_with_noise, "file is not a database"),
        (damage_after_the_first_page, "database disk image is malformed"),
        (replace_with_file, "expected a folder, got a file"),
    ],
)
def test_an_unreadable_instance_is_one_error_line(damage: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    damage(instance_home(tmp_path))

    with pytest.raises(RetryableError) as refused, open_instance(tmp_path) as instance:
        instance.get_latest_materialization_event(dg.AssetKey("notes"))

    assert (refused.value.what, refused.value.where) == (reason, str(tmp_path / "dagster"))


def test_errors_of_the_block_are_raised_unchanged(tmp_path: Path) -> None:
    for error in (UsageError("no such recipe", "notes", "choose another"), FileNotFoundError(2, "No such", "/a.yaml")):
        with pytest.raises(type(error)) as raised, open_instance(tmp_path):
            raise error

        assert raised.value is error


def test_a_locked_instance_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instance, "_LOCK_TIMEOUT_S", 0.1)
    home = instance_home(tmp_path)

    with contextlib.closing(sqlite3.connect(home / DATABASES[0], isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        with pytest.raises(RetryableError) as refused:
            instance_home(tmp_path)

    fix = "repair it, or move the folder away: a new one will be created"
    assert str(refused.value) == f"{home}: database is locked; {fix}"


@pytest.mark.parametrize("options", ["ro", "size=64k"])
def test_an_unwritable_instance_is_reported_in_one_line(options: str, tmp_path: Path) -> None:
    with mounted(tmp_path / "dagster", options), pytest.raises((RetryableError, OSError)) as refused:
        instance_home(tmp_path)

    assert "\n" not in str(refused.value)


def test_a_build_needs_no_instance(corpusmill: Corpusmill, notes_root: Path) -> None:
    (notes_root / "stage_a" / "mixed" / "filtered" / "notes").rename(notes_root / "before")
    (notes_root / "dagster").write_text("a file lies where it would be")

    result = corpusmill("run", "mixed", "--data", notes_root, "--workers", 0, "--json")

    assert result.returncode == 0, result.stderr
    assert "WARNING" not in result.stderr
    assert [row["artifact"] for row in json.loads(result.stdout) if row["was_built"]] == ["stage_a/filtered"]

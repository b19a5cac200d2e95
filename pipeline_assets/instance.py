"""The Dagster instance of a data root, which the UI uses.

An instance is three SQLite databases and a configuration in `<data root>/dagster`, created under a lock before they are
opened. If a database has no schema revision and no runs are stored, a creation was interrupted: all three databases are
created again. Tables of an earlier Dagster version are migrated. Any other problem, such as a full disk or a damaged
database, is reported and changes nothing.
"""

import contextlib
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import alembic.util
import dagster as dg
import sqlalchemy.exc

from pipeline_assets.compat import open_instance_with_overrides
from pipeline_assets.spine import durable
from pipeline_assets.spine.builder import BuilderBusyError
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError, one_line
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.recipe_yaml import inline_yaml
from pipeline_assets.spine.shipped import shipped_path

INSTANCE_CONFIG = shipped_path("dagster.yaml")
_CONFIG_FILE = "dagster.yaml"
_RUNS_DATABASE = "history/runs.db"
_DATABASES = (_RUNS_DATABASE, "history/runs/index.db", "schedules/schedules.db")
_CREATION_TIMEOUT_S = 120.0
_LOCK_TIMEOUT_S = 10.0
_POLL_S = 0.05
_FIX = "repair it, or move the folder away: a new one will be created"
# The output of a run remains on its terminal instead of being captured in the UI's log files.
_NO_LOG_CAPTURE = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


def instance_home(root: Path) -> Path:
    """Return a data root's folder for DAGSTER_HOME; create the folder if missing.

    The folder has the project's configuration, with absolute paths. Raise RetryableError if it is a file or has an
    unusable database, and UsageError if its path contains a question mark.
    """
    home = root.absolute() / "dagster"
    if home.is_file():
        raise RetryableError("expected a folder, got a file", home, "move the file away")
    if "?" in str(home):  # the URL of an SQLite database ends there
        raise UsageError("the path of the UI's database contains `?`", home, "pass a link to the data root as --data")
    try:
        if _is_uninitialized(home) or not _is_configured(home):
            _create_instance(home)
        for name in _DATABASES:
            with _open_database(home / name, "rw") as database:
                database.execute("BEGIN IMMEDIATE")
    except (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError) as error:
        raise RetryableError(_format_reason(error), home, _FIX) from None
    return home


@contextlib.contextmanager
def open_instance(root: Path) -> Iterator[dg.DagsterInstance]:
    """Open the instance of a data root, after migrating tables of an earlier version.

    Storage errors become RetryableErrors; other errors of the `with` block are raised unchanged.
    """
    home = instance_home(root)
    try:
        with _load_instance(home) as instance:
            _migrate_tables(instance, home)
            yield instance
    except InputError:
        raise
    except Exception as error:  # Dagster wraps some errors of its storage
        cause: BaseException | None = error
        while cause is not None and not _is_storage_error(cause, home):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise RetryableError(_format_reason(cause), home, _FIX) from error


def _is_storage_error(error: BaseException, home: Path) -> bool:
    """Check whether an error comes from a database or a file of the instance."""
    if isinstance(error, OSError):
        return isinstance(error.filename, str | Path) and Path(error.filename).is_relative_to(home)
    return isinstance(error, sqlite3.Error | sqlalchemy.exc.SQLAlchemyError)


def _format_reason(error: BaseException) -> str:
    """Format an error as one line, without the SQL statement."""
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        error = error.orig or error
    return one_line(error) or type(error).__name__


def _load_instance(home: Path) -> dg.DagsterInstance:
    return open_instance_with_overrides(str(home), {"compute_logs": _NO_LOG_CAPTURE})


def _migrate_tables(instance: dg.DagsterInstance, home: Path) -> None:
    """Bring the tables of an earlier Dagster version up to date."""
    storages = (instance.run_storage, instance.event_log_storage, instance.schedule_storage)
    versions = [storage.alembic_version() for storage in storages if storage is not None]
    if all(version is None or version[0] == version[1] for version in versions):
        return
    # Alembic knows no revision of a later Dagster version, whose tables an earlier one can usually read.
    with locked(home), contextlib.suppress(alembic.util.CommandError):
        instance.upgrade()


def _encode_config(home: Path) -> bytes:
    text = INSTANCE_CONFIG.read_text(encoding="utf-8")
    return re.sub(r"data/dagster(\S*)", lambda path: inline_yaml(f"{home}{path[1]}"), text).encode()


def _is_configured(home: Path) -> bool:
    path = home / _CONFIG_FILE
    return path.is_file() and path.read_bytes() == _encode_config(home)


def _is_uninitialized(home: Path) -> bool:
    """Check whether no runs are stored and a database has no schema revision."""
    is_incomplete = any(not _has_rows(home / name, "alembic_version") for name in _DATABASES)
    return is_incomplete and not _has_rows(home / _RUNS_DATABASE, "runs")


def _has_rows(path: Path, table: str) -> bool:
    if not path.exists():
        return False
    with _open_database(path, "ro") as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            return False
        return database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() is not None


def _open_database(path: Path, mode: str) -> contextlib.closing[sqlite3.Connection]:
    uri = f"{path.as_uri()}?mode={mode}"
    return contextlib.closing(sqlite3.connect(uri, timeout=_LOCK_TIMEOUT_S, isolation_level=None, uri=True))


def _create_instance(home: Path) -> None:
    """Write the configuration, and replace incomplete databases, under a lock."""
    deadline = time.monotonic() + _CREATION_TIMEOUT_S
    while True:
        try:
            with locked(home):
                if is_incomplete := _is_uninitialized(home):
                    for name in ("history", "schedules"):
                        durable.remove(home / name)
                    durable.make_folder(home)
                if not _is_configured(home):
                    durable.write_durably(home / _CONFIG_FILE, _encode_config(home))
                if is_incomplete:
                    with _load_instance(home) as instance:
                        instance.get_runs_count()
                return
        except BuilderBusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)

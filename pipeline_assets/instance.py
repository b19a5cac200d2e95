"""The Dagster instance of a data root: a view of what is built, whole before anybody opens it. Only the UI does.

It is three SQLite databases and a configuration, in `<data root>/dagster`, made under a lock. What a kill left
half-made, of `dagster dev` for instance, has a database without a revision and no run: its databases are made anew.
Everything else that is wrong with it (a disk that is full or may not be written to, a damaged or locked database) is
left as it is, and said.
"""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import sqlalchemy.exc

from pipeline_assets.compat import instance_with_overrides
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError, one_line
from pipeline_assets.spine.lock import BuilderBusy, locked
from pipeline_assets.spine.shipped import shipped_path

INSTANCE_CONFIG = shipped_path("dagster.yaml")
_CONFIG = "dagster.yaml"
_RUNS = "history/runs.db"
_DATABASES = (_RUNS, "history/runs/index.db", "schedules/schedules.db")
_MAKING_S = 120.0
_LOCKED_S = 10.0
_POLL_S = 0.05
_FIX = "mend that, or move the folder away: another is made"
# What a run prints stays on its terminal instead of going to the UI's log files.
_NO_CAPTURE = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}


def instance_home(root: Path) -> Path:
    """The folder that DAGSTER_HOME names for a data root, whole, with the project's configuration in absolute paths.

    Raises:
        RetryableError: it can't be made, read or written.
    """
    home = root.absolute() / "dagster"
    if home.is_file():
        raise RetryableError("a file lies where a folder belongs", home, "move it away")
    try:
        if _is_half_made(home) or not _is_configured(home):
            _make(home)
        for name in _DATABASES:
            with _connected(home / name, "rw") as database:
                database.execute("BEGIN IMMEDIATE")
    except (sqlite3.Error, sqlalchemy.exc.SQLAlchemyError) as error:
        raise RetryableError(_reason(error), home, _FIX) from None
    return home


@contextlib.contextmanager
def open_instance(root: Path) -> Iterator[dg.DagsterInstance]:
    """The data root's instance, made where there is none.

    Raises:
        RetryableError: as `instance_home`, or the block met a damaged database, or one that can't be written.
    """
    home = instance_home(root)
    try:
        with _instance(home) as instance:
            yield instance
    except Exception as error:  # Dagster wraps some of what its storage raises
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError | sqlite3.Error | sqlalchemy.exc.SQLAlchemyError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise RetryableError(_reason(cause), home, _FIX) from error


def _reason(error: BaseException) -> str:
    """One line: of SQLAlchemy's without the statement."""
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        error = error.orig or error
    return one_line(error) or type(error).__name__


def _instance(home: Path) -> dg.DagsterInstance:
    return instance_with_overrides(str(home), {"compute_logs": _NO_CAPTURE})


def _config(home: Path) -> bytes:
    return INSTANCE_CONFIG.read_text(encoding="utf-8").replace("data/dagster", str(home)).encode()


def _is_configured(home: Path) -> bool:
    path = home / _CONFIG
    return path.is_file() and path.read_bytes() == _config(home)


def _is_half_made(home: Path) -> bool:
    """Whether a database is missing, or was never finished, and no run is noted: nothing is lost with it."""
    return any(_rows(home / name, "alembic_version") == 0 for name in _DATABASES) and _rows(home / _RUNS, "runs") == 0


def _rows(path: Path, table: str) -> int:
    """Rows of a table of a database, at most one; 0 where there is no such table or file."""
    if not path.exists():
        return 0
    with _connected(path, "ro") as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
            return 0
        return len(database.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchall())


@contextlib.contextmanager
def _connected(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    uri = f"{path.as_uri()}?mode={mode}"
    with contextlib.closing(sqlite3.connect(uri, timeout=_LOCKED_S, isolation_level=None, uri=True)) as database:
        yield database


def _make(home: Path) -> None:
    """Make the databases and the configuration that are missing; alone: others wait, and find them made."""
    deadline = time.monotonic() + _MAKING_S
    while True:
        try:
            with locked(home):
                if is_half_made := _is_half_made(home):
                    for name in ("history", "schedules"):
                        durable.remove(home / name)
                    durable.make_folder(home)
                if not _is_configured(home):
                    durable.write_durably(home / _CONFIG, _config(home))
                if is_half_made:
                    with _instance(home) as instance:
                        instance.get_runs_count()
                return
        except BuilderBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)

"""Resource usage, provenance and progress of a build."""

import contextlib
import datetime
import gc
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard

from pipeline_assets.spine.bars import end_bars, label_bars
from pipeline_assets.spine.gc_pause import pause_gc
from pipeline_assets.spine.machine_memory import memory_bytes
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.provenance import ProvenanceRecorder, git_sha
from pipeline_assets.spine.usage import folder_bytes

MB = 1 << 20
PEAK = "from pipeline_assets.spine.usage import peak_memory_bytes; print(peak_memory_bytes(), flush=True)\n"
IN_THE_PROCESS = f"block = b'x' * {64 * MB}; del block\n"
IN_A_CHILD = f"import os\nif os.fork() == 0:\n    block = b'x' * {64 * MB}; os._exit(0)\nos.wait()\n"


@pytest.mark.parametrize("work", [IN_THE_PROCESS, IN_A_CHILD], ids=["here", "in a child"])
def test_peak_memory_is_that_of_the_largest_process_also_after_its_release(work: str) -> None:
    small_parent = ["sh", "-c", '"$@"; exit $?', "sh"]  # a process starts with the peak of its parent
    command = [*small_parent, sys.executable, "-c", PEAK + work + PEAK]
    process = subprocess.run(command, capture_output=True, check=True)
    before, after = map(int, process.stdout.split())

    assert 56 * MB < after - before < 80 * MB


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n", "", None])
def test_memory_of_the_machine_counts_without_a_lower_limit(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "memory.max"
    if text is not None:
        file.write_text(text)

    assert memory_bytes([file]) == memory_bytes([]) > 1 << 20


def test_lowest_memory_limit_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("2000000\n")
    (tmp_path / "memory.limit_in_bytes").write_text("1000000\n")

    assert memory_bytes([tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"]) == 1_000_000


def test_file_with_several_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "deep" / "deeper" / "b").write_bytes(b"x" * 500)
    os.link(tmp_path / "a", tmp_path / "deep" / "c")

    assert folder_bytes(tmp_path) == 1500
    assert folder_bytes(tmp_path / "deep") == 1500
    assert folder_bytes(tmp_path / "nowhere") == 0


def test_outermost_gc_pause_enables_the_collector_also_after_an_error() -> None:
    with pytest.raises(KeyError), pause_gc():
        with pause_gc():
            pass
        assert not gc.isenabled()
        raise KeyError

    assert gc.isenabled()


def test_provenance_has_time_host_versions_and_run_settings() -> None:
    recorder = ProvenanceRecorder()

    record = recorder.provenance({"workers": 2})

    known = ["cpu_seconds", "git_sha", "host", "libraries", "platform", "python"]
    assert sorted(record) == [*known, "run_settings", "seconds", "started_at_utc"]
    assert record["run_settings"] == {"workers": 2}
    assert record["libraries"].items() >= {"pyarrow": pa.__version__, "zstandard": zstandard.__version__}.items()
    assert record["seconds"] >= 0
    assert datetime.datetime.fromisoformat(record["started_at_utc"]).utcoffset() == datetime.timedelta(0)
    assert json.loads(json.dumps(record)) == record


@pytest.mark.parametrize("variable", ["GIT_DIR", "PATH"], ids=["outside a checkout", "without git"])
def test_commit_is_none_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "nothing"))

    assert git_sha.__wrapped__() is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """Return the drawn lines without escape sequences."""
        drawn = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", self.getvalue()).replace("\r", "\n")
        return [line.rstrip() for line in drawn.splitlines() if line.strip()]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> list[float]:
    """Replace the clock by the only item of a list, and capture log messages."""
    caplog.set_level(logging.INFO, "corpusmill")
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("total", "unit", "seconds", "done", "counts", "line"),
    [
        (
            *(8, "shards", 4, 2, {"documents": 6_000, "tokens": 2_000_000, "bytes": 12_300_000}),
            "2/8 shards; 6,000 documents, 1,500/s; 2,000,000 tokens, 500,000/s; 12.3 MB, 3.1 MB/s; 12 s left",
        ),
        (12 * 10**9, "bytes", 4, 2 * 10**9, {}, "2,000.0 of 12,000.0 MB, 500.0 MB/s; 20 s left"),
        (4, "files", 1, 0, {}, "0/4 files"),
        (4, "files", 1, 4, {}, "4/4 files"),
        (0, "files", 0, 0, {"bytes": 0}, "0/0 files; 0.0 MB"),
    ],
)
def test_progress_line_has_counts_rates_and_remaining_time(
    clock: list[float], total: int, unit: str, seconds: float, done: int, counts: dict[str, int], line: str
) -> None:
    progress = Progress("fetch", total, unit, log_every_s=10)

    clock[0] += seconds
    progress.add(done, counts)

    assert progress.format_line() == f"fetch: {line}"


def test_log_lines_are_written_at_the_interval(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("convert", 100, "shards", log_every_s=10)

    for _ in range(50):
        clock[0] += 0.5
        progress.add(1, {})

    assert caplog.messages == [
        "convert: 20/100 shards; 40 s left",
        "convert: 40/100 shards; 30 s left",
    ]


@contextlib.contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Replace standard error by a terminal of 60 columns without colours."""
    screen = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", screen)
        patch.setenv("COLUMNS", "60")
        patch.setenv("NO_COLOR", "1")
        yield screen
        end_bars()


def test_terminal_shows_a_bar_with_step_count_and_remaining_time(
    monkeypatch: pytest.MonkeyPatch, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with terminal(monkeypatch) as screen, label_bars(3, 12):
        progress = Progress("fetch", 4, "files", log_every_s=0)
        clock[0] += 1
        progress.add(2, {})
        half = screen.lines()
        progress.add(2, {})

    assert half[-1:] == [f"step 3 of 12: fetch {'━' * 10}{' ' * 10} 2/4 files; 1 s left"]
    assert screen.lines()[-1] == f"step 3 of 12: fetch {'━' * 20} 4/4 files"
    assert screen.getvalue().endswith("\x1b[?25h"), "the cursor is back"
    assert caplog.messages == []


def test_unfinished_bar_ends_with_its_step(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    results = sys.stdout
    with terminal(monkeypatch) as screen:
        first, second = Progress("fetch", 4, "files", log_every_s=0), Progress("hash", 4, "files", log_every_s=0)
        with label_bars(1, 2):
            first.add(1)
            assert sys.stdout is results
        with label_bars(2, 2):
            second.add(1)

    assert screen.getvalue().count("\x1b[?25h") == screen.getvalue().count("\x1b[?25l") == 2
    assert screen.lines()[-1].startswith("step 2 of 2: hash ")


def test_bar_is_one_line_and_does_not_interpret_markup(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    with terminal(monkeypatch) as screen:
        Progress("fetch [red]notes[/]\n" + "of a long name " * 9, 2, "files", log_every_s=0).add(1)
        line = screen.lines()[-1]

    assert line.startswith("fetch [red]notes[/]⏎of a long") and len(line) <= 60


def test_earlier_counts_have_no_rate_and_are_not_part_of_one(clock: list[float]) -> None:
    progress = Progress("convert", 4, "shards", log_every_s=10)

    clock[0] += 2
    progress.add_earlier(2, {"documents": 6_000, "bytes": 9_000_000})
    initial_line = progress.format_line()
    progress.add(1, {"documents": 10})

    assert initial_line == "convert: 2/4 shards; 6,000 documents; 9.0 MB"
    assert progress.format_line() == "convert: 3/4 shards; 6,010 documents, 5/s; 9.0 MB; 2 s left"


def test_earlier_work_is_logged_once_at_the_end(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    progress = Progress("fetch", 2, "files", log_every_s=10)

    progress.add_earlier(1)
    progress.add_earlier(1)

    assert caplog.messages == ["fetch: 2/2 files"]


def test_progress_within_the_quiet_time_is_not_logged(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    short, long = (Progress(title, 2, "files", log_every_s=10, initial_quiet_s=2) for title in ("short", "long"))
    clock[0] += 1
    short.add(2, {})
    long.add(1, {})
    clock[0] += 10
    long.add(1, {})

    assert caplog.messages == ["long: 2/2 files"]

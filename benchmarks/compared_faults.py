"""Faults of compared.py: killed processes and cut files."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from measure import PROJECT

HALF_WRITTEN = 1 << 18  # bytes in a file when its writer is killed
PATIENCE_S = 60  # after a kill; then the run is stopped as hanging
_ERROR = re.compile(r"^(corpusmill: |[\w.]*(Error|Exception|ArrowInvalid): )")
_WARNING = re.compile(r"WARNING|ERROR|Loading a state dict|a worker died|was not read")
_LONGEST = 180  # characters of a message in the table


def read_texts(path: Path) -> Iterator[str]:
    """Read the texts of a whole file of rows."""
    import polars
    import zstandard

    if path.suffix == ".parquet":
        yield from polars.read_parquet(path, columns=["text"])["text"]
        return
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if path.suffix == ".zst":
        data = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()
    for line in data.splitlines():
        yield json.loads(line)["text"]


def count_ids(folder: Path, pattern: str = "*") -> Counter[str]:
    paths = [path for path in sorted(folder.glob(pattern)) if path.is_file()]
    return Counter(text.split(" ", 1)[0] for path in paths for text in read_texts(path))


def environment(folder: Path) -> dict[str, str]:
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    path = os.pathsep.join([str(PROJECT), str(PROJECT / "pipeline_assets/api"), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, **offline, "HF_HOME": str(folder / "hf"), "PYTHONPATH": path, "LOGURU_COLORIZE": "NO"}


def start(command: list[str], folder: Path) -> subprocess.Popen[str]:
    with (folder / "messages").open("w") as messages:
        return subprocess.Popen(
            command,
            stdout=messages,
            stderr=messages,
            env=environment(folder),
            cwd=folder,
            start_new_session=True,
            text=True,
        )


def run(command: list[str], folder: Path) -> str:
    """Run to the end; return the error, or a warning, or nothing."""
    status = start(command, folder).wait(300)
    return f"fails: {shown_error(folder)}" if status else shown_warning(folder)


def shown_error(folder: Path) -> str:
    return _last_line([folder / "messages"], folder, _ERROR)


def shown_warning(folder: Path) -> str:
    """Return the last warning on the terminal, or else in a log file of datatrove."""
    if warning := _last_line([folder / "messages"], folder, _WARNING):
        return warning
    warning = _last_line(sorted(folder.glob("*logs/logs/*.log")), folder, _WARNING)
    return f"in a log file: {warning}" if warning else ""


def _last_line(files: list[Path], folder: Path, pattern: re.Pattern[str]) -> str:
    """Return the last line that matches, shortened, without colours, times and paths."""
    text = "\n".join(path.read_text(errors="replace") for path in files)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "\n").splitlines()
    matching = [line.strip() for line in lines if pattern.search(line)]
    line = re.sub(r"^\d\d:\d\d:\d\d |^\d{4}-\d\d-.*? - ", "", matching[-1] if matching else "")
    line = re.sub(r" +", " ", line.replace(f"{folder}/", "").replace("|", "/"))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"


def process_tree(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    try:
        tasks = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # the process, or one of its threads, has ended
        return
    for child in [child for task in tasks for child in task]:
        yield from process_tree(int(child))


def find_writer(process: subprocess.Popen[str], folder: Path, is_worker: bool) -> int | None:
    """Return a process that has a half-written file open below a folder, or None."""
    for pid in process_tree(process.pid):
        if is_worker and pid == process.pid:
            continue
        try:
            descriptors = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # the process has ended
            continue
        for descriptor in descriptors:
            try:
                target = Path(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
                flags = int(re.findall(r"flags:\s+(\d+)", Path(f"/proc/{pid}/fdinfo/{descriptor}").read_text())[0], 8)
                if target.is_relative_to(folder) and flags & 3 and target.stat().st_size >= HALF_WRITTEN:
                    return pid
            except (OSError, IndexError):
                continue
    return None


def kill_writer(command: list[str], folder: Path, watched: Path, whole: bool, is_worker: bool = True) -> str:
    """Start a run, `kill -9` the writing process or all, and return the outcome."""
    process = start(command, folder)
    while (writer := find_writer(process, watched, is_worker)) is None:
        if process.poll() is not None:
            sys.exit(f"{command}: ended before a file was half written: {shown_error(folder)}")
        time.sleep(0.005)
    if whole:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return ""
    os.kill(writer, signal.SIGKILL)
    try:
        status = process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"the run hangs ({PATIENCE_S} s): {shown_warning(folder) or 'no message'}"
    return f"the run ends: {shown_error(folder)}" if status else f"the run goes on: {shown_warning(folder)}"


def cut(path: Path, is_text: bool = False) -> None:
    """Cut a file to two thirds; if `is_text`, after the end of a line."""
    data = path.read_bytes()
    kept = data[: len(data) * 2 // 3]
    path.write_bytes(kept[: kept.rindex(b"\n") + 1] if is_text else kept)

"""Measurement of a flow in a process of its own.

Counts the CPU seconds of the whole process tree, wall seconds and peak memory, and returns the printed lines. Memory is
the proportional set size of the tree, so that pages shared by processes count once; it is sampled twenty times a
second, and the peak is the most that two samples in a row show.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).parents[1]
_SAMPLE_EVERY_S = 0.05
_CHILD = (
    "import json, multiprocessing, resource, runpy, sys, time\n"
    "started = time.perf_counter()\n"
    "sys.argv = sys.argv[1:]\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "for child in multiprocessing.active_children():\n"  # usage of a child counts once it has ended
    "    child.terminate(), child.join()\n"
    "own, others = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)\n"
    "cpu = own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime\n"
    "print(json.dumps([cpu, time.perf_counter() - started]))\n"
)


@dataclass(frozen=True)
class Measured:
    """Medians over the runs of one flow."""

    cpu_s: float
    wall_s: float
    peak_mb: float
    printed: str


_FIGURES = ("cpu_s", "wall_s", "peak_mb")


def measure(script: Path, arguments: list[str], runs: int) -> Measured:
    """Run a flow several times; exit if a run fails or two print different results."""
    figures, printed = [], set()
    for _ in range(runs):
        command = [sys.executable, "-c", _CHILD, str(script), *arguments]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(script.parent)])}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else the project would be compiled in every run
        status, output, errors, peak_mb = _run_sampled(command, environment)
        if status != 0:
            sys.exit(f"{script.name} {' '.join(arguments)}: {errors[-2000:]}")
        *lines, last = output.splitlines()
        figures.append([*json.loads(last), peak_mb])
        printed.add("\n".join(lines))
    if len(printed) != 1:
        sys.exit(f"{script.name} {' '.join(arguments)}: two runs printed different results")
    return Measured(*(statistics.median(column) for column in zip(*figures, strict=True)), printed.pop())


def measure_in_turn(script: Path, flows: Sequence[str], arguments: list[str], runs: int) -> dict[str, Measured]:
    """Run flows of a script in rounds, so that a slower machine slows all."""
    rounds = [{name: measure(script, [name, *arguments], 1) for name in flows} for _ in range(runs)]
    if any(results[name].printed != rounds[0][name].printed for results in rounds for name in flows):
        sys.exit(f"{script.name}: two runs of a flow printed different results")
    medians = {
        name: [statistics.median(getattr(results[name], figure) for results in rounds) for figure in _FIGURES]
        for name in flows
    }
    return {name: Measured(*medians[name], rounds[0][name].printed) for name in flows}


def _run_sampled(command: list[str], environment: dict[str, str]) -> tuple[int, str, str, float]:
    """Return the exit status, stdout, stderr, and the peak memory in MiB."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
        peak_kib = before_kib = 0
        while True:
            try:
                status = process.wait(_SAMPLE_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                now_kib = _tree_kib(process.pid)
                # Until it calls exec, a child made by vfork shows all of its parent's memory a second time. That lasts
                # about a millisecond, so only memory that two samples in a row show counts.
                peak_kib, before_kib = max(peak_kib, min(now_kib, before_kib)), now_kib
        output.seek(0)
        errors.seek(0)
        return status, output.read(), errors.read(), peak_kib / 1024


def _tree_kib(pid: int) -> int:
    """Return the proportional set size of a process and all its descendants."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # the process has ended
        return 0
    own = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return own + sum(_tree_kib(int(child)) for child in children)


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def machine_line() -> str:
    """Describe this machine in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor()
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"


def table(measured: dict[str, Measured], ceiling: str, mb: float) -> str:
    """Format flows as a Markdown table, each against the ceiling."""
    lines = ["| flow | CPU s | to the ceiling | MB per CPU s | wall s | peak MiB |", "|---" * 6 + "|"]
    for name, result in measured.items():
        ratio = result.cpu_s / measured[ceiling].cpu_s
        lines.append(
            f"| {name} | {result.cpu_s:.2f} | {ratio:.2f} | {mb / result.cpu_s:.0f} "
            f"| {result.wall_s:.2f} | {result.peak_mb:.0f} |"
        )
    return "\n".join(lines)


def ratios(measured: dict[str, Measured], ceiling: str) -> dict[str, float]:
    """Return the CPU seconds of each flow relative to those of the ceiling."""
    return {name: round(result.cpu_s / measured[ceiling].cpu_s, 3) for name, result in measured.items()}

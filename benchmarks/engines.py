"""Benchmark of Ray against worker processes, by the size of the input.

    python benchmarks/engines.py --mb 10 40 160 --documents 25000 100000 --workers 2

Builds the healing set of growth.py and deduplicates the corpus of dedup.py with each engine, both on this machine.
Prints the CPU seconds of all processes, Ray's own included. Digests are proven equal first. Ray is started and stopped
in each run. CPU seconds are read from /proc twenty times a second, since Ray's workers are no children of the program.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from dedup import write_generated
from growth import build as build_healing
from growth import link_files, write_files
from measure import PROJECT, machine_line

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.dedup.decision import DEDUP_STAGE
from pipeline_assets.corpus.dedup.dedup_corpus import dedup_corpus
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings

ENGINES = ("local", "ray")
_SAMPLE_EVERY_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")


def build_dedup(root: Path, settings: RunSettings) -> str:
    """Deduplicate the sealed corpus `root`/generated; return the digest."""
    sources, recipe = {"generated": open_artifact(root / "generated")}, DedupRecipe.model_validate({})
    target = Target(unknown_kind("benchmark/deduplicated", DEDUP_STAGE), "result", Path("result"), {})
    result = build_target(target, root, lambda staging: dedup_corpus(staging, sources, recipe, settings), False, {})
    return result.manifest.digest


def run_measured(*arguments: object) -> tuple[str, float, float]:
    """Run this script with `--build`; return the digest, CPU seconds and wall seconds."""
    command = [sys.executable, __file__, "--build", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)
        ticks: dict[tuple[int, str], int] = {}
        known = {process.pid}
        while process.poll() is None:
            _sample(known, ticks)
            time.sleep(_SAMPLE_EVERY_S)
        wall_s = time.perf_counter() - started
        output.seek(0)
        errors.seek(0)
        if process.returncode != 0:
            sys.exit(f"{arguments}: {errors.read()[-2000:]}")
        return output.read().split()[-1], sum(ticks.values()) / _TICKS, wall_s


def _sample(known: set[int], ticks: dict[tuple[int, str], int]) -> None:
    """Record the CPU ticks of each known process and of its descendants.

    `ticks` are those of a process alone, by process id and start time.
    """
    pending = list(known)
    while pending:
        pid = pending.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            tasks = [path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        except OSError:  # the process has ended
            known.discard(pid)
            continue
        ticks[pid, fields[19]] = int(fields[11]) + int(fields[12])
        children = {int(child) for task in tasks for child in task}
        pending += children - known
        known |= children


def compare(name: str, size: str, arguments: Sequence[object], workers: int) -> dict[str, float]:
    """Build with each engine, print a row of the table, and return CPU seconds."""
    digests, cpu_s, wall_s = set(), {}, {}
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as root:
            digest, cpu_s[engine], wall_s[engine] = run_measured(name, engine, workers, root, *arguments)
        digests.add(digest)
    if len(digests) != 1:
        sys.exit(f"{name} {size}: the engines' digests differ")
    cells = [name, size, *(f"{cpu_s[engine]:.1f}" for engine in ENGINES), f"{cpu_s['ray'] - cpu_s['local']:.1f}"]
    cells += [f"{cpu_s['ray'] / cpu_s['local']:.2f}", *(f"{wall_s[engine]:.0f}" for engine in ENGINES)]
    print("| " + " | ".join(cells) + " |", flush=True)
    return cpu_s


def build(name: str, engine: str, workers: str, root: str, source: str) -> str:
    """Build one corpus with one engine; return its digest."""
    settings = RunSettings(int(workers), engine=engine)  # type: ignore[arg-type]
    if name == "healing":
        return build_healing(Path(root), source, settings)
    shutil.copytree(Path(source, "generated"), Path(root, "generated"), copy_function=os.link)
    return build_dedup(Path(root), settings)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ray against worker processes of this machine")
    parser.add_argument("--mb", type=int, nargs="*", default=[10, 40, 160], help="megabytes of text of healing sets")
    parser.add_argument("--documents", type=int, nargs="*", default=[25_000, 100_000], help="documents of dedup")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--build", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        print(build(*options.build))
        return
    print(f"{machine_line()}; {options.workers} workers, one node of Ray\n")
    print("| system | input | local CPU s | Ray CPU s | difference | ratio | local wall s | Ray wall s |")
    print("|---" * 8 + "|")
    results = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_files(folder / "all", max(options.mb, default=0))
        for mb in options.mb:
            linked_mb = link_files(sorted((folder / "all").glob("*.parquet")), folder / f"{mb}", mb)
            with LoopbackHub(folder / f"{mb}") as hub:
                results[f"healing {mb}"] = compare("healing", f"{linked_mb:.0f} MB", [hub.endpoint], options.workers)
        for documents in options.documents:
            source = folder / f"dedup-{documents}"
            write_generated(source, documents)
            size = f"{documents:,} documents"
            results[f"dedup {documents}"] = compare("dedup", size, [source], options.workers)
    print(json.dumps({"benchmark": "engines", "workers": options.workers, "cpu_s": results}))


if __name__ == "__main__":
    main()

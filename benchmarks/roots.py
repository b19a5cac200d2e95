"""Benchmark of commands that read a data root of 10,000 artifacts.

    python benchmarks/roots.py --artifacts 10000 --runs 3

Prints CPU and wall seconds, the minimum of several runs. The root contains the demo's healing set (a snapshot and its
splits) and toy artifacts, which are nothing but manifests, each derived from the previous one. The commands concern the
real artifacts.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import PROJECT, machine_line

_COMMAND = [sys.executable, "-c", "from pipeline_assets.cli import main; main()"]


def write_toys(root: Path, artifacts: int) -> None:
    """Write sealed manifests to a hundred folders, without syncing them."""
    from pipeline_assets.spine.manifest import MANIFEST_FILE, Identity, Manifest, StageVersion

    inputs: list[dict[str, str]] = []
    for number in range(artifacts):
        counts = {"documents": number, "ledger": {"in": number, "out": number}}
        identity = Identity(StageVersion("toy", 1), {"number": number}, inputs, None, {}, counts, [])
        folder = root / "stage_a" / "toys" / f"{number % 100:02d}" / f"{number:06d}"
        folder.mkdir(parents=True)
        manifest = Manifest("stage_a/toy", f"toy-{number}", identity, [], {})
        (folder / MANIFEST_FILE).write_bytes(manifest.to_bytes())
        inputs = [{"name": "stage_a/toy", "digest": manifest.digest}]


def run_command(*words: object) -> tuple[float, float, str]:
    """Run a command; return its CPU seconds, wall seconds and output."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    result = subprocess.run([*_COMMAND, *map(str, words)], env=environment, capture_output=True, text=True)
    after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - started
    if "Traceback" in result.stderr:
        sys.exit(f"{' '.join(map(str, words))}: {result.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s, result.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--artifacts", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    sys.path.insert(0, str(PROJECT))
    print(machine_line())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        demo = [*_COMMAND, "demo", "--data", str(root), "--only", "healing"]
        subprocess.run(demo, env={**os.environ, "PYTHONPATH": str(PROJECT)}, check=True, capture_output=True)
        train = root / "megatron" / "healing_text_v1" / "train"
        traced = json.loads(run_command("trace", train, "--token", 9, "--json")[2])
        commands: dict[str, tuple[object, ...]] = {
            "--help": ("--help",),
            "trace --token": ("trace", train, "--token", 9),
            "trace --source": ("trace", "--source", traced["source"]["name"], "--data", root),
            "stage-a why": ("stage-a", "why", traced["doc_id"], "--data", root),
            "verify --upstream": ("verify", train, "--upstream", "--sample", "1%", "--json"),
            "status": ("status", "--data", root),
        }
        write_toys(root, options.artifacts)
        figures = {name: [run_command(*words)[:2] for _ in range(options.runs)] for name, words in commands.items()}
    fastest = {name: tuple(map(min, zip(*runs, strict=True))) for name, runs in figures.items()}
    print(f"{options.artifacts:,} toy artifacts\n| command | CPU s | wall s |\n|---|---|---|")
    for name, (cpu_s, wall_s) in fastest.items():
        print(f"| {name} | {cpu_s:.2f} | {wall_s:.2f} |")
    print(json.dumps({"artifacts": options.artifacts, "cpu_s_and_wall_s": fastest}))


if __name__ == "__main__":
    main()

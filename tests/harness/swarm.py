"""Resumable soak of many swarm seeds on all cores.

    make soak                 2,000 seeds; an interrupted soak continues
    make soak SEEDS=200       fewer
    make soak SEED=123        one seed, printed in full

Results are lines of JSON in a file that is named after the hash of all sources, so a changed program starts again.
Exit status 1: a seed failed, or a fault struck in less than 40 % of the seeds in which it was armed.
"""

import argparse
import atexit
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
sys.path += [
    str(PROJECT / name) for name in ("", "pipeline_assets/api", "tests/harness", "tests/builders", "benchmarks")
]

from evidence import write_result  # noqa: E402
from swarm_run import FAULTS, SEEDS_PER_WORKLOAD, Result, Swarm  # noqa: E402 - needs the paths above

MIN_FIRED_SHARE, _MIN_ARMED = 0.4, 10  # fewer seeds are no evidence
_LOG_EVERY_S = 10
_swarm: Swarm | None = None


def _start(folder: str) -> None:
    global _swarm
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    _swarm = Swarm(Path(folder, str(os.getpid())))
    atexit.register(_swarm.stop)


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)  # the server of commands ends with its input


def _run_block(seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Run seeds of one workload."""
    assert _swarm is not None
    results = []
    for seed in seeds:
        began = time.monotonic()
        try:
            result = _swarm.run(seed)
        except AssertionError as broken:  # the workload fails without any fault: continue with the other seeds
            result = Result(seed, "", "", wrong=[str(broken)])
        result.seconds = round(time.monotonic() - began, 2)
        results.append(result.to_json())
    return results


def sources_hash() -> str:
    """Return a short hash of the package's sources and of the harness."""
    digest = hashlib.sha256()
    for folder in ("pipeline_assets", "resources", "tests/harness", "tests/builders"):
        for path in sorted((PROJECT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def soak(seeds: Sequence[int], results_file: Path, workers: int) -> list[dict[str, Any]]:
    """Run the seeds without a result, print failures and progress, return all results."""
    done = {result["seed"]: result for result in read_results(results_file)}
    blocks: dict[int, list[int]] = {}
    for seed in seeds:
        if seed not in done:
            blocks.setdefault(seed // SEEDS_PER_WORKLOAD, []).append(seed)
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    began = logged = time.monotonic()
    finished = 0
    with (
        tempfile.TemporaryDirectory(prefix="swarm-", dir=memory) as folder,
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (folder,)) as pool,
        open(results_file, "a") as output,
    ):
        for future in as_completed([pool.submit(_run_block, block) for block in blocks.values()]):
            for result in future.result():
                done[result["seed"]] = result
                finished += 1
                output.write(json.dumps(result) + "\n")
                print("\n".join(_failure_lines(result)), end="\n" if result["wrong"] else "", flush=True)
            output.flush()
            if time.monotonic() - logged > _LOG_EVERY_S:
                logged = time.monotonic()
                each_s, remaining = (logged - began) / finished, sum(map(len, blocks.values())) - finished
                failures = sum(result["state"] == "FAILED" for result in done.values())
                line = f"{len(done):,} seeds done, {failures} FAILED; {each_s:.2f} s per seed"
                print(f"{line}, {remaining * each_s / 60:.0f} min to go", file=sys.stderr, flush=True)
    return [done[seed] for seed in seeds]


def read_results(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the results of earlier runs, without a last line that was cut off."""
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _failure_lines(result: Mapping[str, Any]) -> Iterator[str]:
    if result["wrong"]:
        faults = "; ".join(fault["fired"] or f"{fault['fault']} did not strike" for fault in result["faults"])
        yield f"FAILED {result['system']} {result['verb']}: {faults}; replay: make soak SEED={result['seed']}"
        yield from (f"    {what}" for what in result["wrong"][:5])


def summary(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count states, and for each fault its seeds, hits and outcomes."""
    faults: dict[str, Counter[str]] = {fault: Counter() for fault in FAULTS}
    for result in results:
        for fault in {entry["fault"] for entry in result["faults"]}:
            own = [entry for entry in result["faults"] if entry["fault"] == fault]
            faults[fault]["armed"] += 1
            faults[fault]["fired"] += any(entry["fired"] for entry in own)
            faults[fault][result["state"]] += 1
    return {
        "seeds": len(results),
        "states": dict(Counter(result["state"] for result in results)),
        "systems": dict(Counter(result["system"] for result in results)),
        "commands": dict(Counter(result["verb"] for result in results)),
        "faults": {fault: dict(counts) for fault, counts in faults.items()},
        "seconds_per_seed": round(sum(result["seconds"] for result in results) / max(len(results), 1), 2),
    }


def table(counted: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a summary."""
    yield f"{'fault':18} {'armed':>6} {'fired':>6} {'share':>6} {'equal':>6} {'refused':>8} {'FAILED':>7}"
    for fault, counts in counted["faults"].items():
        cells = [*_columns(counts).values()]
        share = f"{cells[1] / cells[0]:.0%}" if cells[0] else "-"
        yield f"{fault:18} {cells[0]:6} {cells[1]:6} {share:>6} {cells[2]:6} {cells[3]:8} {cells[4]:7}"
    for name in ("commands", "systems", "states"):
        yield f"{name}: " + ", ".join(f"{key} {count}" for key, count in sorted(counted[name].items()))
    yield f"{counted['seeds']:,} seeds, {counted['seconds_per_seed']} s of one core per seed"


def _columns(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in ("armed", "fired", "equal", "refused", "FAILED")}


def idle_faults(counted: Mapping[str, Any]) -> list[str]:
    """List faults that struck too seldom where they were armed."""
    many = {name: counts for name, counts in counted["faults"].items() if counts.get("armed", 0) >= _MIN_ARMED}
    shares = {name: counts.get("fired", 0) / counts["armed"] for name, counts in many.items()}
    return [f"{name} struck in {share:.0%} of its seeds" for name, share in shares.items() if share < MIN_FIRED_SHARE]


def main(arguments: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run workloads under faults; see the module's docstring.")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, default=PROJECT / ".venv" / "soak")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        with tempfile.TemporaryDirectory(prefix="swarm-") as folder:
            _start(folder)
            [result] = _run_block([options.seed])
        print(json.dumps(result, indent=1))
        return int(bool(result["wrong"]))
    options.results.mkdir(parents=True, exist_ok=True)
    seeds = range(options.first, options.first + options.seeds)
    file = options.results / f"{sources_hash()}.jsonl"
    began = time.monotonic()
    counted = summary(soak(seeds, file, options.workers))
    idle = idle_faults(counted)
    print("\n".join([*table(counted), *idle, f"results: {file}"]))
    rows = [{"fault": fault, **_columns(counts)} for fault, counts in counted["faults"].items()]
    failures, seconds = counted["states"].get("FAILED", 0), time.monotonic() - began
    write_result("swarm", cases=len(seeds), failures=failures, rows=rows, seconds=seconds, command="make soak")
    return int(bool(idle) or "FAILED" in counted["states"])


if __name__ == "__main__":
    sys.exit(main())

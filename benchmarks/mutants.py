"""Benchmark of the tests: the share of small source changes they notice.

    python benchmarks/mutants.py --mutants 40 --seed 1
    python benchmarks/mutants.py --rule "sync dropped" --mutants 0      # all of a rule

Each mutant is one seeded change of one line, in equal numbers for each rule. The test files that are nearest to the
module run first (nearest_tests.py), and slow tests last. A process that has imported the package forks each run
(mutant_server.py). The first failure kills the mutant, and so does a test that hangs. Survivors are printed. Some are
equivalent to the original, which only a reader can decide: equivalent_mutants.txt lists these. With --journal, the next
run takes killed mutants from that file, and tests the others again while there is time.
"""

import argparse
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evidence import table, write_result
from measure import machine_line
from mutations import PACKAGES, PROJECT, Mutant, affected_kernels, find_mutants, module_name
from nearest_tests import nearest_tests

from pipeline_assets.corpus.compiled import cache_folder

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
FIRST_FILES = 3  # run before the others are even collected
QUICK, SLOW = "not slow and not proof and not real", "slow and not proof and not real"  # CI runs both
TEST_TIMEOUT_S = 120
VERDICTS = {  # with the titles of their columns
    "killed": "killed",
    "slow": "killed by a slow test",
    "hangs": "hangs",
    "survives": "survives",
    "undecided": "undecided",
    "equivalent": "equivalent",
}
NOTICED = ("killed", "slow", "hangs")
_STAMPS = itertools.count(int(time.time()))


@dataclass(frozen=True)
class Outcome:
    """Verdict on a mutant, with the test that noticed it and the seconds until then."""

    mutant: Mutant
    verdict: str  # a key of `VERDICTS`
    noticed_by: str = ""
    seconds: float = 0


class Checkout:
    """Copy of the project in which one mutant at a time is tested."""

    def __init__(self, folder: Path, limit_s: float, files: int) -> None:
        self._folder, self._limit_s, self._files = folder / "copy", limit_s, files
        listed = subprocess.run(
            ["git", "-C", str(PROJECT), "ls-files", "-coz", "--exclude-standard"], capture_output=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, self._folder / name, follow_symlinks=False)
        self._cache = folder / "compiled"
        self._cache.mkdir()
        self._share_machine_code(None)
        paths = [str(self._folder), str(self._folder / "pipeline_assets" / "api")]
        environment = {"PYTHONPATH": os.pathsep.join(paths), "NUMBA_CACHE_DIR": str(self._cache)}
        self._server = subprocess.Popen(
            [sys.executable, "benchmarks/mutant_server.py"],
            cwd=self._folder,
            env={**os.environ, **environment, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._server.stdout is not None and self._server.stdout.readline()
        self._failing: set[str] = set()  # tests that fail in any copy, since they need the project's own folder

    def test(self, mutant: Mutant) -> Outcome:
        """Run tests until one fails only with the mutant, or none is left, or time is up."""
        started = time.monotonic()
        tests = nearest_tests(mutant, self._files)
        parts = (tests[:FIRST_FILES], QUICK), (tests[FIRST_FILES:], QUICK), (tests[:FIRST_FILES], SLOW)
        for part, marks in ((part, marks) for part, marks in parts if part):
            while True:
                self._write(mutant, mutant.text())
                status, failed, reason = self._run(mutant, [*part, "-m", marks], started + self._limit_s)
                self._write(mutant, (PROJECT / mutant.file).read_text())
                if failed is None:
                    break
                if self._run(mutant, [failed, "-m", marks], started + 3 * self._limit_s)[1] is None:
                    verdict = "hangs" if "Timeout" in reason else "killed" if marks == QUICK else "slow"
                    return Outcome(mutant, verdict, failed, time.monotonic() - started)
                self._failing.add(failed)
            if status == "time is up":
                return Outcome(mutant, "undecided", status, time.monotonic() - started)
        return Outcome(mutant, "survives", f"{len(tests)} files", time.monotonic() - started)

    def close(self) -> None:
        self._server.communicate()

    def _write(self, mutant: Mutant, text: str) -> None:
        path = self._folder / mutant.file
        path.write_text(text)
        stamp = next(_STAMPS)  # bytecode is known by seconds and size, and a mutant often has the size of the original
        os.utime(path, (stamp, stamp))
        self._share_machine_code(mutant)

    def _share_machine_code(self, mutant: Mutant | None) -> None:
        """Use the machine code of the original, except that a changed kernel is compiled.

        Kernels that import it are compiled, too.
        """
        digest = hashlib.sha256()
        sources = self._folder / "pipeline_assets" / "corpus"
        for path in sorted(sources.rglob("*.py")):
            digest.update(f"{path.relative_to(sources).as_posix()}\0".encode() + path.read_bytes() + b"\0")
        original = cache_folder()
        shared = self._cache / f"{original.name.rpartition('-')[0]}-{digest.hexdigest()[:32]}"
        original.mkdir(parents=True, exist_ok=True)
        changed = affected_kernels(module_name(mutant.file)) if mutant else frozenset()
        if shared.exists():
            return
        if not changed:
            shared.symlink_to(original)
            return
        shared.mkdir()
        for path in original.iterdir():
            if not any(f"-{module}.py3" in path.name for module in changed):
                shutil.copy2(path, shared / path.name)

    def _run(self, mutant: Mutant, tests: list[str], deadline: float) -> tuple[str, str | None, str]:
        """Return how a run of tests ended, its first failure, and the reason of that."""
        words = ["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={self._folder.parent / 'tests'}"]
        words += [f"--timeout={TEST_TIMEOUT_S}", *(f"--deselect={test}" for test in sorted(self._failing)), *tests]
        limit_s = max(1.0, deadline - time.monotonic())
        request = {"file": str(mutant.file), "tests": words, "limit_s": limit_s}
        request["is_compiled"] = bool(affected_kernels(module_name(mutant.file)))
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        reply = json.loads(self._server.stdout.readline())
        return reply["status"], reply["failed"], reply["reason"]


def changed_since(commit: str) -> set[Path]:
    command = ["git", "-C", str(PROJECT), "diff", "--name-only", "--diff-filter=AMR", commit, "--", *PACKAGES]
    return {Path(name) for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}


def draw(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw mutants in equal numbers for each rule; all of them if the count is 0.

    A hash orders the mutants, so most of them are drawn again after a change of other files.
    """
    by_rule: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_rule.setdefault(mutant.rule, []).append(mutant)
    for rule in sorted(by_rule):
        by_rule[rule].sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())
    turns = itertools.zip_longest(*(by_rule[rule] for rule in sorted(by_rule)))
    drawn = [mutant for turn in turns for mutant in turn if mutant is not None]
    return drawn[:count] if count else drawn


def read_journal(path: Path | None) -> dict[str, dict[str, Any]]:
    """Read the last verdict of earlier runs on each mutant, by its key."""
    if path is None or not path.exists():
        return {}
    return {verdict["key"]: verdict for verdict in map(json.loads, path.read_text().splitlines())}


def summary(outcomes: list[Outcome], key: str) -> list[dict[str, str | int]]:
    """Count verdicts by rule or folder."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        mutant = outcome.mutant
        group = mutant.rule if key == "rule" else "/".join(mutant.file.parent.parts[:3])
        counts.setdefault(group, Counter())[outcome.verdict] += 1
    return [
        {key: group, "drawn": counted.total(), **{title: counted[verdict] for verdict, title in VERDICTS.items()}}
        for group, counted in sorted(counts.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Change the sources a little and count the changes that tests notice")
    parser.add_argument("--mutants", type=int, default=40, help="number of mutants; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--since", default="", help="only modules added or changed since this commit")
    parser.add_argument("--rule", default="", help="only mutants of this rule")
    parser.add_argument("--only", default="", help="only mutants with this pattern in their line of the list")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no mutant after this time")
    parser.add_argument("--files", type=int, default=12, help="number of test files that are run for one mutant")
    parser.add_argument("--journal", type=Path, help="file with the verdicts of this run and earlier ones")
    parser.add_argument(
        "--limit-s", type=float, default=600, help="time of the tests of one mutant; then it is undecided"
    )
    options = parser.parse_args()
    started = time.monotonic()
    print(f"{machine_line()}\n", flush=True)
    files = sorted(path.relative_to(PROJECT) for name in PACKAGES for path in (PROJECT / name).rglob("*.py"))
    changed = changed_since(options.since) if options.since else set(files)
    mutants = [mutant for file in files if file in changed for mutant in find_mutants(file)]
    mutants = [
        mutant for mutant in mutants if options.rule in ("", mutant.rule) and re.search(options.only, str(mutant))
    ]
    sample = draw(mutants, options.mutants, options.seed)
    known = {line.partition("  #")[0] for line in EQUIVALENT.read_text().splitlines()}
    before = read_journal(options.journal)
    outcomes = [Outcome(mutant, "equivalent") for mutant in sample if mutant.key in known]
    earlier = {
        mutant: Outcome(mutant, verdict["verdict"], verdict["noticed_by"], verdict["seconds"])
        for mutant in sample
        if mutant.key not in known and (verdict := before.get(mutant.key))
    }
    outcomes += [outcome for outcome in earlier.values() if outcome.verdict in NOTICED]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR"), ignore_cleanup_errors=True) as scratch:
        idle = [Checkout(Path(scratch, str(job)), options.limit_s, options.files) for job in range(options.jobs)]

        def test(mutant: Mutant) -> Outcome | None:
            if time.monotonic() - started > 60 * options.minutes:
                return earlier.get(mutant)
            checkout = idle.pop()
            try:
                return checkout.test(mutant)
            finally:
                idle.append(checkout)

        with ThreadPoolExecutor(options.jobs) as pool:
            done = {outcome.mutant for outcome in outcomes}
            waiting = [mutant for mutant in sample if mutant not in done]
            for future in as_completed([pool.submit(test, mutant) for mutant in waiting]):
                if (outcome := future.result()) is None:
                    continue
                outcomes.append(outcome)
                if outcome == earlier.get(outcome.mutant):
                    continue
                print(
                    f"{outcome.seconds:4.0f} s {outcome.verdict:9} {outcome.mutant}  {outcome.noticed_by}", flush=True
                )
                if options.journal:
                    with options.journal.open("a") as journal:
                        journal.write(json.dumps(asdict(outcome) | {"key": outcome.mutant.key, "mutant": None}) + "\n")
        for checkout in idle:
            checkout.close()
    rows = summary(outcomes, "rule")
    print("\n" + "\n".join([*table(rows), "", *table(summary(outcomes, "folder"))]))
    counts = Counter(outcome.verdict for outcome in outcomes)
    if not options.only and not options.rule:
        seconds = sum(outcome.seconds for outcome in outcomes)
        write_result("mutants", cases=len(outcomes), failures=counts["survives"], rows=rows, seconds=seconds)
    print(json.dumps({"benchmark": "mutants", "drawn": len(outcomes), **counts, "seed": options.seed}))


if __name__ == "__main__":
    main()

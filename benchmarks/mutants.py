"""Benchmark of the quick tests: the share of small source changes they notice.

    python benchmarks/mutants.py --mutants 40 --seed 1
    python benchmarks/mutants.py --rule "sync dropped" --mutants 0      # all of a rule

Each mutant is one seeded change of one line, in equal numbers for each rule. The tests that are nearest to the module
run first: of its name, then importers, then its folder, then wide ones. The first failure kills the mutant, and so does
a test that hangs. Survivors are printed. Some are equivalent to the original, which only a reader can decide:
equivalent_mutants.txt lists these.
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from evidence import leave, table
from measure import machine_line
from mutations import PACKAGES, PROJECT, Mutant, find_mutants, kernel_modules, module_name

from pipeline_assets.corpus.compiled import cache_folder

EQUIVALENT = Path(__file__).with_name("equivalent_mutants.txt")
WIDE = (
    "tests/golden", "tests/crashes", "tests/corpus/systems", "tests/test_healing.py", "tests/test_stage_a.py",
    "tests/test_pack_commands.py",
)  # fmt: skip
NOT_RUN = {"tests/test_layout.py", "tests/test_project_files.py"}  # they compare sources, and notice any change
TEST_TIMEOUT_S = 120
_STAMPS = itertools.count(int(time.time()))


@dataclass(frozen=True)
class Outcome:
    """Verdict on a mutant, with the test that noticed it."""

    mutant: Mutant
    verdict: str  # "killed", "hangs", "survives", "undecided" or "equivalent"
    noticed_by: str = ""


class Checkout:
    """Copy of the project in which one mutant at a time is tested."""

    def __init__(self, folder: Path, limit_s: float, is_near: bool) -> None:
        self._folder, self._limit_s, self._is_near = folder / "copy", limit_s, is_near
        listed = subprocess.run(
            ["git", "-C", str(PROJECT), "ls-files", "-coz", "--exclude-standard"], capture_output=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, self._folder / name, follow_symlinks=False)
        self._cache = folder / "compiled"
        self._cache.mkdir()

    def test(self, mutant: Mutant) -> Outcome:
        """Run tests until one fails only with the mutant, or none is left, or time is up."""
        deadline = time.monotonic() + self._limit_s
        excluded: list[str] = []  # tests that fail in any copy, since they need the project's own folder
        tests = [test for test in select_tests(mutant.file, self._is_near) if (self._folder / test).exists()]
        while True:
            self._write(mutant, mutant.text())
            failed = self._failure([*tests, *excluded], deadline)
            self._write(mutant, (PROJECT / mutant.file).read_text())
            if failed is None:
                return Outcome(mutant, "survives")
            if failed == "time is up":
                return Outcome(mutant, "undecided", failed)
            test, _, reason = failed.partition(" - ")
            if "::" not in test or f"--deselect={test}" in excluded or self._failure([test], None) is None:
                return Outcome(mutant, "hangs" if "Timeout" in reason else "killed", test)
            excluded.append(f"--deselect={test}")

    def _write(self, mutant: Mutant, text: str) -> None:
        path = self._folder / mutant.file
        path.write_text(text)
        stamp = next(_STAMPS)  # bytecode is known by seconds and size, and a mutant often has the size of the original
        os.utime(path, (stamp, stamp))
        if module_name(mutant.file) not in kernel_modules():
            self._share_machine_code()

    def _share_machine_code(self) -> None:
        """Use the machine code of the original; no kernel imports the changed module."""
        digest = hashlib.sha256()
        sources = self._folder / "pipeline_assets" / "corpus"
        for path in sorted(sources.rglob("*.py")):
            digest.update(f"{path.relative_to(sources).as_posix()}\0".encode() + path.read_bytes() + b"\0")
        original = cache_folder()
        original.mkdir(parents=True, exist_ok=True)
        link = self._cache / f"{original.name.rpartition('-')[0]}-{digest.hexdigest()[:32]}"
        if not link.exists():
            link.symlink_to(original)

    def _failure(self, tests: list[str], deadline: float | None) -> str | None:
        """Return the first failure of tests, with its reason."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
        command += [f"--basetemp={self._folder.parent / 'tests'}", f"--timeout={TEST_TIMEOUT_S}", "-rfE"]
        command += ["-m", "not slow and not proof and not real", *tests]
        paths = [str(self._folder), str(self._folder / "pipeline_assets" / "api")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NUMBA_CACHE_DIR": str(self._cache)}
        limit_s = None if deadline is None else max(1.0, deadline - time.monotonic())
        with subprocess.Popen(
            command,
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # so that servers of a test end with it
        ) as process:
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return "time is up"
        if process.returncode in (0, 5):  # 5: all tests are slow
            return None
        lines = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        return lines[0].partition(" ")[2] if lines else f"status {process.returncode}"


def select_tests(file: Path, is_near: bool) -> list[str]:
    """List tests: of the module's name, of importers, of its folder, then wide ones."""
    module = module_name(file)
    parent, _, name = module.rpartition(".")
    imports = re.compile(rf"{re.escape(module)}\b|from {re.escape(parent)} import [^\n]*\b{re.escape(name)}\b")
    tests = {path.relative_to(PROJECT): path.read_text() for path in sorted((PROJECT / "tests").rglob("test_*.py"))}
    folder = Path("tests", *file.parts[1:-1])
    named = [path for path in tests if path.stem == f"test_{file.stem}"]
    importers = [path for path, text in tests.items() if imports.search(text)]
    importers.sort(key=lambda path: folder not in path.parents)
    near = [path for path in tests if path.parent == folder and folder != Path("tests")]
    selected = dict.fromkeys(map(str, [*named, *importers, *near, *(() if is_near else WIDE)]))
    return [test for test in selected if test not in NOT_RUN]


def changed_since(commit: str) -> set[Path]:
    command = ["git", "-C", str(PROJECT), "diff", "--name-only", "--diff-filter=AMR", commit, "--", *PACKAGES]
    return {Path(name) for name in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()}


def draw(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Draw mutants in equal numbers for each rule; all of them if the count is 0."""
    by_rule: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        by_rule.setdefault(mutant.rule, []).append(mutant)
    dice = random.Random(seed)
    for rule in sorted(by_rule):
        dice.shuffle(by_rule[rule])
    turns = itertools.zip_longest(*(by_rule[rule] for rule in sorted(by_rule)))
    drawn = [mutant for turn in turns for mutant in turn if mutant is not None]
    return drawn[:count] if count else drawn


def summary(outcomes: list[Outcome], key: str) -> list[dict[str, str | int]]:
    """Count verdicts by rule or folder."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        mutant = outcome.mutant
        group = mutant.rule if key == "rule" else "/".join(mutant.file.parent.parts[:3])
        counts.setdefault(group, Counter())[outcome.verdict] += 1
    verdicts = ("killed", "hangs", "survives", "undecided", "equivalent")
    return [
        {key: group, "drawn": counted.total(), **{verdict: counted[verdict] for verdict in verdicts}}
        for group, counted in sorted(counts.items())
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Change the sources a little and count the changes that tests notice")
    parser.add_argument("--mutants", type=int, default=40, help="number of mutants; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--since", default="", help="only modules added or changed since this commit")
    parser.add_argument("--rule", default="", help="only mutants of this rule")
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no mutant after this time")
    parser.add_argument("--near", action="store_true", help="leave out the wide tests")
    parser.add_argument(
        "--limit-s", type=float, default=600, help="time of the tests of one mutant; then it is undecided"
    )
    options = parser.parse_args()
    started = time.monotonic()
    print(f"{machine_line()}\n", flush=True)
    files = sorted(path.relative_to(PROJECT) for name in PACKAGES for path in (PROJECT / name).rglob("*.py"))
    changed = changed_since(options.since) if options.since else set(files)
    chosen = [file for file in files if file in changed and options.only in str(file)]
    mutants = [mutant for file in chosen for mutant in find_mutants(file) if options.rule in ("", mutant.rule)]
    sample = draw(mutants, options.mutants, options.seed)
    known = {line.partition("  #")[0] for line in EQUIVALENT.read_text().splitlines()}
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR"), ignore_cleanup_errors=True) as scratch:
        idle = [Checkout(Path(scratch, str(job)), options.limit_s, options.near) for job in range(options.jobs)]

        def test(mutant: Mutant) -> Outcome | None:
            if mutant.key in known:
                return Outcome(mutant, "equivalent")
            if time.monotonic() - started > 60 * options.minutes:
                return None
            checkout = idle.pop()
            try:
                return checkout.test(mutant)
            finally:
                idle.append(checkout)

        with ThreadPoolExecutor(options.jobs) as pool:
            for future in as_completed([pool.submit(test, mutant) for mutant in sample]):
                if (outcome := future.result()) is None:
                    continue
                outcomes.append(outcome)
                print(f"{outcome.verdict:10} {outcome.mutant}  {outcome.noticed_by}", flush=True)
    rows = summary(outcomes, "rule")
    print("\n" + "\n".join([*table(rows), "", *table(summary(outcomes, "folder"))]))
    counts = Counter(outcome.verdict for outcome in outcomes)
    if not options.only and not options.rule:
        leave(
            "mutants", cases=len(outcomes), failures=counts["survives"], rows=rows, seconds=time.monotonic() - started
        )
    print(json.dumps({"benchmark": "mutants", "drawn": len(outcomes), **counts, "seed": options.seed}))


if __name__ == "__main__":
    main()

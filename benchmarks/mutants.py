"""Benchmark of the quick tests: the share of small source changes they notice.

    python benchmarks/mutants.py --mutants 40 --seed 1

Each mutant is one seeded change of one line, in equal numbers for each rule: a comparison, an operator, a constant, a
dropped call, swapped arguments. The tests of the module's folder run first, then importers of the module, then
wide ones; the first failure kills the mutant. Survivors are printed: some are equivalent to the original, which only a
reader can decide.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from evidence import leave, table
from measure import machine_line

PROJECT = Path(__file__).parents[1]
FOLDERS = ("spine", "corpus/dedup", "corpus/packing", "corpus/harmony", "corpus/nemotron", "corpus/readers")
WIDE = (
    "tests/golden", "tests/crashes", "tests/corpus/systems", "tests/test_healing.py", "tests/test_stage_a.py",
    "tests/test_pack_commands.py",
)  # fmt: skip
IGNORED = shutil.ignore_patterns(".git", ".venv", "data", "out", "__pycache__", ".*_cache", "*.egg-info")
TIMEOUT_S = 1200
_COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_CALCULATED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}


@dataclass(frozen=True)
class Mutant:
    """Replacement of one expression or statement in a source file."""

    file: Path
    rule: str
    line: int
    before: str
    after: str
    start: int
    stop: int

    def text(self) -> str:
        source = (PROJECT / self.file).read_bytes()
        return (source[: self.start] + self.after.encode() + source[self.stop :]).decode()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.rule}: {self.before}  →  {self.after}"


def mutations(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the name of each rule that applies to a node, and the changed node."""
    match node:
        case ast.Compare(left, [operator], [right]) if type(operator) in _COMPARED:
            rule = "edge moved" if isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE) else "compare"
            yield rule, ast.Compare(left, [_COMPARED[type(operator)]()], [right])
        case ast.BoolOp(ast.And(), values):
            yield "and to or", ast.BoolOp(ast.Or(), values)
        case ast.BoolOp(ast.Or(), values):
            yield "or to and", ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield "not dropped", operand
        case ast.BinOp(left, operator, right) if type(operator) in _CALCULATED and not isinstance(left, ast.JoinedStr):
            yield "arithmetic", ast.BinOp(left, _CALCULATED[type(operator)](), right)
        case ast.Constant(bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(int(value)):
            yield "constant", ast.Constant(value + 1)
        case ast.Expr(ast.Call()):
            yield "call dropped", ast.Pass()
        case ast.Call(ast.Name("sorted"), [first, *_]):
            yield "sorted dropped", ast.Call(ast.Name("list"), [first], [])
        case ast.Call(ast.Name("min"), arguments, keywords):
            yield "min to max", ast.Call(ast.Name("max"), arguments, keywords)
        case ast.Call(ast.Name("max"), arguments, keywords):
            yield "max to min", ast.Call(ast.Name("min"), arguments, keywords)
        case ast.Call(function, [first, second, *others], keywords) if not isinstance(first, ast.Starred):
            yield "arguments swapped", ast.Call(function, [second, first, *others], keywords)


def find_mutants(file: Path) -> Iterator[Mutant]:
    source = (PROJECT / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    for parent in ast.walk(tree):
        if not isinstance(parent, ast.FunctionDef):
            continue
        for node in (child for statement in parent.body for child in ast.walk(statement)):
            if not isinstance(node, ast.expr | ast.stmt) or node.lineno != node.end_lineno:
                continue
            start = starts[node.lineno - 1] + node.col_offset
            stop = starts[node.lineno - 1] + (node.end_col_offset or 0)
            for rule, other in mutations(node):
                after = ast.unparse(ast.fix_missing_locations(other))
                after = f"({after})" if isinstance(other, ast.expr) and not isinstance(other, ast.Call) else after
                yield Mutant(file, rule, node.lineno, source[start:stop].decode(), after, start, stop)


def select_tests(file: Path) -> list[list[str]]:
    """List test files by order of running: own folder, importers, wide tests."""
    module = ".".join(file.with_suffix("").parts)
    names = (module, f"from {module.rpartition('.')[0]} import {file.stem}")
    tests = {path.relative_to(PROJECT): path.read_text() for path in sorted((PROJECT / "tests").rglob("test_*.py"))}
    folder = Path("tests", *file.parts[1:-1])
    near = [path for path, text in tests.items() if any(name in text for name in names) and folder not in path.parents]
    return [[str(folder)], [*map(str, near)], [*WIDE]]


def killer(mutant: Mutant) -> str | None:
    """Return the test that fails only with a mutant; None if the mutant survives."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        copy = shutil.copytree(PROJECT, Path(scratch, "copy"), ignore=IGNORED)
        for tests in select_tests(mutant.file):
            existing = [test for test in tests if (copy / test).exists()]
            excluded: list[str] = []  # tests that fail in any copy, since they need the project's own folder
            while existing:
                (copy / mutant.file).write_text(mutant.text())
                failed = failure([*existing, *excluded], copy)
                if failed is None:
                    break
                test = failed.partition(" ")[2]
                (copy / mutant.file).write_bytes((PROJECT / mutant.file).read_bytes())
                if "::" not in test or f"--deselect={test}" in excluded or failure([test], copy) is None:
                    return failed
                excluded.append(f"--deselect={test}")
    return None


def failure(tests: list[str], folder: Path) -> str | None:
    """Run tests in a copy of the project, and return the first failure or None."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--timeout", "240", "-p", "no:cacheprovider"]
    command += ["-m", "not slow and not proof and not real", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    try:
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return "timeout"
    if result.returncode in (0, 5):  # 5: all tests are slow
        return None
    lines = [line for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0].split(" - ")[0] if lines else f"status {result.returncode}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Change the sources a little and count the changes that tests notice")
    parser.add_argument("--mutants", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    started = time.monotonic()
    print(f"{machine_line()}\n")
    package = PROJECT / "pipeline_assets"
    files = [path.relative_to(PROJECT) for name in FOLDERS for path in sorted((package / name).rglob("*.py"))]
    by_rule: dict[str, list[Mutant]] = {}
    for mutant in (mutant for file in files for mutant in find_mutants(file)):
        by_rule.setdefault(mutant.rule, []).append(mutant)
    dice, rules = random.Random(options.seed), sorted(by_rule)
    sample = [dice.choice(by_rule[rules[number % len(rules)]]) for number in range(options.mutants)]
    tried: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, killed_by in zip(sample, pool.map(killer, sample), strict=True):
            tried[mutant.rule] += 1
            killed[mutant.rule] += killed_by is not None
            print(f"{'killed' if killed_by else 'SURVIVES'}  {mutant}  {killed_by or ''}", flush=True)
    rows = [{"rule": rule, "killed": killed[rule], "of": tried[rule]} for rule in sorted(tried)]
    print("\n" + "\n".join(table(rows)))
    survivors = tried.total() - killed.total()
    leave("mutants", cases=tried.total(), failures=survivors, rows=rows, seconds=time.monotonic() - started)
    print(json.dumps({"benchmark": "mutants", "killed": killed.total(), "of": tried.total(), "seed": options.seed}))


if __name__ == "__main__":
    main()

"""Rules by which mutants.py changes one line of a source file."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PACKAGES = ("pipeline_assets", "resources", "modal_jobs")
_COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_CALCULATED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult}
_SYNCS = re.compile(r"_?(fsync|sync|commit|reload|flush|make_folder|write_durably|rename)\w*$")
_CHECKS = re.compile(r"_?(check|raise_if|reject|refuse|require|verify|read_back|read_and_check|expect)\w*$")
_PLAIN = {  # the same effect without a sync
    "write_durably": "({0}).write_bytes({1})",
    "make_folder": "({0}).mkdir(parents=True, exist_ok=True)",
    "rename": "({0}).rename({1})",
}
_LOGS = re.compile(r"^(log|_log|logging|logger|_LOG|LOG|warnings)\b")


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
    names: tuple[str, ...]  # of the function, and of its class
    number: int  # among equal changes of the function

    @property
    def key(self) -> str:
        """Name without the line, which changes with each edit above."""
        place = ".".join(reversed(self.names)) + (f" #{self.number}" if self.number > 1 else "")
        return f"{self.file}  {place}  {self.rule}: {self.before}  →  {self.after}"

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
        case ast.Expr(ast.Call(function, arguments)):
            if not _LOGS.match(ast.unparse(function)):
                yield dropped_call(ast.unparse(function)), ast.Pass()
            plain = _PLAIN.get(ast.unparse(function).rpartition(".")[2])
            if plain is not None:
                yield "sync dropped", ast.parse(plain.format(*map(ast.unparse, arguments))).body[0]
        case ast.Raise(exc) if exc is not None:
            yield "raise dropped", ast.Pass()
        case ast.Call(ast.Name("sorted"), [first, *_]):
            yield "sorted dropped", ast.Call(ast.Name("list"), [first], [])
        case ast.Call(ast.Name("min"), arguments, keywords):
            yield "min to max", ast.Call(ast.Name("max"), arguments, keywords)
        case ast.Call(ast.Name("max"), arguments, keywords):
            yield "max to min", ast.Call(ast.Name("min"), arguments, keywords)
        case ast.Call(function, [first, second, *others], keywords) if not isinstance(first, ast.Starred):
            yield "arguments swapped", ast.Call(function, [second, first, *others], keywords)


def dropped_call(function: str) -> str:
    name = function.rpartition(".")[2]
    return "sync dropped" if _SYNCS.match(name) else "check dropped" if _CHECKS.match(name) else "call dropped"


def find_mutants(file: Path) -> Iterator[Mutant]:
    """Yield every mutant of the functions of a source file."""
    source = (PROJECT / file).read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    seen, equal = set(), Counter[tuple[object, ...]]()
    tree = ast.parse(source)
    classes = {
        node: parent.name for parent in ast.walk(tree) if isinstance(parent, ast.ClassDef) for node in parent.body
    }
    for parent in ast.walk(tree):
        if not isinstance(parent, ast.FunctionDef):
            continue
        names = tuple(filter(None, (parent.name, classes.get(parent))))
        for node in (child for statement in parent.body for child in ast.walk(statement)):
            if not isinstance(node, ast.expr | ast.stmt) or (node.lineno, node.col_offset, type(node)) in seen:
                continue
            is_statement = isinstance(node, ast.Raise | ast.Expr)
            if node.lineno != node.end_lineno and not is_statement:
                continue
            seen.add((node.lineno, node.col_offset, type(node)))
            start = starts[node.lineno - 1] + node.col_offset
            stop = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            for rule, other in mutations(node):
                after = ast.unparse(ast.fix_missing_locations(other))
                after = f"({after})" if isinstance(other, ast.expr) and not isinstance(other, ast.Call) else after
                before = " ".join(source[start:stop].decode().split())
                equal[names, rule, before, after] += 1
                number = equal[names, rule, before, after]
                yield Mutant(file, rule, node.lineno, before, after, start, stop, names, number)


def module_name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported_modules() -> dict[str, frozenset[str]]:
    """Return the modules and names that each module imports, anywhere in its file."""
    paths = (path for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))
    return {module_name(path.relative_to(PROJECT)): names_imported(path.read_bytes()) for path in paths}


def names_imported(source: bytes) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def affected_kernels(module: str) -> frozenset[str]:
    """Return a kernel's module and the kernels that import it, which contain its code."""
    compiler = "pipeline_assets.corpus.compiled"
    kernels = {name: found for name, found in imported_modules().items() if compiler in found}
    if module not in (*kernels, compiler):
        return frozenset()
    affected = set(kernels) if module == compiler else {module}
    while more := {name for name, found in kernels.items() if found & affected} - affected:
        affected |= more
    return frozenset(affected)

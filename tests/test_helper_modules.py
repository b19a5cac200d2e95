"""Modules of tests and benchmarks have unique names and import existing ones."""

import ast
import functools
import symtable
from collections import Counter
from pathlib import Path

PROJECT = Path(__file__).parents[1]
HELPER_FOLDERS = ("tests", "tests/builders", "tests/harness", "tests/oracles", "benchmarks")


def test_no_two_helpers_share_a_name() -> None:
    """All are on the path of the tests: the first module of a name hides the others."""
    count = Counter(path.name for folder in HELPER_FOLDERS for path in (PROJECT / folder).glob("*.py"))

    assert [name for name, homes in count.items() if homes > 1] == []


def test_benchmarks_import_existing_names() -> None:
    """Benchmarks run by hand, so a missing name would only fail then."""
    homes = {path.stem: path for folder in HELPER_FOLDERS for path in (PROJECT / folder).glob("*.py")}
    imported_names = [
        (homes[node.module], name.name)
        for path in (PROJECT / "benchmarks").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module in homes
        for name in node.names
    ]

    assert len(imported_names) > 50
    assert [(path.name, name) for path, name in imported_names if name not in read_names(path)] == []


@functools.cache
def read_names(path: Path) -> set[str]:
    return set(symtable.symtable(path.read_text(encoding="utf-8"), str(path), "exec").get_identifiers())

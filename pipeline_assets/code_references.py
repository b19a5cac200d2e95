"""Links from Dagster assets to the source code of the functions that build them."""

import ast
import functools
import inspect
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from pipeline_assets.build.target import Kind

_PROJECT_FOLDER = Path(__file__).parents[1]


def code_references(kind: Kind) -> dg.CodeReferencesMetadataValue:
    """Return source links to a kind's kernels, then to its build function.

    Kernels are functions of `corpus` whose first argument is the staging directory. They are found by parsing
    source code, not by importing modules.
    """
    build = inspect.unwrap(kind.build)
    return _list_references(build.__module__, build.__code__.co_firstlineno)


@functools.cache
def _list_references(module: str, line_number: int) -> dg.CodeReferencesMetadataValue:
    """Return the links for the function that begins at a line of a module (cached)."""
    locations = dict.fromkeys([*_find_kernels(module, line_number), (_module_file(module), line_number)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # only the UI's links depend on the beta feature
        references: list[dg.LocalFileCodeReference | dg.UrlCodeReference]
        references = [dg.LocalFileCodeReference(file_path=str(path), line_number=line) for path, line in locations]
        return dg.CodeReferencesMetadataValue(code_references=references)


def _find_kernels(module: str, line_number: int) -> Iterator[tuple[Path, int]]:
    """Yield (file, line) of each kernel that a function calls, directly or indirectly.

    Calls are followed only into functions that receive `job` as the first argument.
    """
    functions, imports = _parse_module(module)
    calls = [node for node in ast.walk(functions[line_number]) if isinstance(node, ast.Call) and node.args]
    for call in sorted(calls, key=lambda call: call.lineno):
        argument, (package, _, name) = ast.unparse(call.args[0]), ast.unparse(call.func).rpartition(".")
        if argument in ("job", "job.staging"):
            callee = imports.get(package or name, module)  # the function's module, or the module with its own name
            callee = callee if package else callee.removesuffix(f".{name}")
            match = re.search(rf"^def {name}\(", _module_file(callee).read_text(encoding="utf-8"), re.MULTILINE)
            target = match.string.count("\n", 0, match.start()) + 1 if match else 0
            if argument == "job" and target:
                yield from _find_kernels(callee, target)
            elif target and callee.startswith("pipeline_assets.corpus."):
                yield _module_file(callee), target


@functools.cache
def _parse_module(module: str) -> tuple[dict[int, ast.stmt | ast.expr], dict[str, str]]:
    """Return a module's functions by line, and its imported names by alias.

    Only imports of the form `from MODULE import NAME` are included; the name is then `MODULE.NAME`.
    """
    nodes = list(ast.walk(ast.parse(_module_file(module).read_text(encoding="utf-8"))))
    imports = [(f"{node.module}.", alias) for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    functions: dict[int, ast.stmt | ast.expr]
    functions = {node.lineno: node for node in nodes if isinstance(node, ast.FunctionDef | ast.Lambda)}
    return functions, {alias.asname or alias.name: package + alias.name for package, alias in imports}


def _module_file(module: str) -> Path:
    path = getattr(sys.modules.get(module), "__file__", None)
    return Path(path) if path else _PROJECT_FOLDER.joinpath(*module.split(".")).with_suffix(".py")

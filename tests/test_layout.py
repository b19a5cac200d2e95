"""The layout, enforced by reading the source: imports, heavy libraries, writes."""

import ast
import functools
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline_assets.commands.catalog import COMMANDS

PROJECT = Path(__file__).parents[1]
PACKAGES = ("pipeline_assets", "resources", "modal_jobs")
SOURCES = sorted(path for package in PACKAGES for path in (PROJECT / package).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer(module: str) -> str:
    """Return the row of the table of import rules for a module."""
    match module.split("."):
        case ["pipeline_assets", top, *_]:
            return top
        case ["pipeline_assets"]:
            return "package"
    return module.split(".")[0]


KERNELS = {"compat", "spine", "corpus"}
BUILD = KERNELS | {"build"}
SYSTEMS = BUILD | {"trust", "systems"}
RESOURCES = SYSTEMS | {"resources"}
MAY_IMPORT = {
    "package": set(),
    "compat": set(),
    "spine": {"spine"},
    "corpus": KERNELS,
    "build": BUILD,
    "trust": BUILD | {"trust"},
    "systems": SYSTEMS,
    "resources": BUILD | {"resources"},
    "modal_jobs": KERNELS | {"modal_jobs"},
    "sensor_cursor": set(),
    "external": BUILD | {"resources", "sensor_cursor"},
    "versions": BUILD,
    "events": RESOURCES | {"external", "versions"},
    "sealed_sensor": RESOURCES | {"events", "sensor_cursor", "versions"},
    "assets": RESOURCES | {"code_references", "events", "external", "versions"},
    "jobs": RESOURCES | {"assets", "events"},
    "schedules": RESOURCES | {"jobs", "assets"},
    "alerts": {"assets", "compat", "resources"},
    "freshness": RESOURCES | {"assets", "events", "schedules", "sensor_cursor", "versions"},
    "code_references": {"build"},
    "attributes": {"assets", "external", "spine"},
    "retention": {"assets", "build", "compat", "events", "jobs", "spine"},
    "dead_runs": set(),
    "version_assets": RESOURCES | {"assets", "events", "external", "versions"},
    "definitions": {"code_location", "resources", "spine"},
    "code_location": RESOURCES
    | {"alerts", "assets", "attributes", "external", "freshness", "jobs", "retention", "schedules", "sealed_sensor"}
    | {"version_assets", "versions"},
    "instance": {"compat", "spine"},
    "develop": {"compat"},
    "code_server": {"compat"},
    "webserver": set(),
    "demo": RESOURCES | {"demo", "commands"},
    "ui": RESOURCES | {"commands", "demo", "instance", "sealed_sensor"},
    "commands": RESOURCES | {"commands"},
    "api": SYSTEMS,
    "cli": {"commands", "spine"},
    "__main__": {"cli", "commands"},
}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Parse a file once for all tests."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def imports(path: Path) -> list[tuple[str, bool, int]]:
    """List (module, is loaded, line) for every import.

    Imports under `if TYPE_CHECKING` are not loaded.
    """
    found: list[tuple[str, bool, int]] = []
    for_types = {
        id(node)
        for block in nodes(path)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) not in for_types, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            base = node.module or ""
            for alias in node.names:
                deeper = PROJECT.joinpath(*base.split("."), alias.name)
                name = f"{base}.{alias.name}" if deeper.with_suffix(".py").exists() or deeper.is_dir() else base
                found.append((name, id(node) not in for_types, node.lineno))
    return found


def test_imports_point_one_way() -> None:
    for path in SOURCES:
        module = module_name(path)
        own, allowed = layer(module), MAY_IMPORT[layer(module)]
        for name, _, line in imports(path):
            if name.split(".")[0] in PACKAGES:
                other = layer(name)
                message = f"{module}:{line} imports {name}, a {other}; a {own} may import {sorted(allowed)}"
                assert other in allowed, message


# Folders and modules that may import a library, by its name.
HOMES = {
    "dagster": [
        *("versions", "events", "external", "assets", "version_assets", "jobs", "schedules", "code_location"),
        *("freshness", "attributes", "retention", "instance", "resources", "sealed_sensor", "webserver", "compat"),
        *("code_references", "dead_runs", "alerts"),
    ],
    "modal": ["resources/modal_launcher", "resources/modal_calls", "modal_jobs"],
    "torch": ["corpus/batching", "corpus/rank_loader", "corpus/scoring", "modal_jobs"],
    "transformers": ["corpus/scoring", "modal_jobs"],
    "datasets": ["corpus/publishing/load_back"],
    "datasketch": [],
    "ray": ["spine/ray_engine"],
    "obstore": ["corpus/stores/object_store"],
    "py3langid": ["corpus/filters/language"],
    "langdetect": ["corpus/filters/language"],
}


def test_heavy_libraries_are_imported_only_at_home() -> None:
    for path in SOURCES:
        module = module_name(path)
        folder = f"{module.replace('.', '/').removeprefix('pipeline_assets/')}/"
        for name, is_loaded, line in imports(path):
            homes = HOMES.get(name.split(".")[0], [""])
            is_at_home = any(not home or folder.startswith(f"{home}/") for home in homes)
            assert is_at_home or not is_loaded, f"{module}:{line} imports {name}, which has another home"


def test_modules_import_each_other_without_cycles() -> None:
    """Imports inside functions and imports for types count."""
    edges = {
        module_name(path): {name for name, _, _ in imports(path) if name.split(".")[0] in PACKAGES} for path in SOURCES
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a cycle: {' → '.join([*path, module])}"
        if module not in done:
            for other in edges.get(module, set()):
                visit(other, (*path, module))
            done.add(module)

    for module in edges:
        visit(module, ())


def test_the_registry_is_passed_to_lower_layers() -> None:
    """They receive the systems, or the kinds by name, as arguments."""
    lower_layers = {"compat", *SYSTEMS, "resources", "modal_jobs"}
    registry = "pipeline_assets.systems.registry"
    users = [path for path in SOURCES if registry in {name for name, *_ in imports(path)}]

    assert [path for path in users if layer(module_name(path)) in lower_layers] == []


def test_private_names_of_libraries_are_imported_in_one_module() -> None:
    offenders = [
        f"{path}:{node.lineno}"
        for path in SOURCES
        if module_name(path) != "pipeline_assets.compat"
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        for name in [f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name]
        if name.split(".")[0] not in PACKAGES and "._" in name
    ]

    assert offenders == []


def test_only_the_driver_builds() -> None:
    """Only the driver's module reads a kind's `build`.

    So every caller gets the same settings, checks and copies.
    """
    builders = {
        module_name(path)
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "build" and ast.unparse(node.value).endswith("kind")
    }

    assert builders == {"pipeline_assets.build.drive", "pipeline_assets.code_references"}  # the second only links to it


BUILD_LIBRARIES = {"dagster", "huggingface_hub", "pyarrow", "numpy", "torch", "pydantic", "rich"}


def load_modules(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in result.stdout.split()}


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        (
            "import pipeline_assets.definitions",
            {"torch", "transformers", "datasets", "modal", "ray", "obstore", "datasketch", "tiktoken", "gigatoken"}
            | {"polars", "sqlglot", "pandas", "numba", "huggingface_hub"},
        ),
        ("import pipeline_assets.cli", BUILD_LIBRARIES),
        ("from pipeline_assets.cli import app\napp(['--help'], standalone_mode=False)", BUILD_LIBRARIES),
        ("import pipeline_assets.systems.healing", {"dagster", "torch", "datasets", "huggingface_hub"}),
    ],
    ids=["definitions", "command line", "help", "kernel"],
)
def test_imports_load_no_heavy_library(statement: str, heavy: set[str]) -> None:
    assert load_modules(statement) & heavy == set()


def test_the_help_of_a_command_loads_no_arrays_or_tables() -> None:
    """Except for options from recipe sections and builds of a whole corpus."""
    by_section = {f"commands.{page}" for page in ("stage_a", "stage2", "parallel", "corpora", "nemotron", "scores")}
    by_section |= {"demo.stage_a", "demo.nemotron", "demo.mixture"}
    modules = [f"pipeline_assets.{module}" for module in ("commands.options", *COMMANDS) if module not in by_section]

    loaded = load_modules(f"import {', '.join(modules)}")

    assert len(modules) > 8
    assert loaded & {"pyarrow", "numpy", "polars", "dagster", "huggingface_hub", "duckdb", "numba"} == set()


def test_annotations_are_evaluated_because_dagster_reads_them() -> None:
    future = "from __future__ import annotations"

    assert [path.name for path in SOURCES if future in path.read_text(encoding="utf-8")] == []


def test_no_folder_hides_a_package_of_the_same_name() -> None:
    assert not (PROJECT / "docker" / "__init__.py").exists()
    assert list((PROJECT / "tests").rglob("__init__.py")) == []


def test_folders_of_tests_contain_only_tests() -> None:
    """Builders of inputs, harnesses and oracles have folders of their own."""
    other_folders = {"builders", "harness", "oracles"}
    strays = [
        path.relative_to(PROJECT / "tests").as_posix()
        for path in (PROJECT / "tests").rglob("*.py")
        if not path.name.startswith("test_") and path.name != "conftest.py" and not other_folders & set(path.parts)
    ]

    assert strays == ["toy_system.py"]


def test_the_definitions_file_only_wires() -> None:
    lines = (PROJECT / "pipeline_assets" / "code_location.py").read_text(encoding="utf-8").splitlines()

    assert len(lines) <= 66


PRINTING = {
    "pipeline_assets.cli": 1,  # the version
    "pipeline_assets.commands.terminal": 1,  # echo
    "pipeline_assets.commands.trace": 1,  # a record, byte for byte, unless in a terminal
    "pipeline_assets.corpus.publishing.load_back": 1,  # JSON for the parent process
    "pipeline_assets.demo.hub_command": 3,  # its address, and visible names
    "modal_jobs.nll_scoring": 2,  # words that the user typed
}


WRITING = {  # calls on paths that change the disk without a sync
    "pipeline_assets.build.pins.model_pin": 3,  # links to cached files, recreated by each run
    "pipeline_assets.commands.admin": 2,  # folders of manifests that git tracks
    "pipeline_assets.commands.corpora": 1,  # a link to the report, next to it
    "pipeline_assets.corpus.compiled": 1,  # the cache of compiled kernels
    "pipeline_assets.corpus.readers.hub_files": 1,  # the file of a lock
    "pipeline_assets.corpus.scoring.remote_shard": 2,  # a scratch folder of links
    "pipeline_assets.corpus.scoring.score_shard": 1,  # a scratch folder
    "pipeline_assets.demo.loopback_files": 1,  # the demo's hub
    "pipeline_assets.demo.loopback_hub": 1,
    "pipeline_assets.demo.loopback_writes": 1,
    "pipeline_assets.spine.durable": 2,  # syncs them
}
_CHANGES = {"write_bytes", "write_text", "mkdir", "touch", "rename", "symlink_to", "hardlink_to"}


def calls() -> list[tuple[Path, ast.Call]]:
    return [(path, node) for path in SOURCES for node in nodes(path) if isinstance(node, ast.Call)]


def test_files_are_written_by_durable_alone() -> None:
    """Any other plain write would pass every test without a power loss."""
    writes = Counter(
        module_name(path)
        for path, call in calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr in _CHANGES
        if ast.unparse(call.func.value) not in ("durable", "formatter")
    )

    assert writes == WRITING


def test_only_echo_prints() -> None:
    """Names and rows may contain control characters, which only `echo` escapes."""
    prints = Counter(
        module_name(path) for path, call in calls() if ast.unparse(call.func) in ("typer.echo", "click.echo", "print")
    )

    assert prints == PRINTING

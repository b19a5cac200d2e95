"""Count of the lines of the package and of one healing run.

    python benchmarks/size.py

The run builds the demo's healing set from a hub on loopback, without workers. Its lines are the lines of all functions
that it calls, printed next to the lines of their whole files.
"""

import ast
import inspect
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType

PROJECT = Path(__file__).parents[1]
PACKAGES = ("pipeline_assets", "resources", "modal_jobs")


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def import_lines(path: Path) -> int:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(
        node.end_lineno - node.lineno + 1 for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
    )


def lines_called_by_run() -> dict[Path, set[int]]:
    """Return, by file, the lines of all functions that a build of healing calls."""
    from pipeline_assets.build import drive
    from pipeline_assets.build.run import Run
    from pipeline_assets.demo.corpora import write_inputs
    from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
    from pipeline_assets.demo.recipes import write_healing_recipe

    called: dict[CodeType, None] = {}

    def record_call(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class or a module
            called[frame.f_code] = None

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_inputs(root, "healing")
        with LoopbackHub(root / HUB_FOLDER) as hub:
            recipe = write_healing_recipe(root, hub.commits())
            environment = os.environ | hub.client_environment()
            os.environ.update(hub.client_environment())
            threading.setprofile(record_call)
            sys.setprofile(record_call)
            try:
                run = Run.from_settings(root, environment, workers=0)
                for target in recipe.targets():
                    drive.build(target, run)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)  # type: ignore[arg-type]
    lines: dict[Path, set[int]] = {}
    for code in called:
        file = Path(code.co_filename)
        if file.is_relative_to(PROJECT / "pipeline_assets"):
            lines.setdefault(file, set()).update(function_lines(code))
    return lines


def function_lines(code: CodeType) -> range:
    """Return a function's lines, including decorators and docstring.

    A lambda or comprehension counts only its own lines.
    """
    if code.co_name.startswith("<"):  # inspect would return the enclosing function
        return range(code.co_firstlineno, 1 + max(line for *_, line in code.co_lines() if line))
    return range(code.co_firstlineno, code.co_firstlineno + len(inspect.getsourcelines(code)[0]))


def main() -> None:
    files = [path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")]
    lines, imports = sum(map(count_lines, files)), sum(map(import_lines, files))
    print(f"package: {lines:,} lines in {len(files)} files; {imports / lines:.1%} of the lines are imports")
    called = lines_called_by_run()
    run, whole = sum(map(len, called.values())), sum(map(count_lines, called))
    print(f"a healing run calls functions of {run:,} lines in {len(called)} files of {whole:,} lines")
    hub = [path for path in called if path.is_relative_to(PROJECT / "pipeline_assets" / "demo")]
    print(f"of these, the demo's hub on loopback: {len(hub)} files of {sum(map(count_lines, hub)):,} lines")
    for path in sorted(called, key=lambda path: len(called[path]), reverse=True):
        print(f"{len(called[path]):6,} of {count_lines(path):6,}  {path.relative_to(PROJECT)}")


if __name__ == "__main__":
    main()

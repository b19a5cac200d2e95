"""How much there is to read: lines and files of the package, and of it what one healing run passes through.

    python benchmarks/size.py

The run builds the demo's healing set from a hub on loopback, without workers. Its lines are those of the functions that
run; those of their files, whole, are shown beside them.
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


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def import_lines(path: Path) -> int:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(
        node.end_lineno - node.lineno + 1 for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
    )


def passed_by_a_run() -> dict[Path, set[int]]:
    """Lines of the functions that run, by file of the package, while the demo's healing set is built and checked."""
    from pipeline_assets.build import drive
    from pipeline_assets.build.run import Run
    from pipeline_assets.demo.corpora import HUB_FOLDER, write_inputs
    from pipeline_assets.demo.loopback_hub import LoopbackHub
    from pipeline_assets.demo.recipes import made_healing

    passed: dict[CodeType, None] = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a class or a module is none
            passed[frame.f_code] = None

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_inputs(root, "healing")
        with LoopbackHub(root / HUB_FOLDER) as hub:
            recipe = made_healing(root, hub.commits())
            environment = os.environ | hub.variables()
            os.environ.update(hub.variables())
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                run = Run.from_settings(root, environment, workers=0)
                for target in recipe.targets():
                    drive.build(target, run)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)  # type: ignore[arg-type]
    lines: dict[Path, set[int]] = {}
    for code in passed:
        file = Path(code.co_filename)
        if file.is_relative_to(PROJECT / "pipeline_assets"):
            lines.setdefault(file, set()).update(lines_of_function(code))
    return lines


def lines_of_function(code: CodeType) -> range:
    """Its text, decorators and docstring included; of an expression within another function, or in none, its own."""
    if code.co_name.startswith("<"):  # inspect takes these for the function that they stand in
        return range(code.co_firstlineno, 1 + max(line for *_, line in code.co_lines() if line))
    return range(code.co_firstlineno, code.co_firstlineno + len(inspect.getsourcelines(code)[0]))


def main() -> None:
    files = [path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")]
    lines, imports = sum(map(lines_of, files)), sum(map(import_lines, files))
    print(f"package: {lines:,} lines in {len(files)} files; {imports / lines:.1%} of the lines are imports")
    passed = passed_by_a_run()
    run, whole = sum(map(len, passed.values())), sum(map(lines_of, passed))
    print(f"a healing run passes functions of {run:,} lines in {len(passed)} files of {whole:,} lines")
    for path in sorted(passed, key=lambda path: len(passed[path]), reverse=True):
        print(f"{len(passed[path]):6,} of {lines_of(path):6,}  {path.relative_to(PROJECT)}")


if __name__ == "__main__":
    main()

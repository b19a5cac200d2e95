"""How much there is to read: lines and files of the package, and of it what one healing run passes through.

    python benchmarks/size.py

The run builds the demo's healing set from a hub on loopback, without workers. A file counts whole as soon as one of its
functions runs.
"""

import ast
import inspect
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType

PROJECT = Path(__file__).parents[1]
PACKAGES = ("pipeline_assets", "resources", "modal_jobs")


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def import_lines(path: Path) -> int:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return sum(
        node.end_lineno - node.lineno + 1 for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
    )


def passed_by_a_run() -> set[Path]:
    """Files of the package of which a function runs while the demo's healing set is built and its checks are asked."""
    from pipeline_assets.corpus.recipes import drive
    from pipeline_assets.corpus.recipes.run import Run
    from pipeline_assets.demo import DATASET, HUB_FOLDER, RECIPE_NAME, write_hub, write_recipe
    from pipeline_assets.systems.registry import PROJECT_RECIPES, read_recipe
    from resources.loopback_hub import LoopbackHub

    passed: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a class or a module is none
            passed.add(frame.f_code.co_filename)

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_hub(root)
        with LoopbackHub(root / HUB_FOLDER) as hub:
            path = write_recipe(root, PROJECT_RECIPES / f"{RECIPE_NAME}.yaml", hub.commits()[DATASET])
            environment = os.environ | hub.variables()
            os.environ.update(hub.variables())
            threading.setprofile(note)
            sys.setprofile(note)
            try:
                run = Run.of(root, environment, workers=0)
                for target in read_recipe(path).targets():
                    drive.build(target, run)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)  # type: ignore[arg-type]
    return {file for file in map(Path, passed) if file.is_relative_to(PROJECT / "pipeline_assets")}


def main() -> None:
    files = [path for package in PACKAGES for path in (PROJECT / package).rglob("*.py")]
    lines, imports = sum(map(lines_of, files)), sum(map(import_lines, files))
    print(f"package: {lines:,} lines in {len(files)} files; {imports / lines:.1%} of the lines are imports")
    passed = passed_by_a_run()
    print(f"a healing run passes {len(passed)} files of {sum(map(lines_of, passed)):,} lines")
    for path in sorted(passed, key=lines_of, reverse=True):
        print(f"{lines_of(path):6,}  {path.relative_to(PROJECT)}")


if __name__ == "__main__":
    main()

"""Write the list of files in AGENTS.md.

Each module is listed with the first sentence of its docstring.
"""

import ast
import re
import subprocess
import textwrap
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PACKAGES = ("pipeline_assets", "resources", "modal_jobs")
WIDTH = 120
BLOCK = re.compile(r"(?<=<!-- made by `make tree` -->\n```\n).*?(?=```)", re.DOTALL)


def tree() -> str:
    """Return a line for each package and module that git tracks or would add."""
    command = ["git", "ls-files", "-co", "--exclude-standard", *(f"{package}/**.py" for package in PACKAGES)]
    listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.split()
    modules = {Path(name): description(PROJECT / name) for name in listed if (PROJECT / name).exists()}
    return "".join(line(path, modules[path]) for path in sorted(modules, key=order) if path.name != "__main__.py")


def order(path: Path) -> tuple[object, ...]:
    """Sort a package before its modules, and modules before packages below."""
    return (*((1, part) for part in path.parent.parts), (0, "" if path.name == "__init__.py" else path.name))


def description(path: Path) -> str:
    sentence = re.split(r"\.(?:\s|$)|\n\n", ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "")[0]
    return " ".join(sentence.split())


def line(path: Path, text: str) -> str:
    package = path.name == "__init__.py"
    depth = len(path.parts) - (2 if package else 1)
    name = f"{'  ' * depth}{path.parent.name + '/' if package else path.name}"
    return f"{name:<30} {textwrap.shorten(text, WIDTH - max(30, len(name)) - 1, placeholder=' …')}".rstrip() + "\n"


if __name__ == "__main__":
    page = PROJECT / "AGENTS.md"
    page.write_text(BLOCK.sub(lambda _: tree(), page.read_text(encoding="utf-8")), encoding="utf-8")

"""Programs of docs/manifest.md, extracted and run without this project."""

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

PAGE = Path(__file__).parents[2] / "docs" / "manifest.md"
VERIFIER, CONTENT_HASHES = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
# Modules of this project cannot be imported, even if the environment has it installed.
_ALONE = (
    "import sys; sys.modules |= dict.fromkeys(('pipeline_assets', 'resources', 'modal_jobs', 'corpusmill', 'numpy'))"
)
_TIMEOUT_S = 120


def run_verifier_here(root: Path) -> str:
    """Run the verifier in this process, in a tenth of the time; return its output."""
    output = io.StringIO()
    arguments = mock.patch.object(sys, "argv", ["verify_root.py", str(root)])
    with arguments, contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        exec(compile(VERIFIER, "verify_root.py", "exec"), {"__name__": "__main__"})
    return output.getvalue()


def run_program(program: str, *arguments: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of the page in an isolated process, outside the project."""
    words = [sys.executable, "-I", "-c", f"{_ALONE}\n{program}", *map(str, arguments)]
    return subprocess.run(words, env={}, cwd="/", capture_output=True, text=True, timeout=_TIMEOUT_S)


def run_verifier(root: Path) -> subprocess.CompletedProcess[str]:
    result = run_program(VERIFIER, root)
    assert result.stderr == ""
    return result


def read_lines(output: str) -> dict[str, list[str]]:
    """Return the verifier's findings by folder; none for an intact artifact."""
    lines = [line.split("  ") for line in output.splitlines()]
    assert all(cells[0] == ("intact" if len(cells) == 2 else "DAMAGED") for cells in lines)
    return {cells[1]: cells[2:] for cells in lines}


def find_damage(root: Path) -> dict[str, list[str]]:
    """Return the verifier's findings by folder, without intact artifacts."""
    result = run_verifier(root)
    lines = {folder: found for folder, found in read_lines(result.stdout).items() if found}
    assert result.returncode == bool(lines)
    return lines

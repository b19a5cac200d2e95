"""Environment of processes that refuse pandas, with their record of its imports."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def refusing_environment(notes: Path | None = None) -> Mapping[str, str]:
    """Return variables that load `on_start` into each process, with its notes file."""
    paths = (PROJECT, PROJECT / "tests" / "harness" / "on_start")
    return {"PYTHONPATH": os.pathsep.join(map(str, paths)), "REFUSED_IMPORTS": str(notes or _default_notes())}


def take_notes(notes: Path | None = None) -> str:
    """Return the stacks of refused imports since the last call."""
    file = notes or _default_notes()
    if not file.exists():
        return ""
    stacks = file.read_text()
    file.unlink()
    return stacks


def _default_notes() -> Path:
    return Path(tempfile.gettempdir()) / f"refused-imports-{os.getpid()}"

"""Errors of wrong recipes, with the lines of the files that they name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.systems.registry import SYSTEMS


def errors(read: Callable[[], object]) -> list[InputError]:
    with pytest.raises(UsageError) as error:
        read()
    return [error.value, *error.value.others]


def read_error_lines(root: Path, content: dict[str, Any]) -> list[tuple[str, str]]:
    """Write an invalid recipe; return the lines of its errors and their short texts."""
    path = root / "recipes" / "mixed.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({"system": "stage_a", "name": "mixed"} | content, sort_keys=False))
    reported = errors(lambda: SYSTEMS.read_recipe(path, root))
    return [(read_line(error, root), error.what.partition(": did you")[0]) for error in reported]


def read_line(error: InputError, tmp_path: Path) -> str:
    path = tmp_path / "recipes" / "mixed.yaml"
    return path.read_text().splitlines()[int(error.where.removeprefix(f"{path}:")) - 1].strip()

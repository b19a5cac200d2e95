"""Folder `.NAME.kept`, which has work files for the next version of an artifact."""

import re
from pathlib import Path

from pipeline_assets.spine import durable

KEPT_TASKS_FILE = "tasks.json"  # a work folder with this file, which `kept_work` writes, is kept
_KEPT_NAME = re.compile(r"\.(.+)\.kept", re.DOTALL)


def kept_folder(target: Path) -> Path:
    """Return the path of an artifact's kept folder, which need not exist."""
    return target.with_name(f".{target.name}.kept")


def kept_folder_target(folder: Path) -> Path | None:
    """Return the artifact folder of a `kept_folder`; None for any other folder."""
    match = _KEPT_NAME.fullmatch(folder.name)
    return folder.with_name(match[1]) if match else None


def keep_work(work_folder: Path, target: Path) -> None:
    """Make `work_folder` the kept folder of `target`; remove any earlier kept folder."""
    durable.remove(kept_folder(target))
    durable.rename(work_folder, kept_folder(target))

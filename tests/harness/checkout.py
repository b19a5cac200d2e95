"""Copy of the checkout without files of this environment."""

import shutil
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def copy_checkout(folder: Path) -> None:
    """Copy all files that git tracks or would add, symlinks as symlinks."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.splitlines()
    for path in (PROJECT / name for name in listed):
        if path.is_symlink() or path.exists():  # not deleted
            copy = folder / path.relative_to(PROJECT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)

"""Separate file systems for tests of full and read-only disks."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if mount.returncode != 0:
        pytest.skip(f"a small file system can't be mounted here: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


@contextmanager
def failing_disk(folder: Path, source: Path) -> Iterator[Path]:
    """Yield a copy of a folder on a disk that lists its files but can't read them."""
    folder.mkdir()
    image = folder.with_suffix(".img")
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-d", source, image], check=True, capture_output=True)
        loop = subprocess.run(["losetup", "--find", "--show", image], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a loop device can't be made here: {error}")
    device = loop.stdout.strip()
    try:
        subprocess.run(["mount", "-o", "ro,noload", device, folder], check=True)
        # Names and sizes are in the cache before the cut.
        sizes = {path: path.stat().st_size for path in folder.rglob("*")}
        for path in sizes:
            if path.suffix == ".json" and path.is_file():
                path.read_bytes()
        os.truncate(image, 1 << 16)
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
        subprocess.run(["losetup", "--detach", device], check=False)

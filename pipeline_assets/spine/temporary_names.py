"""Names of files that are being written, unique to the process that writes them."""

import contextlib
import functools
import itertools
import os
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from pipeline_assets.spine.processes import is_dead_process

_TEMPORARY_NAME = re.compile(r"\..*\.([A-Za-z0-9-]+)\.([0-9]+)\.[0-9]+\.tmp", re.DOTALL)
_MAX_NAME_BYTES, _MAX_HOST_CHARACTERS = 255, 40
_HOST_NAMESPACE = 0xEFFFFFFC  # inode of the process namespace that every Linux system starts with
# Processes of another machine are not visible, so its temporary files count as abandoned at this age.
_ABANDONED_AFTER_S = 86_400
_file_numbers = itertools.count()


@functools.cache
def _host() -> str:
    """Return a name for the machine or container whose processes see each other.

    Containers may share the name of their host, so the number of their process namespace follows.
    """
    name = re.sub("[^A-Za-z0-9-]", "-", socket.gethostname())[:_MAX_HOST_CHARACTERS] or "host"
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:  # without /proc, as on macOS
        return name
    return name if namespace == _HOST_NAMESPACE else f"{name}-{namespace}"


def temporary_path(path: Path) -> Path:
    """Return a path next to `path` that no other process uses.

    Its name is `.name.<host>.<pid>.<n>.tmp`, with `name` cut so that the new name has at most 255 bytes.
    """
    end = f".{_host()}.{os.getpid()}.{next(_file_numbers)}.tmp"
    name = os.fsdecode(os.fsencode(path.name)[: _MAX_NAME_BYTES - len(end) - 1])
    return path.with_name(f".{name}{end}")


def is_temporary(name: str) -> bool:
    """Check whether a name has the form of a `temporary_path`."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def abandoned_entries(folder: Path) -> Iterator[Path]:
    """Yield temporary entries of dead processes, and of other machines after one day."""
    for name in os.listdir(folder):
        match = _TEMPORARY_NAME.fullmatch(name)
        if match is None:
            continue
        with contextlib.suppress(FileNotFoundError):  # another process may rename or remove the entry
            age_s = time.time() - os.lstat(folder / name).st_mtime
            if is_dead_process(int(match[2])) if match[1] == _host() else age_s > _ABANDONED_AFTER_S:
                yield folder / name

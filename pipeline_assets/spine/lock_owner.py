"""Owner of the lock on an artifact, for readers that build nothing."""

import errno
import fcntl
import os
import stat
from pathlib import Path

from pipeline_assets.spine.builder import Builder
from pipeline_assets.spine.lock import NOT_A_FILE_ERRORS, OPEN_FLAGS, lock_path, read_builder


def lock_owner(target: Path) -> Builder | None:
    """Return the process that builds `target`; None if no process has its lock.

    This call locks the file for a moment, so a builder that starts in that moment may be refused. Without permission to
    open the lock file, return an empty `Builder`.
    """
    try:
        descriptor = os.open(lock_path(target), os.O_RDONLY | OPEN_FLAGS)
    except PermissionError:
        return Builder()
    except OSError as error:
        if error.errno not in (errno.ENOENT, *NOT_A_FILE_ERRORS):
            raise
        return None
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return read_builder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None

"""Exchange of two folders in one step."""

import ctypes
import errno
import os
import sys
from pathlib import Path

from pipeline_assets.spine.durable import call_failpoint, fsync_folder

_RENAME_EXCHANGE, _AT_FDCWD = 2, -100  # constants of renameat2(2)


def exchange(first: Path, second: Path) -> bool:
    """Swap two folders atomically; False if unsupported, OSError if the swap fails."""
    if not sys.platform.startswith("linux"):
        return False
    call_failpoint("exchange", second)
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    if renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) != 0:
        number = ctypes.get_errno()
        if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            return False
        raise OSError(number, os.strerror(number), str(second))
    fsync_folder(second.parent)
    return True

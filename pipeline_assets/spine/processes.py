"""Processes of this machine, found by their ids."""

import errno
import os


def is_dead_process(pid: int) -> bool:
    """Check whether no process of this machine has the process id."""
    try:
        os.kill(pid, 0)
    except OverflowError:
        return True
    except OSError as error:
        return error.errno == errno.ESRCH
    return False

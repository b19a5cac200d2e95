"""Errors of the operating system as messages for users."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.usage import nearest_existing

_NO_THREAD = "can't start new thread"  # CPython's message if memory, or the limit on processes, is used up


def explain_os_error(error: OSError, path: Path) -> InputError:
    """Convert an OSError, such as a full disk, to an InputError with a fix."""
    is_denied = error.errno in (errno.EACCES, errno.EPERM)
    if is_denied and (closed := next(filter(_is_closed, (*reversed(path.parents), path)), None)) is not None:
        return RetryableError("opening the folder is not allowed", closed, "grant permission to read and enter it")
    match error.errno:
        case errno.ENOSPC if _has_no_inodes(path):
            fix = "remove files that are not needed (df -i counts inodes), then run the same command to continue"
            return NoSpaceError("the file system has no inode left for another file", path, fix)
        case errno.ENOSPC:
            fix = "free some space, then run the same command to continue"
            return NoSpaceError("no space is left on the disk", path, fix)
        case errno.EDQUOT:
            fix = "free some space or raise the quota, then run the same command to continue"
            return NoSpaceError("the disk quota is used up", path, fix)
        case errno.EFBIG:
            fix = "raise the limit (ulimit -f), then run the same command to continue"
            return NoSpaceError("the file reached the file size limit", path, fix)
        case errno.EMFILE:
            fix = "raise the limit (ulimit -n), then run the same command to continue"
            return RetryableError("the limit on open files is reached", path, fix)
        case errno.EACCES | errno.EPERM if os.access(path, os.F_OK) and not os.access(path, os.R_OK):
            return RetryableError("reading is not allowed", path, "grant read permission")
        case errno.EROFS:
            fix = "mount it for writing, or choose another folder"
            return RetryableError("the file system is read-only", path, fix)
        case errno.EACCES | errno.EPERM:
            return RetryableError("writing is not allowed", path, "grant write permission, or choose another folder")
        case errno.ENOTDIR | errno.EEXIST:
            file = next((place for place in (path, *path.parents) if place.is_file()), path)
            return UsageError("expected a folder, got a file", file, "choose another folder, or move the file away")
    what = f"the operating system reports: {error.strerror or error}"
    return RetryableError(what, path, "fix that, then run the same command")


def _has_no_inodes(path: Path) -> bool:
    """Check whether all inodes of a path's file system are in use.

    File systems without a fixed number of inodes report 0.
    """
    with contextlib.suppress(OSError):
        statistics = os.statvfs(nearest_existing(path))
        return statistics.f_files > 0 and statistics.f_favail == 0
    return False


def _is_closed(folder: Path) -> bool:
    """Check whether this process may not enter a folder."""
    return os.path.isdir(folder) and not os.access(folder, os.X_OK)


def read_error_text(error: OSError) -> str:
    """Describe a read error of the operating system, such as a bad sector."""
    return f"cannot be read ({error.strerror or error})"


class NoSpaceError(RetryableError):
    """Full disk, exhausted quota, or exceeded file size limit."""

    def add_location(self, root: Path) -> None:
        """Make the file's path absolute; if the file is in `root`, name `root` in the fix."""
        self.where = os.path.abspath(self.where)
        if Path(self.where).is_relative_to(root.absolute()):
            self.fix += f"; the data root is {root.absolute()}"


@contextlib.contextmanager
def convert_os_errors(root: Path) -> Iterator[None]:
    """Convert each OSError of a `with` block, except a broken pipe, to an InputError.

    Errors of memory, and of threads that cannot start, are converted, too.
    If the file is below `root`, the text `fix` of a NoSpaceError also names `root`.
    """
    try:
        yield
    except BrokenPipeError:  # the program that reads the output has ended
        raise
    except OSError as error:
        explained = explain_os_error(error, Path(os.fsdecode(error.filename2 or error.filename or root.absolute())))
        if isinstance(explained, NoSpaceError):
            explained.add_location(root)
        elif error.filename is None:  # a read error of a library, whose file need not be below the root
            explained.replace_text(str(root.absolute()), "a file that this command uses")
        raise explained from error
    except NoSpaceError as error:
        error.add_location(root)
        raise
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and str(error) != _NO_THREAD:
            raise
        what = "no memory could be allocated" if isinstance(error, MemoryError) else "no thread could be started"
        fix = "use fewer workers, or raise the limits of memory (ulimit -v) and processes (ulimit -u), and run again"
        raise RetryableError(what, None, fix) from error

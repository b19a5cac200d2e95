"""What the operating system refuses, in a line for the user."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from pipeline_assets.spine.errors import InputError, RetryableError, UsageError


def explain(error: OSError, path: Path) -> InputError:
    """What the system refused, as a line for the user: a full disk, a forbidden folder, a file in its place, a disk or
    a lock server that fails.
    """
    match error.errno:
        case errno.ENOSPC:
            return NoSpaceError("no space is left on the disk", path, "free some and run the same command: it goes on")
        case errno.EDQUOT:
            fix = "free some, or raise the quota, and run the same command: it goes on"
            return NoSpaceError("the disk quota is used up", path, fix)
        case errno.EFBIG:
            fix = "raise the limit (ulimit -f) and run the same command: it goes on"
            return NoSpaceError("the file reached the system's limit of file sizes", path, fix)
        case errno.EACCES | errno.EPERM if os.access(path, os.F_OK) and not os.access(path, os.R_OK):
            return RetryableError("reading is not allowed", path, "give read permission")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return RetryableError("writing is not allowed", path, "give write permission, or another folder")
        case errno.ENOTDIR | errno.EEXIST:
            file = next((place for place in (path, *path.parents) if place.is_file()), path)
            return UsageError("a file lies where a folder belongs", file, "give another folder, or move the file away")
    return RetryableError(f"the system says: {error.strerror or error}", path, "mend that, then run the same command")


class NoSpaceError(RetryableError):
    """A full disk, an exhausted quota, or a limit of file sizes."""

    def name_root(self, root: Path) -> None:
        """Name the file by its absolute path, and the data root."""
        self.where, self.fix = os.path.abspath(self.where), f"{self.fix}; the data root is {root.absolute()}"


@contextlib.contextmanager
def explaining(root: Path) -> Iterator[None]:
    """Explain what the system refuses to the block, which writes below a data root: that stands for a missing file
    name. A full disk names its file and the data root.
    """
    try:
        yield
    except BrokenPipeError:  # whoever reads the output has ended
        raise
    except OSError as error:
        explained = explain(error, Path(os.fsdecode(error.filename2 or error.filename or root.absolute())))
        if isinstance(explained, NoSpaceError):
            explained.name_root(root)
        elif error.filename is None:  # a read error of a library, whose file need not be below the root
            explained.replace_text(str(root.absolute()), "a file that this command uses")
        raise explained from error
    except NoSpaceError as error:
        error.name_root(root)
        raise

"""Errors of the operating system are explained in one line with a fix."""

import errno
import os
import re
import threading
from pathlib import Path

import pytest
from mounts import mounted

from pipeline_assets.spine.disk_errors import convert_os_errors, explain_os_error
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.errors import RetryableError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.txt"


def test_full_disk_leaves_no_file_and_is_explained(path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as error, DurableFile(path) as file:
        file.write(b"half")
        with open("/dev/full", "wb", buffering=0) as full_disk:
            full_disk.write(b"x")

    assert list(path.parent.iterdir()) == []
    assert str(explain_os_error(error.value, path)) == (
        f"{path}: no space is left on the disk; free some space, then run the same command to continue"
    )


def test_disk_without_inodes_is_not_called_full(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m,nr_inodes=3") as disk:
        with pytest.raises(OSError, match="No space left") as error:
            for number in range(4):
                (disk / str(number)).touch()

        assert str(explain_os_error(error.value, Path(error.value.filename))) == (
            f"{error.value.filename}: the file system has no inode left for another file; remove files that are not "
            "needed (df -i counts inodes), then run the same command to continue"
        )


@pytest.mark.parametrize(
    ("numbers", "line"),
    [
        (
            "EDQUOT",
            "the disk quota is used up; free some space or raise the quota, then run the same command to continue",
        ),
        (
            "EFBIG",
            "the file reached the file size limit; raise the limit (ulimit -f), then run the same command to continue",
        ),
        (
            "EMFILE",
            "the limit on open files is reached; raise the limit (ulimit -n), then run the same command to continue",
        ),
        ("EACCES EPERM", "writing is not allowed; grant write permission, or choose another folder"),
        ("EROFS", "the file system is read-only; mount it for writing, or choose another folder"),
        ("ENOTDIR EEXIST", "expected a folder, got a file; choose another folder, or move the file away"),
        (
            "EIO ENOLCK ELOOP ENAMETOOLONG ESTALE",
            "the operating system reports: bad disk; fix that, then run the same command",
        ),
    ],
)
def test_os_errors_are_explained(path: Path, numbers: str, line: str) -> None:
    lines = {str(explain_os_error(OSError(getattr(errno, number), "bad disk"), path)) for number in numbers.split()}

    assert lines == {f"{path}: {line}"}


def test_missing_memory_and_refused_threads_are_explained_and_other_errors_kept(tmp_path: Path) -> None:
    def start_thread() -> None:
        stack_bytes = threading.stack_size(1 << 45)
        try:
            threading.Thread(target=bool).start()
        finally:
            threading.stack_size(stack_bytes)

    limits = "use fewer workers, or raise the limits of memory (ulimit -v) and processes (ulimit -u), and run again"
    for fail, what in ((start_thread, "no thread could be started"), (lambda: b"x" * (1 << 62), "no memory could be")):
        with pytest.raises(RetryableError, match=f"^{what}.*; {re.escape(limits)}$"), convert_os_errors(tmp_path):
            fail()
    with pytest.raises(RuntimeError, match=r"^another$"), convert_os_errors(tmp_path):
        raise RuntimeError("another")


def test_denied_read_is_explained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)

    error = explain_os_error(OSError(errno.EACCES, "denied"), path)

    assert str(error) == f"{path}: reading is not allowed; grant read permission"


@pytest.mark.parametrize("name", ["", "folder", "folder/file"])
def test_a_folder_that_may_not_be_entered_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    (closed / "folder").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK or Path(path) != closed)

    error = explain_os_error(OSError(errno.EACCES, "denied"), closed / name)

    assert str(error) == f"{closed}: opening the folder is not allowed; grant permission to read and enter it"

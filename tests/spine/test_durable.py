"""Durable files: whole under their own name, or not there; one that many write is reserved whole, each range synced."""

import errno
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from crash_points import killed_at, steps_of

from pipeline_assets.spine import durable
from pipeline_assets.spine.disk_errors import explain_os_error
from pipeline_assets.spine.durable import DurableFile, boot_id, link, make_folder, remove, write_durably
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.file_ranges import reserve, write_range
from pipeline_assets.spine.folder_exchange import exchange
from pipeline_assets.spine.temporary_names import is_temporary


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.txt"


def test_a_file_stands_under_its_name_with_its_bytes_counted_and_hashed(path: Path) -> None:
    with DurableFile(path) as file:
        file.write(b"one ")
        assert file.write(memoryview(b"two!").cast("H")) == 4

    assert path.read_bytes() == b"one two!"
    assert (file.bytes_written, file.sha256) == (8, hashlib.sha256(b"one two!").hexdigest())


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_the_first_bytes_of_another_file_are_appended_counted_and_hashed(path: Path, size: int) -> None:
    content = bytes(range(256)) * 12_000
    path.with_name("source").write_bytes(content)

    with DurableFile(path) as file:
        file.write(b"before ")
        file.append(path.with_name("source"), size, hashlib.sha256(content).hexdigest())
        file.write(b" after")

    expected = b"before " + content[:size] + b" after"
    assert path.read_bytes() == expected
    assert (file.bytes_written, file.sha256) == (len(expected), hashlib.sha256(expected).hexdigest())


@pytest.mark.parametrize("found", [b"", b"on", b"onf", b"one more"], ids=["empty", "cut", "changed", "longer"])
def test_a_file_with_other_bytes_is_named_when_it_is_appended_and_nothing_is_left(path: Path, found: bytes) -> None:
    source = path.with_name("source")
    source.write_bytes(found)
    expected = f"{source}: the bytes differ from those written; run the same command again"

    with pytest.raises(RetryableError, match=expected), DurableFile(path) as file:
        file.append(source, 2, hashlib.sha256(b"one").hexdigest())

    assert [entry.name for entry in path.parent.iterdir()] == ["source"]


def test_while_it_is_written_a_file_has_a_temporary_name(path: Path) -> None:
    with DurableFile(path) as file:
        file.write(b"half")

        [name] = [entry.name for entry in path.parent.iterdir()]
        assert re.fullmatch(rf"\.words\.txt\.[A-Za-z0-9-]+\.{os.getpid()}\.[0-9]+\.tmp", name)
        assert is_temporary(name)


def test_an_error_leaves_the_file_that_stood_there_before(path: Path) -> None:
    write_durably(path, b"old")

    with pytest.raises(ZeroDivisionError), DurableFile(path) as file:
        file.write(b"new")
        _ = 1 / 0

    assert path.read_bytes() == b"old"


def test_the_order_is_write_fsync_rename_fsync_of_the_folder(path: Path) -> None:
    steps = steps_of(lambda: write_durably(path, b"x"))

    temporary = steps[0][1]
    assert is_temporary(temporary.name)
    assert steps == [
        ("create", temporary),
        ("write", temporary),
        ("fsync", temporary),
        ("rename", path),
        ("fsync", path.parent),
    ]


def test_before_whatever_step_the_process_dies_the_file_is_old_or_new(path: Path) -> None:
    seen = []

    write_durably(path, b"old")
    for step in itertools.count(1):
        if killed_at(step, lambda: write_durably(path, b"new")) is None:
            break
        seen.append(path.read_bytes())

    # From the third death on, what the second one left is removed first: one step more.
    assert seen == [b"old", b"old", b"old", b"old", b"old", b"new"]


def test_a_file_that_the_disk_stored_wrongly_never_gets_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    write_durably(path, b"old")
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(len(data))))

    with pytest.raises(RetryableError) as lost:
        write_durably(path, b"written")

    assert str(lost.value) == f"{path}: the disk stored other bytes; run the same command again"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


def test_a_full_disk_leaves_no_file_and_is_explained(path: Path) -> None:
    with pytest.raises(OSError, match="No space left") as full, DurableFile(path) as file:
        file.write(b"half")
        with open("/dev/full", "wb", buffering=0) as full_disk:
            full_disk.write(b"x")

    assert list(path.parent.iterdir()) == []
    assert str(explain_os_error(full.value, path)) == (
        f"{path}: no space is left on the disk; free some space, then run the same command to continue"
    )


def test_a_write_that_the_system_refuses_names_its_file(path: Path) -> None:
    with pytest.raises(OSError) as refused, DurableFile(path) as file:
        os.dup2(os.open("/dev/full", os.O_WRONLY), file.fileno())
        file.write(b"x")

    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(path))


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
        ("EACCES EPERM EROFS", "writing is not allowed; grant write permission, or choose another folder"),
        ("ENOTDIR EEXIST", "expected a folder, got a file; choose another folder, or move the file away"),
        (
            "EIO ENOLCK ELOOP ENAMETOOLONG ESTALE",
            "the operating system reports: bad disk; fix that, then run the same command",
        ),
    ],
)
def test_what_the_system_refuses_is_explained(path: Path, numbers: str, line: str) -> None:
    lines = {str(explain_os_error(OSError(getattr(errno, number), "bad disk"), path)) for number in numbers.split()}

    assert lines == {f"{path}: {line}"}


def test_what_may_not_be_read_is_explained(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK)

    error = explain_os_error(OSError(errno.EACCES, "denied"), path)

    assert str(error) == f"{path}: reading is not allowed; grant read permission"


def test_a_folder_is_made_with_those_above_it_each_synced_into_the_one_above(tmp_path: Path) -> None:
    steps = steps_of(lambda: make_folder(tmp_path / "a" / "b"))

    assert steps == [
        ("mkdir", tmp_path / "a"),
        ("fsync", tmp_path),
        ("mkdir", tmp_path / "a" / "b"),
        ("fsync", tmp_path / "a"),
    ]
    assert (tmp_path / "a" / "b").is_dir()
    assert steps_of(lambda: make_folder(tmp_path / "a" / "b")) == []


def test_no_folder_is_made_in_the_place_of_a_file(path: Path) -> None:
    path.write_text("words")

    with pytest.raises(FileExistsError):
        make_folder(path / "below")


def test_a_link_is_the_same_file_in_the_place_of_what_lay_there(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("words")
    (tmp_path / "target").write_text("former")

    link(tmp_path / "source", tmp_path / "target")

    assert (tmp_path / "source").samefile(tmp_path / "target")


def test_where_a_system_has_no_links_a_link_is_a_durable_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not here")

    (tmp_path / "source").write_text("words")
    monkeypatch.setattr("os.link", refuse)

    steps = steps_of(lambda: link(tmp_path / "source", tmp_path / "target"))

    assert (tmp_path / "target").read_text() == "words"
    assert [kind for kind, _ in steps] == ["link", "create", "append", "fsync", "rename", "fsync"]


def test_what_one_boot_of_the_machine_is_called_does_not_change_in_it() -> None:
    code = "from pipeline_assets.spine.durable import boot_id; print(boot_id())"
    elsewhere = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert boot_id()
    assert boot_id() == elsewhere or not sys.platform.startswith("linux")


def test_removing_takes_files_folders_links_and_what_is_not_there_but_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "folder" / "inner" / "file").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (tmp_path / "link").symlink_to("kept")

    for name in ("folder", "link", "kept/other", "missing"):
        remove(tmp_path / name)

    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]
    remove(tmp_path / "kept" / "file")
    assert list((tmp_path / "kept").iterdir()) == []


def test_exchanged_folders_have_each_others_name(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_durably(tmp_path / name / "word", name.encode())

    assert exchange(tmp_path / "first", tmp_path / "second") is True

    assert (tmp_path / "first" / "word").read_bytes() == b"second"
    assert (tmp_path / "second" / "word").read_bytes() == b"first"


def test_exchanging_with_what_is_not_there_is_an_error_not_a_lack_of_the_system(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()

    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "first", tmp_path / "second")


def test_a_system_without_exchange_says_so_before_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    assert exchange(tmp_path / "first", tmp_path / "second") is False


@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
def test_a_file_that_two_processes_write_at_once_is_there_for_both(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, others = tmp_path / "word", iter([b"said by both"])
    steps = []

    def meanwhile(step: durable.Operation, where: Path) -> None:
        steps.append((step, where))
        if step == kind and (word := next(others, None)) is not None:
            write_durably(path, word)

    monkeypatch.setattr(durable, "failpoint", meanwhile)

    assert write_durably(path, b"said by both") == hashlib.sha256(b"said by both").hexdigest()
    assert [file.name for file in tmp_path.iterdir()] == ["word"]
    assert path.read_bytes() == b"said by both"
    assert steps.count(("fsync", tmp_path)) == 2  # neither goes on before the name is durable


def test_a_folder_that_goes_while_a_file_is_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr(durable, "failpoint", lambda step, path: step == "rename" and shutil.rmtree(folder))

    with pytest.raises(FileNotFoundError):
        write_durably(folder / "word", b"lost")


def test_a_reserved_file_is_zeros_until_ranges_are_written_in_any_order_and_it_is_reserved_once(path: Path) -> None:
    reserving = steps_of(lambda: reserve(path, 16))
    at_first = path.read_bytes()

    writing = steps_of(lambda: write_range(path, 12, np.array([4], "<i4").data))
    write_range(path, 0, np.array([1, 2], "<i4").data)
    reserve(path, 16)

    assert at_first == bytes(16)
    assert np.fromfile(path, "<i4").tolist() == [1, 2, 0, 4]
    assert list(path.parent.iterdir()) == [path]
    assert [kind for kind, _ in reserving] == ["create", "fsync", "rename", "fsync"]
    assert [kind for kind, _ in writing] == ["append", "fsync"]

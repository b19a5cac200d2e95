"""Durable files are complete under their own name, or missing."""

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
from crash_points import kill_at, list_steps

from pipeline_assets.spine import durable
from pipeline_assets.spine.durable import DurableFile, boot_id, link, make_folder, remove, write_durably
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.file_ranges import reserve, write_range
from pipeline_assets.spine.folder_exchange import exchange
from pipeline_assets.spine.temporary_names import is_temporary


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "words.txt"


def test_file_is_written_with_its_bytes_counted_and_hashed(path: Path) -> None:
    with DurableFile(path) as file:
        file.write(b"one ")
        assert file.write(memoryview(b"two!").cast("H")) == 4

    assert path.read_bytes() == b"one two!"
    assert (file.bytes_written, file.sha256) == (8, hashlib.sha256(b"one two!").hexdigest())


@pytest.mark.parametrize(("folder_mode", "group_bits"), [(0o755, 0), (0o777, 0), (0o2775, 0o040)])
def test_group_of_a_shared_folder_can_read_files_written_with_umask_077(
    path: Path, folder_mode: int, group_bits: int
) -> None:
    path.parent.chmod(folder_mode)
    before = os.umask(0o077)
    try:
        write_durably(path, b"words")
        write_durably(path.with_name("secret"), b"key", mode=0o600)
        reserve(path.with_name("ranges"), 8)
    finally:
        os.umask(before)

    modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
    assert modes == {path.name: 0o600 | group_bits, "ranges": 0o600 | group_bits, "secret": 0o600}


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_first_bytes_of_another_file_are_appended_counted_and_hashed(path: Path, size: int) -> None:
    content = bytes(range(256)) * 12_000
    path.with_name("source").write_bytes(content)

    with DurableFile(path) as file:
        file.write(b"before ")
        file.append(path.with_name("source"), size, hashlib.sha256(content).hexdigest())
        file.write(b" after")

    expected = b"before " + content[:size] + b" after"
    assert path.read_bytes() == expected
    assert (file.bytes_written, file.sha256) == (len(expected), hashlib.sha256(expected).hexdigest())


@pytest.mark.parametrize("content", [b"", b"on", b"onf", b"one more"], ids=["empty", "cut", "changed", "longer"])
def test_appended_file_with_other_bytes_is_refused_without_leftover(path: Path, content: bytes) -> None:
    source = path.with_name("source")
    source.write_bytes(content)
    expected = f"{source}: the bytes differ from those written; run the same command again"

    with pytest.raises(RetryableError, match=expected), DurableFile(path) as file:
        file.append(source, 2, hashlib.sha256(b"one").hexdigest())

    assert [entry.name for entry in path.parent.iterdir()] == ["source"]


def test_file_has_a_temporary_name_while_it_is_written(path: Path) -> None:
    with DurableFile(path) as file:
        file.write(b"half")

        [name] = [entry.name for entry in path.parent.iterdir()]
        assert re.fullmatch(rf"\.words\.txt\.[A-Za-z0-9-]+\.{os.getpid()}\.[0-9]+\.tmp", name)
        assert is_temporary(name)


def test_error_keeps_the_previous_file(path: Path) -> None:
    write_durably(path, b"old")

    with pytest.raises(ZeroDivisionError), DurableFile(path) as file:
        file.write(b"new")
        _ = 1 / 0

    assert path.read_bytes() == b"old"


def test_order_is_write_fsync_rename_fsync_of_the_folder(path: Path) -> None:
    steps = list_steps(lambda: write_durably(path, b"x"))

    temporary = steps[0][1]
    assert is_temporary(temporary.name)
    assert steps == [
        ("create", temporary),
        ("write", temporary),
        ("fsync", temporary),
        ("rename", path),
        ("fsync", path.parent),
    ]


def test_file_is_old_or_new_after_a_kill_at_any_step(path: Path) -> None:
    contents = []

    write_durably(path, b"old")
    for step in itertools.count(1):
        if kill_at(step, lambda: write_durably(path, b"new")) is None:
            break
        contents.append(path.read_bytes())

    # From the third kill on, the leftover of the second is removed first, which is one more step.
    assert contents == [b"old", b"old", b"old", b"old", b"old", b"new"]


def test_wrongly_stored_file_never_gets_its_name(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    write_durably(path, b"old")
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(len(data))))

    with pytest.raises(RetryableError) as error:
        write_durably(path, b"written")

    assert str(error.value) == f"{path}: the disk stored other bytes; run the same command again"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


def test_refused_write_names_its_file(path: Path) -> None:
    with pytest.raises(OSError) as refused, DurableFile(path) as file:
        os.dup2(os.open("/dev/full", os.O_WRONLY), file.fileno())
        file.write(b"x")

    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(path))


def test_folder_with_a_removed_file_that_is_open_gets_a_temporary_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS and FUSE keep such a file, under another name."""
    make_folder(tmp_path / "work" / "sets")
    for name in ("closed", "sets/open", "sets/other"):
        (tmp_path / "work" / name).touch()

    def keep_open(step: durable.Operation, path: Path) -> None:
        if step == "unlink" and path.name == "open":
            path.with_name(".nfs00000000004600000001").touch()

    with monkeypatch.context() as patch:
        patch.setattr(durable, "failpoint", keep_open)
        remove(tmp_path / "work")

    [moved] = tmp_path.iterdir()
    assert is_temporary(moved.name)
    assert [path.name for path in moved.rglob("*")] == ["sets", ".nfs00000000004600000001"]
    remove(moved)
    assert list(tmp_path.iterdir()) == []


def test_folder_in_which_another_process_writes_is_not_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setattr(durable, "failpoint", lambda step, path: step == "rmdir" and (folder / ".new").touch())

    with pytest.raises(OSError, match="not empty"):
        remove(folder)

    assert [path.name for path in folder.iterdir()] == [".new"]


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a file system that syncs no folder")
def test_refused_sync_names_its_folder() -> None:
    with pytest.raises(OSError) as refused:
        durable.fsync_folder(Path("/proc"))

    assert (refused.value.errno, refused.value.filename) == (errno.EINVAL, "/proc")


def test_folder_is_created_with_its_parents_and_each_is_synced(tmp_path: Path) -> None:
    steps = list_steps(lambda: make_folder(tmp_path / "a" / "b"))

    assert steps == [
        ("mkdir", tmp_path / "a"),
        ("fsync", tmp_path),
        ("mkdir", tmp_path / "a" / "b"),
        ("fsync", tmp_path / "a"),
    ]
    assert (tmp_path / "a" / "b").is_dir()
    assert list_steps(lambda: make_folder(tmp_path / "a" / "b")) == []


def test_folder_cannot_replace_a_file(path: Path) -> None:
    path.write_text("words")

    with pytest.raises(FileExistsError):
        make_folder(path / "below")


def test_link_replaces_the_target_with_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "source").write_text("words")
    (tmp_path / "target").write_text("former")

    link(tmp_path / "source", tmp_path / "target")

    assert (tmp_path / "source").samefile(tmp_path / "target")


def test_link_is_a_durable_copy_on_systems_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not here")

    (tmp_path / "source").write_text("words")
    monkeypatch.setattr("os.link", refuse)

    steps = list_steps(lambda: link(tmp_path / "source", tmp_path / "target"))

    assert (tmp_path / "target").read_text() == "words"
    assert [kind for kind, _ in steps] == ["link", "create", "append", "fsync", "rename", "fsync"]


def test_boot_id_is_constant_during_a_boot() -> None:
    code = "from pipeline_assets.spine.durable import boot_id; print(boot_id())"
    other_id = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert boot_id()
    assert boot_id() == other_id or not sys.platform.startswith("linux")


def test_removal_accepts_any_path_and_follows_no_link(tmp_path: Path) -> None:
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


def test_exchanged_folders_swap_their_names(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        write_durably(tmp_path / name / "word", name.encode())

    assert exchange(tmp_path / "first", tmp_path / "second") is True

    assert (tmp_path / "first" / "word").read_bytes() == b"second"
    assert (tmp_path / "second" / "word").read_bytes() == b"first"


def test_exchange_with_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()

    with pytest.raises(FileNotFoundError):
        exchange(tmp_path / "first", tmp_path / "second")


def test_exchange_is_false_on_a_system_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")

    assert exchange(tmp_path / "first", tmp_path / "second") is False


@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
def test_file_of_two_writers_exists_for_both(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, contents = tmp_path / "word", iter([b"said by both"])
    steps = []

    def write_in_between(step: durable.Operation, where: Path) -> None:
        steps.append((step, where))
        if step == kind and (word := next(contents, None)) is not None:
            write_durably(path, word)

    monkeypatch.setattr(durable, "failpoint", write_in_between)

    assert write_durably(path, b"said by both") == hashlib.sha256(b"said by both").hexdigest()
    assert [file.name for file in tmp_path.iterdir()] == ["word"]
    assert path.read_bytes() == b"said by both"
    assert steps.count(("fsync", tmp_path)) == 2  # neither process continues before the name is durable


def test_folder_removed_during_a_write_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr(durable, "failpoint", lambda step, path: step == "rename" and shutil.rmtree(folder))

    with pytest.raises(FileNotFoundError):
        write_durably(folder / "word", b"lost")


def test_reserved_file_is_zero_until_ranges_are_written(path: Path) -> None:
    reserving = list_steps(lambda: reserve(path, 16))
    initial = path.read_bytes()

    writing = list_steps(lambda: write_range(path, 12, np.array([4], "<i4").data))
    write_range(path, 0, np.array([1, 2], "<i4").data)
    reserve(path, 16)

    assert initial == bytes(16)
    assert np.fromfile(path, "<i4").tolist() == [1, 2, 0, 4]
    assert list(path.parent.iterdir()) == [path]
    assert [kind for kind, _ in reserving] == ["create", "fsync", "rename", "fsync"]
    assert [kind for kind, _ in writing] == ["append", "fsync"]


def test_reserved_file_of_another_member_of_the_group_is_taken_over_with_its_bytes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(path, 8)
    write_range(path, 4, np.array([2], "<i4").data)
    earlier = path.stat().st_ino

    reserve(path, 8)
    kept = path.stat().st_ino
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    reserve(path, 8)

    assert kept == earlier != path.stat().st_ino
    assert np.fromfile(path, "<i4").tolist() == [0, 2]
    assert list(path.parent.iterdir()) == [path]

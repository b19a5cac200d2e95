"""Locks that have no effect, do not exist or are local are refused in one line."""

import errno
import os
import subprocess
from pathlib import Path

import pytest
from refusals import refusal

from pipeline_assets.spine import lock as locks
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.lock import fcntl, locked
from pipeline_assets.spine.lock_owner import lock_owner
from pipeline_assets.spine.lock_reach import raise_if_locks_are_local

FIX = "use a data root whose file system has locks; docs/scale.md lists mount options"


@pytest.fixture(autouse=True)
def forget_probed_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_probed_disks", set())


def lock_once(target: Path) -> None:
    with locked(target):
        pass


def test_lock_that_another_process_also_gets_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)  # like a file system that ignores locks

    lines = [refusal(lambda: lock_once(tmp_path / "words"), RetryableError) for _ in range(2)]

    what = "locks have no effect on this file system: two processes got the same one"
    assert lines == [f"{tmp_path / '.words.lock'}: {what}; {FIX}"] * 2


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_system_without_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def flock(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)

    line = refusal(lambda: lock_once(tmp_path / "words"), RetryableError)

    assert line == f"{tmp_path / '.words.lock'}: this file system has no locks ({os.strerror(number)}); {FIX}"


def test_disk_is_probed_once_and_the_lock_is_free_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[object] = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *words, **more: (probes.append(words), run(*words, **more))[1])

    for name in ("words", "others", "words"):
        lock_once(tmp_path / name)

    assert len(probes) == 1
    assert lock_owner(tmp_path / "words") is None


# As /proc/self/mountinfo has them; the device number is filled in.
MOUNT = "62 28 {disk} / {folder} rw,relatime shared:33 - {kind} filer:/export {options}\n"
NFS = "rw,vers=3,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,mountproto=udp,{more},addr=10.0.0.2"


@pytest.mark.parametrize(
    ("kind", "options", "local"),
    [
        ("nfs", NFS.format(more="local_lock=none"), None),
        ("nfs4", "rw,vers=4.2,local_lock=none,addr=10.0.0.2", None),
        ("nfs", NFS.format(more="local_lock=posix"), None),
        ("nfs", NFS.format(more="local_lock=flock"), "local_lock=flock"),
        ("nfs", NFS.format(more="nolock,local_lock=all"), "nolock"),
        ("lustre", "rw,flock,lazystatfs", None),
        ("lustre", "rw,localflock,lazystatfs", "localflock"),
        ("ext4", "rw", None),
    ],
)
def test_mount_options_of_local_locks_are_named(tmp_path: Path, kind: str, options: str, local: str | None) -> None:
    device = os.stat(tmp_path).st_dev
    disk, mounts = f"{os.major(device)}:{os.minor(device)}", tmp_path / "mountinfo"
    other = MOUNT.format(disk="0:999999", folder="/other", kind="nfs", options="rw,nolock,local_lock=all")
    mounts.write_text(other + MOUNT.format(disk=disk, folder=tmp_path, kind=kind, options=options))
    root = tmp_path / "not" / "made yet"

    if local is None:
        raise_if_locks_are_local(root, mounts)
    else:
        line = refusal(lambda: raise_if_locks_are_local(root, mounts), RetryableError)
        what = f"locks exclude only processes of this machine, because of the mount option {local}"
        assert line == f"{root}: {what}; mount it without that option, or run without --join"


def test_locks_are_accepted_without_proc(tmp_path: Path) -> None:
    raise_if_locks_are_local(tmp_path, tmp_path / "mountinfo")

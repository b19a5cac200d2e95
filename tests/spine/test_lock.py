"""Locks, which allow one live builder per target and number the builders."""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash_points import list_steps
from lock_attempts import NO_PROCESS, check_as_other_user, next_fence
from refusals import refusal

from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.lock_owner import lock_owner


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "corpora" / "fineweb"


@contextmanager
def process(run: Callable[[int], None]) -> Iterator[int]:
    """Run a forked process until the end of the block; yield its id once it is ready."""
    ready, ready_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            run(ready_fd)
        finally:
            os._exit(1)
    os.close(ready_fd)
    assert os.read(ready, 1) == b"."
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)


def lock_and_wait(target: Path) -> Callable[[int], None]:
    def run(ready_fd: int) -> None:
        with locked(target):
            os.write(ready_fd, b".")
            signal.pause()

    return run


PLANTED: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda lock, other: lock.symlink_to(other),
    "second name": lambda lock, other: (other.touch(), lock.hardlink_to(other)),
    "link to nothing": lambda lock, other: lock.symlink_to("nothing"),
    "link to itself": lambda lock, other: lock.symlink_to(lock),
    "fifo": lambda lock, other: os.mkfifo(lock),
    "folder": lambda lock, other: lock.mkdir(),
    "link to a device": lambda lock, other: lock.symlink_to("/dev/zero"),
    "socket": lambda lock, other: bind(lock),
}


def bind(path: Path) -> None:
    """Bind a socket to a file; only the relative name is short enough."""
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


def test_content_of_a_lock_is_durable_before_a_build(target: Path) -> None:
    steps = list_steps(lambda: next_fence(target))

    written = [index for index, (kind, _) in enumerate(steps) if kind == "write"]
    assert written
    assert all(steps[index + 1] == ("fsync", steps[index][1]) for index in written)


def test_second_builder_is_refused_with_the_process_host_and_age(target: Path) -> None:
    with process(lock_and_wait(target)) as owner:
        error = refusal(lambda: next_fence(target))

    who = re.escape(f"{target}: process {owner} on {socket.gethostname()}")
    assert re.fullmatch(rf"{who} is building this, for \d+ s; wait for it or stop it, then run the same command", error)


def test_lock_of_a_killed_builder_is_free(target: Path) -> None:
    with process(lock_and_wait(target)):
        pass

    with locked(target) as lock:
        lock.raise_if_lost()
        assert lock.fence == 2


def test_forked_worker_does_not_keep_the_lock_of_its_dead_parent(target: Path) -> None:
    keep, hold = os.pipe()

    def fork_and_wait(ready_fd: int) -> None:
        with locked(target):
            if os.fork() == 0:
                os.close(hold)
                os.write(ready_fd, b".")
                os.read(keep, 1)  # until the test closes its end
                os._exit(0)
            signal.pause()

    with process(fork_and_wait):
        os.close(keep)

    with locked(target) as lock:
        lock.raise_if_lost()
        assert lock.fence == 2
    os.close(hold)


def lock_under_name(owner: int, target: Path) -> Callable[[int], None]:
    """Lock the target in the name of another process."""

    def run(ready_fd: int) -> None:
        with locked(target) as lock:
            lock.path.write_text(json.dumps({"fence": 1, "pid": owner, "host": socket.gethostname(), "since": 0.0}))
            os.write(ready_fd, b".")
            signal.pause()

    return run


def test_builder_waits_until_the_child_of_a_killed_owner_is_dead(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def die_at_third_wait(wait_s: float) -> None:
        waits.append(wait_s)
        if len(waits) == 3:
            os.kill(child, signal.SIGKILL)
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    with process(lock_under_name(NO_PROCESS, target)) as child:
        monkeypatch.setattr("pipeline_assets.spine.lock.time.sleep", die_at_third_wait)
        assert next_fence(target) == 2
    assert len(waits) == 3


def test_exit_of_a_worker_does_not_free_the_lock_of_its_parent(target: Path) -> None:
    with locked(target):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

        assert "is building this" in refusal(lambda: next_fence(target))


def test_every_builder_has_a_higher_number_also_after_the_lock_file_was_deleted(target: Path) -> None:
    fences = [next_fence(target) for _ in range(4)]
    with locked(target, highest_fence=1) as lock:  # a lower number of a manifest changes nothing
        fences.append(lock.fence)
    lock.path.unlink()
    with locked(target, highest_fence=8) as lock:
        fences.append(lock.fence)

    assert [*fences, next_fence(target)] == [1, 2, 3, 4, 5, 9, 10]


@pytest.mark.parametrize("text", ["{torn", ""], ids=["torn", "emptied by a power cut"])
def test_torn_lock_file_is_rewritten(target: Path, text: str) -> None:
    with locked(target) as lock:
        pass
    lock.path.write_text(text)

    with locked(target, highest_fence=1) as lock:
        assert json.loads(lock.path.read_text())["fence"] == 2


def test_lock_file_is_hidden_next_to_the_target_and_names_its_owner(target: Path) -> None:
    with locked(target) as lock:
        owner = json.loads((target.parent / ".fineweb.lock").read_text())

    assert lock.path == target.parent / ".fineweb.lock"
    assert (owner["fence"], owner["pid"], owner["host"]) == (1, os.getpid(), socket.gethostname())
    assert not target.exists()


@pytest.mark.parametrize(
    "lose",
    [
        Path.unlink,
        lambda lock_file: lock_file.write_text('{"fence": 2}'),  # as on a file system without locks
    ],
    ids=["deleted", "a higher number in it"],
)
def test_builder_that_lost_its_lock_gets_an_error(target: Path, lose: Callable[[Path], object]) -> None:
    with locked(target) as lock:
        lock.raise_if_lost()
        lose(lock.path)

        error = refusal(lock.raise_if_lost, RetryableError)

    assert error == f"{lock.path}: this builder lost its lock; another builder took over; nothing was sealed"


@pytest.mark.parametrize("plant", PLANTED)
def test_planted_lock_file_is_refused_and_its_target_untouched(target: Path, plant: str) -> None:
    diary, lock_file = target.parent / "diary", target.parent / ".fineweb.lock"
    target.parent.mkdir()
    diary.write_text("dear diary")
    PLANTED[plant](lock_file, diary)

    assert refusal(lambda: next_fence(target), RetryableError) == (
        f"{lock_file}: expected a lock file with one name, got a link, a folder or a device; "
        "delete it, then run the same command"
    )
    assert lock_owner(target) is None
    assert diary.read_text() == "dear diary"
    assert not (target.parent / "nothing").exists()


@pytest.mark.parametrize(("folder_mode", "lock_mode"), [(0o755, 0o600), (0o777, 0o600), (0o2775, 0o660)])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_lock_is_open_only_to_its_owner_and_the_group_of_a_shared_folder(
    target: Path, folder_mode: int, lock_mode: int, umask: int
) -> None:
    target.parent.mkdir()
    target.parent.chmod(folder_mode)
    before = os.umask(umask)

    try:
        with locked(target) as lock:
            mode = stat.S_IMODE(lock.path.stat().st_mode)
    finally:
        os.umask(before)

    assert mode == lock_mode


def test_reader_of_a_data_root_cannot_lock_it(target: Path) -> None:
    with locked(target) as lock:
        pass

    def holds() -> bool:
        fcntl.flock(os.open(lock.path, os.O_RDONLY), fcntl.LOCK_SH)
        return True

    assert not check_as_other_user(target.parent, holds)


def test_lock_of_another_user_is_refused_as_such(target: Path) -> None:
    with locked(target):
        pass
    target.parent.chmod(0o777)

    def is_refused() -> bool:
        return refusal(lambda: next_fence(target), RetryableError) == (
            f"{target.parent / '.fineweb.lock'}: the lock file belongs to another user; "
            "build as that user; a group shares a data root after chmod -R g+ws"
        )

    assert check_as_other_user(target.parent, is_refused)

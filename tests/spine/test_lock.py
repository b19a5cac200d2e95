"""Locks: one builder per target, for as long as its process lives; its number only rises."""

import contextlib
import fcntl
import json
import os
import re
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash_points import steps_of
from refusals import refusal

from pipeline_assets.spine.builder import Builder, is_dead
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.lock_owner import lock_owner

NO_PROCESS = 2**22 + 1  # above all process ids


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "corpora" / "fineweb"


@contextmanager
def process(run: Callable[[int], None]) -> Iterator[int]:
    """A forked process that runs until it is killed, at the latest at the end; yields when it has told it is ready."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            run(tell)
        finally:
            os._exit(1)
    os.close(tell)
    assert os.read(ready, 1) == b"."
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(ready)


def lock_and_wait(target: Path) -> Callable[[int], None]:
    def run(tell: int) -> None:
        with locked(target):
            os.write(tell, b".")
            signal.pause()

    return run


def as_nobody(folder: Path, claim: Callable[[], bool]) -> bool:
    """Whether a claim holds in a process of another user, who may come as far as to the folder."""
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    for parent in (folder, *folder.parents):
        parent.chmod(parent.stat().st_mode | 0o011)
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os._exit(0 if claim() else 1)
        except PermissionError:
            os._exit(1)
        finally:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code != 2, "the claim raised something else"
    return code == 0


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
    """A socket in a file; its name, relative, is short enough for one."""
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
        made.bind(path.name)


def fence_of(target: Path) -> int:
    with locked(target) as lock:
        return lock.fence


def test_what_a_lock_says_is_durable_before_a_builder_goes_on(target: Path) -> None:
    steps = steps_of(lambda: fence_of(target))

    written = [at for at, (kind, _) in enumerate(steps) if kind == "write"]
    assert written
    assert all(steps[at + 1] == ("fsync", steps[at][1]) for at in written)


def test_a_second_builder_is_told_who_is_at_work_where_and_since_when(target: Path) -> None:
    with process(lock_and_wait(target)) as owner:
        told = refusal(lambda: fence_of(target))

    who = re.escape(f"{target}: process {owner} on {socket.gethostname()}")
    assert re.fullmatch(rf"{who} is building this, for \d+ s; wait for it or stop it, then run the same command", told)


def test_a_builder_that_writes_its_name_in_the_next_moment_is_named(target: Path) -> None:
    with locked(target) as lock:
        named = lock.path.read_text()
        lock.path.write_text("")
        writer = threading.Timer(0.1, lock.path.write_text, [named])
        writer.start()
        told = refusal(lambda: fence_of(target))
        writer.join()

    assert told.startswith(f"{target}: process {os.getpid()} on {socket.gethostname()} is building this, for ")


@pytest.mark.parametrize(("since", "age"), [(0.0, r"\d{10}"), (9e9, "0")], ids=["the epoch", "the future"])
def test_the_age_is_that_of_the_lock_and_never_negative(target: Path, since: float, age: str) -> None:
    with locked(target) as lock:
        lock.path.write_text(json.dumps({"fence": 1, "pid": 7, "host": "node3", "since": since}))
        told = refusal(lambda: fence_of(target))

    assert re.search(rf": process 7 on node3 is building this, for {age} s;", told)


@pytest.mark.parametrize(
    "text",
    [
        *("", "torn {", "[]", "null", "\x00" * 512, "[" * 4096, "9" * 4096),
        *('{"pid": "seven"}', '{"pid": -1}', f'{{"pid": 1{"0" * 40}}}', '{"since": NaN}', '{"since": 1e300}'),
        *('{"fence": "7"}', '{"fence": 1e400}', '{"host": []}'),
    ],
)
def test_an_owner_that_left_no_readable_name_is_another_process_and_alive_all_the_same(target: Path, text: str) -> None:
    with locked(target) as lock:
        lock.path.write_text(text)

        assert refusal(lambda: fence_of(target)).startswith(f"{target}: another process is building this; wait for it")
        assert lock_owner(target) == Builder()


def test_other_targets_are_free(target: Path) -> None:
    with locked(target), locked(target.with_name("wikipedia")) as other:
        other.raise_if_lost()


def test_the_lock_of_a_killed_builder_is_free(target: Path) -> None:
    with process(lock_and_wait(target)):
        pass

    with locked(target) as lock:
        lock.raise_if_lost()
        assert lock.fence == 2


def test_a_forked_worker_does_not_keep_the_lock_of_its_dead_parent(target: Path) -> None:
    keep, hold = os.pipe()

    def fork_and_wait(tell: int) -> None:
        with locked(target):
            if os.fork() == 0:
                os.close(hold)
                os.write(tell, b".")
                os.read(keep, 1)  # until the test closes its end
                os._exit(0)
            signal.pause()

    with process(fork_and_wait):
        os.close(keep)

    with locked(target) as lock:
        lock.raise_if_lost()
    os.close(hold)


def held_as_by(owner: int, target: Path) -> Callable[[int], None]:
    """Holds the lock in the name of another process."""

    def run(tell: int) -> None:
        with locked(target) as lock:
            lock.path.write_text(json.dumps({"fence": 1, "pid": owner, "host": socket.gethostname(), "since": 0.0}))
            os.write(tell, b".")
            signal.pause()

    return run


def test_a_killed_builders_lock_is_waited_for_as_its_child_dies(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def die_at_third_look(wait_s: float) -> None:
        looks.append(wait_s)
        if len(looks) == 3:
            os.kill(child, signal.SIGKILL)
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)

    with process(held_as_by(NO_PROCESS, target)) as child:
        monkeypatch.setattr("pipeline_assets.spine.lock.time.sleep", die_at_third_look)
        assert fence_of(target) == 2
    assert len(looks) == 3


def test_of_an_owner_on_another_host_no_process_here_is_asked(target: Path) -> None:
    """Else the lock would be waited for, and taken, once a process of that number is gone here."""
    here, there = (Builder(pid=NO_PROCESS, host=host) for host in (socket.gethostname(), "another host"))

    assert (is_dead(here), is_dead(there)) == (True, False)


def test_a_worker_that_ends_does_not_free_the_lock_of_its_living_parent(target: Path) -> None:
    with locked(target):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

        assert "is building this" in refusal(lambda: fence_of(target))


def test_every_builder_has_a_higher_number_than_those_before(target: Path) -> None:
    fences = [fence_of(target) for _ in range(4)]

    assert fences == [1, 2, 3, 4]
    with locked(target, highest_fence=1) as lock:  # a lower number seen elsewhere changes nothing
        assert lock.fence == 5


def test_the_number_rises_above_one_seen_elsewhere_when_the_lock_file_was_deleted(target: Path) -> None:
    with locked(target) as lock:
        pass
    lock.path.unlink()

    with locked(target, highest_fence=8) as lock:
        assert lock.fence == 9
    assert fence_of(target) == 10


@pytest.mark.parametrize("text", ["{torn", ""], ids=["torn", "emptied by a power cut"])
def test_a_torn_lock_file_is_written_anew(target: Path, text: str) -> None:
    with locked(target) as lock:
        pass
    lock.path.write_text(text)

    with locked(target, highest_fence=1) as lock:
        assert json.loads(lock.path.read_text())["fence"] == 2


def test_the_lock_file_lies_hidden_beside_the_target_and_says_who_holds_it(target: Path) -> None:
    with locked(target) as lock:
        owner = json.loads((target.parent / ".fineweb.lock").read_text())

    assert lock.path == target.parent / ".fineweb.lock"
    assert (owner["fence"], owner["pid"], owner["host"]) == (1, os.getpid(), socket.gethostname())
    assert not target.exists()


@pytest.mark.parametrize(
    "lose",
    [
        Path.unlink,
        lambda lock_file: lock_file.write_text('{"fence": 2}'),  # on a file system without locks two hold one file
    ],
    ids=["deleted", "a higher number in it"],
)
def test_a_builder_that_lost_its_lock_learns_of_it(target: Path, lose: Callable[[Path], object]) -> None:
    with locked(target) as lock:
        lock.raise_if_lost()
        lose(lock.path)

        told = refusal(lock.raise_if_lost, RetryableError)

    assert told == f"{lock.path}: this builder lost its lock; another builder took over; nothing was sealed"


@pytest.mark.parametrize("plant", PLANTED)
def test_what_is_planted_where_the_lock_belongs_is_refused_and_its_target_untouched(target: Path, plant: str) -> None:
    diary, lock_file = target.parent / "diary", target.parent / ".fineweb.lock"
    target.parent.mkdir()
    diary.write_text("dear diary")
    PLANTED[plant](lock_file, diary)

    assert refusal(lambda: fence_of(target), RetryableError) == (
        f"{lock_file}: expected a lock file with one name, got a link, a folder or a device; "
        "delete it, then run the same command"
    )
    assert lock_owner(target) is None
    assert diary.read_text() == "dear diary"
    assert not (target.parent / "nothing").exists()


@pytest.mark.parametrize(("folder_mode", "lock_mode"), [(0o755, 0o600), (0o777, 0o600), (0o2775, 0o660)])
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_owner_and_a_group_that_shares_the_folder_may_open_a_lock(
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


def test_who_may_only_read_a_data_root_cannot_hold_a_lock_of_it(target: Path) -> None:
    with locked(target) as lock:
        pass

    def holds() -> bool:
        fcntl.flock(os.open(lock.path, os.O_RDONLY), fcntl.LOCK_SH)
        return True

    assert not as_nobody(target.parent, holds)


def test_the_lock_of_another_user_is_told_as_such(target: Path) -> None:
    with locked(target):
        pass
    target.parent.chmod(0o777)

    def is_told() -> bool:
        return refusal(lambda: fence_of(target), RetryableError) == (
            f"{target.parent / '.fineweb.lock'}: the lock file belongs to another user; "
            "build as that user; a group shares a data root after chmod -R g+ws"
        )

    assert as_nobody(target.parent, is_told)


class TestOwnerOf:
    """Asked of the lock, which stays as it was."""

    def test_nobody_builds_what_was_never_locked(self, tmp_path: Path) -> None:
        assert lock_owner(tmp_path / "words") is None
        assert list(tmp_path.iterdir()) == []

    def test_asking_leaves_the_lock_to_the_next_builder(self, tmp_path: Path) -> None:
        with locked(tmp_path / "words") as first:
            lock_owner(tmp_path / "words")
            first.raise_if_lost()
        assert lock_owner(tmp_path / "words") is None

        with locked(tmp_path / "words") as second:
            assert second.fence == first.fence + 1

    def test_of_a_lock_that_may_not_be_opened_somebody_unknown_is_at_work(self, tmp_path: Path) -> None:
        with locked(tmp_path / "words"):
            assert as_nobody(tmp_path, lambda: lock_owner(tmp_path / "words") == Builder())

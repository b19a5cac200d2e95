"""Owner of a lock, as another builder or a reader sees it."""

import json
import os
import re
import socket
import threading
from pathlib import Path

import pytest
from lock_attempts import NO_PROCESS, check_as_other_user, next_fence
from refusals import refusal

from pipeline_assets.spine.builder import Builder
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.lock_owner import lock_owner


def test_owner_that_has_not_yet_written_its_name_is_named(target: Path) -> None:
    with locked(target) as lock:
        named = lock.path.read_text()
        lock.path.write_text("")
        writer = threading.Timer(0.1, lock.path.write_text, [named])
        writer.start()
        error = refusal(lambda: next_fence(target))
        writer.join()

    assert error.startswith(f"{target}: process {os.getpid()} on {socket.gethostname()} is building this, for ")


@pytest.mark.parametrize(("since", "age"), [(0.0, r"\d{10}"), (9e9, "0")], ids=["the epoch", "the future"])
def test_age_of_a_lock_is_never_negative(target: Path, since: float, age: str) -> None:
    with locked(target) as lock:
        lock.path.write_text(json.dumps({"fence": 1, "pid": 7, "host": "node3", "since": since}))
        error = refusal(lambda: next_fence(target))

    assert re.search(rf": process 7 on node3 is building this, for {age} s;", error)


@pytest.mark.parametrize(
    "text",
    [
        *("", "torn {", "[]", "null", "\x00" * 512, "[" * 4096, "9" * 4096),
        *('{"pid": "seven"}', '{"pid": -1}', f'{{"pid": 1{"0" * 40}}}', '{"since": NaN}', '{"since": 1e300}'),
        *('{"fence": "7"}', '{"fence": 1e400}', '{"host": []}'),
    ],
)
def test_owner_without_a_readable_name_is_an_unknown_live_process(target: Path, text: str) -> None:
    with locked(target) as lock:
        lock.path.write_text(text)

        assert refusal(lambda: next_fence(target)).startswith(
            f"{target}: another process is building this; wait for it"
        )
        assert lock_owner(target) == Builder()


def test_owner_on_another_host_is_never_considered_dead(target: Path) -> None:
    """Process ids of another host do not refer to local processes."""
    local, remote = (Builder(pid=NO_PROCESS, host=host) for host in (socket.gethostname(), "another host"))

    assert (local.patience_s, remote.patience_s) == (2.0, 0.0)


class TestLockOwner:
    """Reading the owner does not change the lock."""

    def test_target_that_was_never_locked_has_no_owner(self, tmp_path: Path) -> None:
        assert lock_owner(tmp_path / "words") is None
        assert list(tmp_path.iterdir()) == []

    def test_reading_the_owner_does_not_block_the_next_builder(self, tmp_path: Path) -> None:
        with locked(tmp_path / "words") as first:
            lock_owner(tmp_path / "words")
            first.raise_if_lost()
        assert lock_owner(tmp_path / "words") is None

        with locked(tmp_path / "words") as second:
            assert second.fence == first.fence + 1

    def test_lock_that_may_not_be_opened_has_an_unknown_owner(self, tmp_path: Path) -> None:
        with locked(tmp_path / "words"):
            assert check_as_other_user(tmp_path, lambda: lock_owner(tmp_path / "words") == Builder())

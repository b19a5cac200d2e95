"""What a build takes of its machine: memory of all its processes, bytes on disk, seconds of its parts."""

import itertools
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from pipeline_assets.corpus.spine.usage import PeakMemory, StepTimer, folder_bytes

MB = 1 << 20
FORK = multiprocessing.get_context("fork")


def filled(size: int) -> bytearray:
    block = bytearray(size)
    block[::4096] = b"x" * len(block[::4096])
    return block


def hold(size: int, is_held: object, may_go: object, grandchildren: int = 0) -> None:
    """A process that holds `size` bytes, and so many children that hold as much each."""
    below = [FORK.Process(target=hold, args=(size, is_held, may_go)) for _ in range(grandchildren)]
    for child in below:
        child.start()
    block = filled(size)
    is_held.release()  # type: ignore[attr-defined]
    may_go.wait()  # type: ignore[attr-defined]
    for child in below:
        child.join()
    del block


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells the memory of processes")
class TestPeakMemory:
    def test_it_is_that_of_this_process_and_all_below_it(self) -> None:
        is_held, may_go = FORK.Semaphore(0), FORK.Event()
        with PeakMemory() as memory:
            alone = memory.bytes
            child = FORK.Process(target=hold, args=(64 * MB, is_held, may_go, 2))
            child.start()
            for _ in range(3):
                is_held.acquire()
            together = memory.bytes
            may_go.set()
            child.join()

        assert alone is not None
        assert together is not None
        assert together >= alone + 3 * 64 * MB

    def test_a_program_that_was_started_counts_whole(self) -> None:
        code = "block = b'x' * 64_000_000; print(flush=True); input()"
        with PeakMemory() as memory:
            alone = memory.bytes
            with subprocess.Popen([sys.executable, "-c", code], stdin=PIPE, stdout=PIPE) as started:
                assert started.stdout is not None
                started.stdout.readline()
                together = memory.bytes
                started.communicate(b"\n")

        assert alone is not None
        assert together is not None
        assert together >= alone + 64_000_000

    def test_what_processes_share_counts_once(self) -> None:
        shared = filled(128 * MB)
        may_go = FORK.Event()
        with PeakMemory() as memory:
            alone = memory.bytes
            children = [FORK.Process(target=may_go.wait) for _ in range(4)]
            for child in children:
                child.start()
            together = memory.bytes
            may_go.set()
            for child in children:
                child.join()

        assert alone is not None
        assert together is not None
        assert len(shared) <= alone
        assert together < 2 * alone  # not five times

    def test_it_stays_when_the_memory_is_given_back(self) -> None:
        with PeakMemory() as memory:
            block = filled(64 * MB)
            most = memory.bytes
            del block

        assert memory.bytes is not None
        assert most is not None
        assert memory.bytes >= most


def test_a_file_of_several_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"x" * 1000)
    (tmp_path / "deep" / "deeper" / "b").write_bytes(b"x" * 500)
    os.link(tmp_path / "a", tmp_path / "deep" / "c")

    assert folder_bytes(tmp_path) == 1500
    assert folder_bytes(tmp_path / "deep") == 1500
    assert folder_bytes(tmp_path / "nowhere") == 0


def test_laps_follow_each_other_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, fetched = itertools.count(start=100, step=2), iter([10, 10, 75])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))

    laps = StepTimer(lambda: next(fetched))
    laps.end("plan")
    laps.end("fetch")

    assert laps.seconds == {"plan": 2, "fetch": 2}
    assert laps.counted == {"plan": 0, "fetch": 65}

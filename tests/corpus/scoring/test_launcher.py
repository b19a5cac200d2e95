"""The contract of launchers, held by each of them; and what `launched` makes of it: no job is lost, none runs twice.

A launcher that is added has its own function in LAUNCHERS, and all of this holds of it.
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from launcher_work import FarLauncher, do_as_told, job_of, pids_of, tell
from modal_loopback import wait_for
from refusals import refusal
from told_on_modal import modal_told, work_told

from pipeline_assets.corpus.scoring.launcher import JobState, Launcher, LocalLauncher, ScoreJob, launched
from pipeline_assets.corpus.scoring.modal_settings import ModalSettings
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import RetryableError
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import no_warm_up
from resources.modal_launcher import OnModal

SOON_S = 60.0


@dataclass(frozen=True)
class Place:
    """A launcher of two places whose jobs are `do_as_told`, and what a test does beside it.

    Attributes:
        died: how it calls it that a job's worker was killed.
    """

    launcher: Launcher
    folder: BuildFolder
    died: str

    def job(self, name: str, what: str | None = None) -> ScoreJob:
        """A job; without a word it waits for one."""
        job = job_of(name, self.folder.folder.parent)
        if what is not None:
            tell(job, what)
        return job

    def state(self, ref: str) -> JobState:
        """Where a job stands when it no longer runs."""
        until = time.monotonic() + SOON_S
        while (state := self.launcher.poll([ref], 1.0)[ref]) is JobState.RUNNING and time.monotonic() < until:
            pass
        return state


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def local(folder: BuildFolder) -> Iterator[Place]:
    with LocalLauncher(do_as_told, no_warm_up, RunSettings(), places=2).at(folder) as launcher:
        yield Place(launcher, folder, "its worker died (killed by SIGKILL, out of memory perhaps)")


@contextlib.contextmanager
def on_modal(folder: BuildFolder) -> Iterator[Place]:

    modal = modal_told()
    with (
        modal.called(),
        OnModal(ModalSettings(gpu="none", places=2)).at(work_told(folder.folder.parent), folder) as launcher,
    ):
        yield Place(launcher, folder, "Modal took its machine away (killed by 9)")


Start = Callable[[BuildFolder], contextlib.AbstractContextManager[Place]]
LAUNCHERS: dict[str, Start] = {"local": local, "modal": on_modal}


@pytest.fixture(params=LAUNCHERS)
def start(request: pytest.FixtureRequest) -> Start:
    return LAUNCHERS[request.param]


@pytest.fixture
def place(start: Start, folder: BuildFolder) -> Iterator[Place]:
    with start(folder) as place:
        yield place


def made(folder: BuildFolder, receipt: Receipt) -> list[str]:
    return [folder.path(file.path).read_text() for file in receipt.files]


def calls(folder: BuildFolder) -> list[str]:
    """Jobs whose refs are written down."""
    return sorted(path.stem for path in folder.folder.rglob("score.calls/*.json"))


# A launcher alone


def test_what_a_job_makes_lies_in_the_folder_once_it_is_collected(place: Place) -> None:
    ref = place.launcher.submit(place.job("a", "write"))

    state, receipt = place.state(ref), place.launcher.collect(ref, place.folder)

    assert state is JobState.DONE
    assert (receipt.counts, made(place.folder, receipt)) == ({"documents": 1}, ["(0,)"])


def test_a_poll_comes_back_in_time_and_tells_which_of_several_is_done(place: Place) -> None:
    slow, fast = (place.launcher.submit(place.job(*told)) for told in (("a",), ("b", "write")))

    assert slow != fast
    assert place.launcher.poll([slow], 0.01) == {slow: JobState.RUNNING}
    assert place.state(fast) is JobState.DONE
    assert place.launcher.poll([slow, fast], 0.0) == {slow: JobState.RUNNING, fast: JobState.DONE}


def test_a_place_that_is_free_again_takes_another_job(place: Place) -> None:
    for name in "abcdef":
        ref = place.launcher.submit(place.job(name, "write"))
        assert place.state(ref) is JobState.DONE
        place.launcher.collect(ref, place.folder)


def test_a_canceled_job_ends_and_is_gone_as_a_ref_is_that_nobody_knows(place: Place) -> None:
    job = place.job("a")
    ref = place.launcher.submit(job)
    wait_for(lambda: pids_of(job))

    place.launcher.cancel([ref, "local:1:1"])

    assert not runs(pids_of(job)[0])
    assert place.launcher.poll([ref, "local:1:1"], 5.0) == {ref: JobState.GONE, "local:1:1": JobState.GONE}


def test_refs_of_two_launchers_are_never_the_same(start: Start, folder: BuildFolder) -> None:
    refs = []
    for name in ("a", "b"):
        with start(folder) as place:
            job = place.job(name)
            refs.append(place.launcher.submit(job))
            wait_for(lambda job=job: pids_of(job))  # a worker that has just begun doesn't listen yet

    assert refs[0] != refs[1]


# Jobs by a launcher


def test_receipts_are_committed_and_come_in_the_order_of_the_jobs_whatever_finishes_first(place: Place) -> None:
    jobs = [place.job(name) for name in "abc"]
    tell(jobs[1], "write")
    receipts = launched(place.launcher, "score", jobs, place.folder)

    def tell_the_others() -> None:
        wait_for(lambda: place.folder.receipt("score", "b"))
        tell(jobs[2], "write")
        wait_for(lambda: place.folder.receipt("score", "c"))
        tell(jobs[0], "write")

    with beside(tell_the_others):
        found = list(receipts)

    assert [made(place.folder, receipt) for receipt in found] == [["(0,)"]] * 3
    assert [place.folder.receipt("score", job.name) for job in jobs] == found
    assert [path.stem for path in _by_time(place.folder)] == ["b", "c", "a"]
    assert calls(place.folder) == []


@contextlib.contextmanager
def beside(act: Callable[[], None]) -> Iterator[None]:
    """Something is done in another thread while the block runs."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join(SOON_S)


def _by_time(folder: BuildFolder) -> list[Path]:
    """Receipts by when they were committed."""
    return sorted(folder.folder.rglob("score/*.json"), key=lambda path: path.stat().st_mtime_ns)


def test_no_jobs_give_no_receipts(place: Place) -> None:
    assert list(launched(place.launcher, "score", [], place.folder)) == []


def test_a_job_whose_worker_dies_is_tried_again(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    jobs = [place.job("a", "die 2"), place.job("b", "write")]

    with caplog.at_level(logging.WARNING, "corpusmill"):
        receipts = list(launched(place.launcher, "score", jobs, place.folder))

    assert [made(place.folder, receipt) for receipt in receipts] == [["(0,)"], ["(0,)"]]
    assert len(pids_of(jobs[0])) == 3
    told = f"shard a of pool.parquet: {place.died}; it is tried again"
    assert [line for line in caplog.messages if "tried" in line] == [told] * 2


def test_a_job_whose_worker_dies_three_times_is_named(place: Place) -> None:
    jobs = [place.job("a", "write"), place.job("b", "die 9")]

    line = refusal(lambda: list(launched(place.launcher, "score", jobs, place.folder)), RetryableError)

    assert line.startswith(f"{jobs[1].file}: {place.died}, 3 times on shard b; ")
    assert len(pids_of(jobs[1])) == 3
    assert place.folder.receipt("score", "a") is not None
    assert calls(place.folder) == []


def test_a_job_that_refuses_its_input_ends_the_others_and_is_no_part_of_the_next_build(place: Place) -> None:
    jobs = [place.job("a"), place.job("b", "refuse")]

    line = refusal(lambda: list(launched(place.launcher, "score", jobs, place.folder)))

    assert line == "b: it was told to; tell it something else"
    assert calls(place.folder) == []
    for job in jobs:
        tell(job, "write")
    assert len(list(launched(place.launcher, "score", jobs, place.folder))) == 2


def test_who_stops_early_cancels_what_runs(place: Place) -> None:
    jobs = [place.job("a", "write"), place.job("b"), place.job("c")]
    receipts = launched(place.launcher, "score", jobs, place.folder)
    next(receipts)
    wait_for(lambda: pids_of(jobs[1]))

    receipts.close()

    assert not runs(pids_of(jobs[1])[0])
    assert calls(place.folder) == []
    assert place.folder.receipt("score", "b") is None


@pytest.mark.parametrize("start", ["local"], indirect=True)
def test_a_ref_that_is_gone_is_submitted_again(start: Start, folder: BuildFolder, tmp_path: Path) -> None:
    """As it is when a command was killed: refs are written down, and nobody works on their jobs."""
    jobs = [job_of(name, tmp_path) for name in "abc"]
    pid = os.fork()
    if pid == 0:
        with start(folder) as place:
            begun = launched(place.launcher, "score", jobs, folder)
            with beside(lambda: _kill_when_begun(jobs[:2])):
                next(begun)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    written_down = calls(folder)

    for job in jobs:
        tell(job, "write")
    with start(folder) as place:
        receipts = list(launched(place.launcher, "score", jobs, folder))

    assert written_down == ["a", "b"]
    assert [made(folder, receipt) for receipt in receipts] == [["(0,)"]] * 3
    assert calls(folder) == []


def _kill_when_begun(jobs: list[ScoreJob]) -> None:
    wait_for(lambda: all(map(pids_of, jobs)))
    os.kill(os.getpid(), signal.SIGKILL)


# Jobs by a launcher whose refs outlive who submitted them


@pytest.fixture
def far(tmp_path: Path, folder: BuildFolder) -> Path:
    """Where a launcher has its jobs, two of which a build submitted that was killed then."""
    place = tmp_path / "far"
    place.mkdir()
    pid = os.fork()
    if pid == 0:
        list(launched(FarLauncher(place, kills=True), "score", far_jobs(tmp_path), folder))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    return place


def far_jobs(tmp_path: Path) -> list[ScoreJob]:
    return [job_of(name, tmp_path, row) for row, name in enumerate("abc")]


def test_a_job_that_an_earlier_build_submitted_is_waited_for(far: Path, folder: BuildFolder, tmp_path: Path) -> None:
    launcher = FarLauncher(far)

    receipts = list(launched(launcher, "score", far_jobs(tmp_path), folder))

    assert launcher.submitted() == ["a", "b", "c"]
    assert [receipt.notes["ref"] for receipt in receipts] == ["000-a", "001-b", "002-c"]
    assert calls(folder) == []


def test_a_job_of_other_rows_is_submitted_though_one_of_its_name_was(
    far: Path, folder: BuildFolder, tmp_path: Path
) -> None:
    launcher = FarLauncher(far)

    list(launched(launcher, "score", [job_of("a", tmp_path, 7)], folder))

    assert launcher.submitted() == ["a", "b", "a"]


def test_a_job_is_known_by_what_is_asked_of_it_and_not_by_where() -> None:
    job = ScoreJob("a", "pool.parquet", Path("here"), (1, 2))

    assert job.digest == ScoreJob("a", "pool.parquet", Path("there"), (1, 2), slot=3).digest
    others = [
        ScoreJob("b", "pool.parquet", Path("here"), (1, 2)),
        ScoreJob("a", "other.parquet", Path("here"), (1, 2)),
        ScoreJob("a", "pool.parquet", Path("here"), (1, 3)),
    ]
    assert job.digest not in {other.digest for other in others}

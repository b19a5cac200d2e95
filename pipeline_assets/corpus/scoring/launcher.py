"""Where score shards are worked on: the interface, the launcher of this machine, and what any launcher's work goes by.

A launched job is known by its ref, which is written down before anybody waits for it: a build that was killed finds its
jobs again, waits for those that still run, and takes what they made. What a launcher has forgotten is submitted again;
equal jobs make equal bytes, so a job that runs twice costs time alone. A ref stays written down until its job is
collected or canceled: what failed is submitted anew by the next build.
"""

import contextlib
import logging
import uuid
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from enum import StrEnum
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Protocol

from pipeline_assets.corpus.readers.hub_files import HubFile
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.spine.fork_server import starter
from pipeline_assets.corpus.spine.manifest import sha256_of
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import WHOLE, Job, WarmUp, Work, Worker, how_it_died

logger = logging.getLogger("corpusmill")
_TRIES = 3  # of a job whose worker dies
_POLL_S = 5.0
_NO_LIMIT = 1 << 62  # of a worker's memory: it holds a model


@dataclass(frozen=True)
class ScoreJob:
    """Score shard: some rows of a pool file. Its output is stored under `name`.

    Attributes:
        pool_file: name of the pool file in scores; its path is `file`.
        row_numbers: numbers of the rows in the file, ascending.
        batch_rows: maximum number of rows per batch; None for as many as fit.
        slot: slot of the launcher that runs the job, such as the number of a GPU.
    """

    name: str
    pool_file: str
    file: Path
    row_numbers: tuple[int, ...]
    batch_rows: int | None = None
    slot: int = 0
    rows: int = 0  # a shard is scored whole

    @property
    def digest(self) -> str:
        """Digest of the request, independent of the machine and slot that run it."""
        asked = {"name": self.name, "file": self.pool_file, "rows": list(self.row_numbers), "batch": self.batch_rows}
        return sha256_of(asked)


class JobState(StrEnum):
    """State of a job; `gone` if the launcher does not know it or lost its result."""

    RUNNING = "running"
    DONE = "done"
    GONE = "gone"


class Launcher(Protocol):
    """Runner of several jobs at a time. Its refs outlive its process if possible.

    Attributes:
        places: maximum number of jobs that run at a time.
    """

    places: int

    def submit(self, job: ScoreJob) -> str:
        """Start a job and return its ref. Called only while fewer than `places` run."""

    def poll(self, refs: Collection[str], timeout_s: float) -> Mapping[str, JobState]:
        """Return the state of each job once one has ended, or after `timeout_s`."""

    def collect(self, ref: str, folder: BuildFolder) -> Receipt:
        """Fetch the files of a job that is done into the folder; return its receipt.

        Raises:
            RetryableError: its worker died.
            InputError: as the job raised it.
        """

    def cancel(self, refs: Collection[str]) -> None:
        """End the running jobs among the refs, and ignore the others."""

    def provenance(self) -> Mapping[str, Any]:
        """Return what a manifest records about the machines that ran the jobs."""


@dataclass(frozen=True)
class FilesOfHub:
    """Files of a dataset or a model of a hub at a commit, by the names that users know them by."""

    name: str
    revision: str
    files: Mapping[str, HubFile]


@dataclass(frozen=True)
class ScoreWork:
    """What all score shards of a split have in common, for a launcher whose machines have nothing of it yet.

    Attributes:
        split: `dataset/split`.
        pools, model: as they were pinned; None of what lies in a folder here.
        model_digest: by which the model is known.
        rows: that are to be scored.
        text_bytes: of these, about.
    """

    split: str
    recipe: ScoringRecipe
    pools: FilesOfHub | None
    model: FilesOfHub | None
    model_digest: str
    rows: int
    text_bytes: int


class Elsewhere(Protocol):
    """Where score shards run if not here."""

    def words(self, works: Sequence[ScoreWork]) -> Iterator[str]:
        """Lines on what splits would take.

        Raises:
            UsageError: in the end, as `at`.
        """

    def at(self, work: ScoreWork, folder: BuildFolder) -> AbstractContextManager[Launcher]:
        """Its launcher for a split, whose results are put into a folder.

        Raises:
            UsageError: it can't do this work, or not for what it may cost.
        """


def launched(launcher: Launcher, stage: str, jobs: Sequence[ScoreJob], folder: BuildFolder) -> Generator[Receipt]:
    """Receipts in the order of the jobs, each committed under `stage`: what the engine asks of a `RunStage`.

    Jobs are canceled when the caller stops early or is interrupted, and when one refuses its input. A process that is
    killed, or that fails in a way that the same command may get over, leaves them running, for the next one to find.

    Raises:
        RetryableError: a job's worker died three times; names the job.
        InputError: as a job raised it.
    """
    known = {job.name: _known_ref(folder, stage, job) for job in jobs}
    waiting, running, done = list(jobs)[::-1], dict[str, ScoreJob](), dict[str, Receipt]()
    tries, goes_on = dict.fromkeys(known, 0), False
    try:
        for job in jobs:
            while job.name not in done:
                while waiting and len(running) < launcher.places:
                    one = waiting.pop()
                    ref = known.pop(one.name, None) or _submit(launcher, folder, stage, one)
                    running[ref] = one
                for ref, state in launcher.poll(running.keys(), _POLL_S).items():
                    if state is JobState.RUNNING:
                        continue
                    one = running.pop(ref)
                    try:
                        receipt = _collected(launcher, ref, folder, tries, one) if state is JobState.DONE else None
                        if receipt is None:
                            waiting.append(one)
                        else:
                            folder.commit(stage, one.name, receipt)
                            done[one.name] = receipt
                    finally:
                        folder.forget(_calls(stage), one.name)
            yield done.pop(job.name)
    except Exception as error:
        goes_on = isinstance(error, RetryableError) or not isinstance(error, InputError)
        raise
    finally:
        if not goes_on:
            launcher.cancel(running.keys())
            for one in running.values():
                folder.forget(_calls(stage), one.name)


def _collected(
    launcher: Launcher, ref: str, folder: BuildFolder, tries: dict[str, int], job: ScoreJob
) -> Receipt | None:
    """What came of a job; None if it is to be tried again."""
    try:
        return launcher.collect(ref, folder)
    except RetryableError as died:
        tries[job.name] += 1
        if tries[job.name] == _TRIES:
            what = f"{died.what}, {_TRIES} times on shard {job.name}"
            raise RetryableError(what, job.file, died.fix) from None
        logger.warning("shard %s of %s: %s; it is tried again", job.name, job.pool_file, died.what)
        return None


def _submit(launcher: Launcher, folder: BuildFolder, stage: str, job: ScoreJob) -> str:
    ref = launcher.submit(job)
    folder.commit(_calls(stage), job.name, Receipt([], {}, {"ref": ref, "job": job.digest}))
    return ref


def _known_ref(folder: BuildFolder, stage: str, job: ScoreJob) -> str | None:
    """The ref of an equal job that an earlier build submitted."""
    called = folder.receipt(_calls(stage), job.name)
    return None if called is None or called.notes["job"] != job.digest else str(called.notes["ref"])


def _calls(stage: str) -> str:
    return f"{stage}.calls"


class LocalLauncher:
    """Worker processes of this machine. Its refs end with this process: a later one finds them gone."""

    def __init__(self, work: Work[ScoreJob], warm_up: WarmUp, settings: RunSettings, places: int) -> None:
        self.places = places
        self._start = starter(settings.start_method, work, warm_up, _NO_LIMIT)
        self._workers: dict[int, Worker[ScoreJob]] = {}
        self._slots: dict[str, int] = {}
        self._folder = BuildFolder(Path())

    @contextlib.contextmanager
    def at(self, folder: BuildFolder) -> Iterator["LocalLauncher"]:
        """Its workers write into a folder; they end with the block."""
        self._folder = folder
        try:
            yield self
        finally:
            self.cancel([*self._slots])
            for worker in self._workers.values():
                worker.stop()
            self._workers.clear()

    def submit(self, job: ScoreJob) -> str:
        slot = next(slot for slot in range(self.places) if slot not in self._slots.values())
        if slot not in self._workers:
            self._workers[slot] = Worker(self._start())
        self._workers[slot].give(Job(replace(job, slot=slot), WHOLE, self._folder, None))
        ref = f"local:{uuid.uuid4().hex}"  # never one that an earlier process wrote down
        self._slots[ref] = slot
        return ref

    def poll(self, refs: Collection[str], timeout_s: float) -> Mapping[str, JobState]:
        connections = {ref: self._workers[self._slots[ref]].connection for ref in refs if ref in self._slots}
        if len(connections) < len(refs):
            timeout_s = 0
        ready = wait(list(connections.values()), timeout_s) if connections else []
        return {
            ref: JobState.GONE if ref not in connections
            else JobState.DONE if connections[ref] in ready
            else JobState.RUNNING
            for ref in refs
        }  # fmt: skip

    def collect(self, ref: str, folder: BuildFolder) -> Receipt:
        slot = self._slots.pop(ref)
        worker = self._workers[slot]
        receipt = worker.answer()
        if receipt is None:
            del self._workers[slot]
            how = how_it_died(worker.process)
            worker.stop()
            fix = "look at its last words in the log, or give it smaller batches (`batch_tokens`) or more memory"
            raise RetryableError(f"its worker died ({how})", ref, fix)
        return receipt

    def cancel(self, refs: Collection[str]) -> None:
        for ref in [ref for ref in refs if ref in self._slots]:
            self._workers.pop(self._slots.pop(ref)).stop()

    def provenance(self) -> Mapping[str, Any]:
        return {}

"""Runs a stage over shards, in this process or in worker processes: the same receipts in the same order, the same
bytes.

A worker process that dies takes nothing with it: its shard is tried again in a fresh one; if that dies too, the shard's
window is halved until the row that kills is found, and the stage rejects that row. Workers never outlive the process
that started them: they are stopped when the run ends, however it ends, and stop by themselves when they lose their
parent.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError, RetryableError
from pipeline_assets.corpus.spine.files import refuse_broken
from pipeline_assets.corpus.spine.fork_server import Starter, starter
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, Receipt, StagingDir
from pipeline_assets.corpus.spine.usage import Progress
from pipeline_assets.corpus.spine.worker import (
    WHOLE,
    Job,
    Shard,
    StartMethod,
    WarmUp,
    Window,
    Work,
    Worker,
    default_start_method,
    how_it_died,
    no_warm_up,
    run_shard,
)

logger = logging.getLogger("corpusmill")
S = TypeVar("S", bound=Shard)

TIMES_PACKED = 4  # bytes of text to a byte of a compressed shard, about
_LARGE_SHARD = 16  # times as much as workers must take away
_LOOKAHEAD = 4  # shards per worker that may finish before the one that is next in order
_MAX_FATAL_ROWS = 16  # a shard with more rows that kill is not bad luck
_SHOWN = ("documents", "tokens", "bytes")  # the counts of a receipt that progress lines show


@dataclass(frozen=True)
class RunSettings:
    """How work is done: speed, memory and storage, never a byte of content.

    Attributes:
        workers: worker processes; 0 runs in this process, where a row that kills its worker kills the build.
        start_method: how workers start, see `StartMethod`.
        log_every_s: seconds between progress lines.
        growth_bytes: a forked worker that holds so much more memory than at its start makes room for a fresh one. A
            fork costs milliseconds, and shares what its forerunner had a copy of.
        inline_bytes: with fewer bytes of shards beside the largest one, this process does all: see `settings_for`.
        subject: what is built, named in progress lines; empty where there is one thing only.
        zstd_level: compression of text shards.
        fetch_threads: downloads at a time.
        memory_bytes: what deduplication may take, all processes together; it spills what is beyond.
        faiss_gpu: the GPU that faiss is to search on; None for the CPU.
        vocabulary: file of the o200k tokenizer, whose sha256 recipes pin; None for the file of this program.
    """

    workers: int = 0
    start_method: StartMethod = field(default_factory=default_start_method)
    log_every_s: float = 10.0
    growth_bytes: int = 192 << 20
    inline_bytes: int = 0
    subject: str = ""
    zstd_level: int = 3
    fetch_threads: int = 8
    memory_bytes: int = 2 << 30
    faiss_gpu: int | None = None
    vocabulary: Path | None = None

    def title(self, stage: str) -> str:
        """How progress lines call the work of a stage."""
        return f"{stage} {self.subject}".rstrip()


def settings_for(building: StagingDir, settings: RunSettings, sizes: Collection[int]) -> RunSettings:
    """The settings, without workers where to start them takes longer than they save: what others work on beside the
    largest shard. Beside one alone that is nothing: there workers only find the row that kills, which is worth their
    start where the shard is large.

    A row that kills its worker kills such a build. The next one finds the folder begun, and the row by workers. Sizes
    are the bytes of each shard, compressed; of text, divide by `TIMES_PACKED`.
    """
    largest = max(sizes, default=0)
    is_small = sum(sizes) - largest < settings.inline_bytes and largest < _LARGE_SHARD * settings.inline_bytes
    return replace(settings, workers=0) if is_small and not building.was_begun else settings


RunStage: TypeAlias = Callable[[str, Sequence[S], BuildFolder], Generator[Receipt]]
"""Receipts of a stage in the order of its shards, by work and with settings that are given already: see `run_stage`."""


def run_stage(
    stage: str,
    work: Work[S],
    shards: Sequence[S],
    folder: BuildFolder,
    settings: RunSettings,
    warm_up: WarmUp = no_warm_up,
) -> Generator[Receipt]:
    """Receipts in the order of `shards`; finished shards are adopted, the rest are run and committed under `stage`.

    The caller may stop early: shards beyond the last receipt taken may have been run, and their files are swept.
    `warm_up` loads what every shard needs, once: in the process that workers are forked from, or in this one if it runs
    the shards. Spawned workers load with their first shard.

    Raises InputError: from the stage, a file that a shard read is not as it was promised to the build, or a worker that
    dies whatever rows it is given.
    """
    with run_stages(work, settings, warm_up) as run:
        yield from run(stage, shards, folder)


@contextlib.contextmanager
def run_stages(work: Work[S], settings: RunSettings, warm_up: WarmUp = no_warm_up) -> Iterator[RunStage[S]]:
    """What runs several stages by one work, which tells them apart by their shards: what workers load is loaded once.
    Errors as of `run_stage`.
    """
    warm_up_once = functools.cache(warm_up)
    start = starter(settings.start_method, work, warm_up, settings.growth_bytes)

    def run_here(stage: str, shards: Sequence[S], folder: BuildFolder) -> Generator[Receipt]:
        for shard in shards:
            warm_up_once()
            yield run_shard(work, shard, WHOLE, folder, stage)

    def run_in_workers(stage: str, shards: Sequence[S], folder: BuildFolder) -> Generator[Receipt]:
        return _Pool[S](stage, start, folder, settings.workers).run(shards)

    run_missing = run_here if settings.workers == 0 else run_in_workers
    yield functools.partial(adopting, settings=settings, run_missing=run_missing)


def adopting(
    stage: str, shards: Sequence[S], folder: BuildFolder, settings: RunSettings, run_missing: RunStage[S]
) -> Generator[Receipt]:
    """Receipts in the order of `shards`: those of finished shards, and of the rest as `run_missing` gives them. Errors
    as of `run_stage`.
    """
    found = {shard.name: folder.receipt(stage, shard.name) for shard in shards}
    finished = {name: receipt for name, receipt in found.items() if receipt is not None and _read_right(receipt)}
    missing = [shard for shard in shards if shard.name not in finished]
    if finished:
        logger.info("%s: %d of %d shards were finished before", settings.title(stage), len(finished), len(shards))
    progress = Progress(settings.title(stage), len(shards), "shards", settings.log_every_s)
    fresh = run_missing(stage, missing, folder)
    try:
        for shard in shards:
            receipt = finished.get(shard.name) or next(fresh)
            refuse_broken(receipt.reads)
            add = progress.add_done_before if shard.name in finished else progress.add
            add(1, {name: receipt.counts[name] for name in _SHOWN if name in receipt.counts})
            yield receipt
    finally:
        fresh.close()


def _read_right(receipt: Receipt) -> bool:
    """Whether what a finished shard was made of is what the build was promised; else it is run again."""
    try:
        refuse_broken(receipt.reads)
    except InputError:
        return False
    return True


class _Pool(Generic[S]):
    """Worker processes for one stage."""

    def __init__(self, stage: str, start: Starter, folder: BuildFolder, size: int) -> None:
        self._stage, self._start, self._folder, self._size = stage, start, folder, size
        self._workers: list[Worker[S]] = []

    def run(self, shards: Sequence[S]) -> Generator[Receipt]:
        """Receipts in order; workers run ahead by a few shards, so that a caller who stops early wastes little."""
        done: dict[int, Receipt] = {}
        position_of = {shard.name: position for position, shard in enumerate(shards)}
        given = taken = 0
        try:
            while taken < len(shards):
                ahead = min(len(shards), taken + self._size * _LOOKAHEAD)
                for worker in self._idle(wanted=ahead - given):  # before the caller works on what is done
                    worker.give(Job(shards[given], WHOLE, self._folder, self._stage))
                    given += 1
                if taken in done:
                    yield done.pop(taken)
                    taken += 1
                    continue
                for worker in self._ready():
                    shard = worker.job.shard  # type: ignore[union-attr]
                    receipt = worker.answer()
                    if receipt is None:
                        self._workers.remove(worker)
                        logger.warning("a worker died on shard %s (%s)", shard.name, how_it_died(worker.process))
                        receipt = self._again(shard)
                    elif worker.has_retired:
                        self._workers.remove(worker)
                        worker.stop()
                    done[position_of[shard.name]] = receipt
        finally:
            for worker in self._workers:
                worker.stop()

    def _idle(self, wanted: int) -> list[Worker[S]]:
        """Workers without a job, started if there are fewer than the settings allow."""
        idle = [worker for worker in self._workers if worker.job is None][:wanted]
        for _ in range(min(wanted - len(idle), self._size - len(self._workers))):
            self._workers.append(Worker(self._start()))
            idle.append(self._workers[-1])
        return idle

    def _ready(self) -> list[Worker[S]]:
        """Busy workers that answered or died; waits for one. A dead worker's pipe reads as ended."""
        busy = {worker.connection: worker for worker in self._workers if worker.job is not None}
        return [busy[connection] for connection in wait(list(busy))] if busy else []  # type: ignore[index]

    def _again(self, shard: S) -> Receipt:
        """A shard whose worker died: once more as it is, then without the rows that kill. Raises InputError: it dies
        without the rows that kill too, or on neither half of its rows, or on too many rows.
        """
        fatal: frozenset[int] = frozenset()
        while len(fatal) <= _MAX_FATAL_ROWS:
            receipt = self._try(Job(shard, Window(fatal=fatal), self._folder, self._stage))
            if receipt is not None:
                return receipt
            row = self._row_that_kills(shard, fatal)
            if row in fatal or not shard.rows:
                fix = "look at its last words in the log, or give the machine more memory"
                raise RetryableError("its worker dies whatever rows it is given", shard.name, fix)
            logger.warning("row %d of shard %s kills its worker: tried again without it", row, shard.name)
            fatal |= {row}
        what = f"more than {_MAX_FATAL_ROWS} rows kill their worker"
        raise RetryableError(what, shard.name, "look at the rows named in the log, or give the machine more memory")

    def _row_that_kills(self, shard: S, fatal: frozenset[int]) -> int:
        start, stop = 0, shard.rows
        scratch = BuildFolder(self._folder.path(f"{WORK}/probe"))
        durable.make_folder(scratch.folder)
        while stop - start > 1:
            middle = (start + stop) // 2
            if self._try(Job(shard, Window(start, middle, fatal), scratch, None)) is None:
                stop = middle
            elif self._try(Job(shard, Window(middle, stop, fatal), scratch, None)) is None:
                start = middle
            else:
                what = f"its worker dies on rows {start} to {stop} together, on neither half alone"
                raise RetryableError(what, shard.name, "run again with fewer workers or more memory")
        durable.remove(scratch.folder)
        return start

    def _try(self, job: Job[S]) -> Receipt | None:
        """The job in a worker of its own; None if that dies."""
        worker: Worker[S] = Worker(self._start())
        try:
            worker.give(job)
            return worker.answer()
        finally:
            worker.stop()

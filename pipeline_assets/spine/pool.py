"""A pool of worker processes for one stage, which finds the rows that kill their worker.

A worker process that dies takes nothing with it: its shard is tried again in a fresh one; if that dies too, the shard's
window is halved until the row that kills is found, and the stage rejects that row. Workers never outlive the process
that started them: they are stopped when the run ends, however it ends, and stop by themselves when they lose their
parent.
"""

import logging
from collections.abc import Generator, Sequence
from multiprocessing.connection import wait
from typing import Generic

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.fork_server import Starter
from pipeline_assets.spine.stage import WHOLE, S, Window
from pipeline_assets.spine.staging import WORK, Receipt, StagingView
from pipeline_assets.spine.worker import Job, Worker, describe_exit

logger = logging.getLogger("corpusmill")
_LOOKAHEAD = 4  # shards per worker that may finish before the one that is next in order
_MAX_FATAL_ROWS = 16  # a shard with more rows that kill is not bad luck


class Pool(Generic[S]):
    """Worker processes for one stage."""

    def __init__(self, stage: str, start: Starter, folder: StagingView, size: int) -> None:
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
                    worker.send_job(Job(shards[given], WHOLE, self._folder, self._stage))
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
                        logger.warning("a worker died on shard %s (%s)", shard.name, describe_exit(worker.process))
                        receipt = self._retry(shard)
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

    def _retry(self, shard: S) -> Receipt:
        """A shard whose worker died: once more as it is, then without the rows that kill. Raises InputError: it dies
        without the rows that kill too, or on neither half of its rows, or on too many rows.
        """
        fatal: frozenset[int] = frozenset()
        while len(fatal) <= _MAX_FATAL_ROWS:
            receipt = self._try(Job(shard, Window(poison_rows=fatal), self._folder, self._stage))
            if receipt is not None:
                return receipt
            row = self._find_poison_row(shard, fatal)
            if row in fatal or not shard.rows:
                fix = "look at its last words in the log, or give the machine more memory"
                raise RetryableError("its worker dies whatever rows it is given", shard.name, fix)
            logger.warning("row %d of shard %s kills its worker: tried again without it", row, shard.name)
            fatal |= {row}
        what = f"more than {_MAX_FATAL_ROWS} rows kill their worker"
        raise RetryableError(what, shard.name, "look at the rows named in the log, or give the machine more memory")

    def _find_poison_row(self, shard: S, fatal: frozenset[int]) -> int:
        start, stop = 0, shard.rows
        scratch = StagingView(self._folder.path(f"{WORK}/probe"))
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
            worker.send_job(job)
            return worker.answer()
        finally:
            worker.stop()

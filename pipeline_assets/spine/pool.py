"""Pool of worker processes, which isolates rows that crash a worker.

If a shard crashes two workers, the pool halves the range of rows until it has found the poison row, which the stage
rejects. Workers are processes of this machine, or slots of a `FutureEngine`. Idle workers wait for the next run. All
workers stop when the last reference to the pool is dropped, or when a run ends early.
"""

import logging
import weakref
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, Protocol

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.stage import WHOLE_SHARD, S, Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView
from pipeline_assets.spine.worker import ShardJob

logger = logging.getLogger("corpusmill")
_LOOKAHEAD_SHARDS = 4  # per worker; they may start before the next receipt in order is yielded
_MAX_POISON_ROWS = 16  # in one shard; more suggest that the worker is broken


class PoolWorker(Protocol[S]):
    """Worker of a pool: a process, or a slot that sends jobs to a `FutureEngine`."""

    job: ShardJob[S] | None
    has_retired: bool

    def send_job(self, job: ShardJob[S]) -> None: ...

    def receive_receipt(self) -> Receipt | None: ...

    def describe_end(self) -> str: ...

    def wait_for_any(self, workers: Sequence[Any]) -> Sequence["PoolWorker[S]"]: ...

    def stop(self) -> None: ...


class Pool(Generic[S]):
    """Pool of workers for one work function; the pool runs one stage at a time."""

    def __init__(self, start_worker: Callable[[], PoolWorker[S]], worker_count: int) -> None:
        self._start, self._size = start_worker, worker_count
        self._workers: list[PoolWorker[S]] = []
        weakref.finalize(self, _stop_all, self._workers)

    def run(self, stage: str, shards: Sequence[S], staging: StagingView) -> Generator[Receipt]:
        """Run the shards of a stage, and yield their receipts in order.

        Workers run only a few shards ahead of the caller, so that little work is lost if the caller stops early. Raise
        RetryableError if a worker crashes and no poison row is found, or if a shard has too many poison rows.
        """
        done: dict[int, Receipt] = {}
        positions = {shard.name: position for position, shard in enumerate(shards)}
        sent = yielded = 0
        try:
            while yielded < len(shards):
                ahead = min(len(shards), yielded + self._size * _LOOKAHEAD_SHARDS)
                # Workers get shards before the caller processes finished ones.
                for worker in self._find_or_start_workers(ahead - sent):
                    worker.send_job(ShardJob(shards[sent], WHOLE_SHARD, staging, stage))
                    sent += 1
                if yielded in done:
                    yielded += 1
                    yield done.pop(yielded - 1)
                    continue
                busy = [worker for worker in self._workers if worker.job is not None]
                for worker in busy[0].wait_for_any(busy) if busy else []:
                    shard = worker.job.shard  # type: ignore[union-attr]
                    receipt = worker.receive_receipt()
                    if receipt is None:
                        self._workers.remove(worker)
                        logger.warning("shard %s: a worker died (%s)", shard.name, worker.describe_end())
                        receipt = self._retry(stage, shard, staging)
                    elif worker.has_retired:
                        self._workers.remove(worker)
                        worker.stop()
                    done[positions[shard.name]] = receipt
        finally:
            if yielded < len(shards):
                _stop_all(self._workers)
                self._workers.clear()

    def _find_or_start_workers(self, count: int) -> Sequence[PoolWorker[S]]:
        """Return up to `count` idle workers; start new workers while the pool has room."""
        idle = [worker for worker in self._workers if worker.job is None][:count]
        for _ in range(min(count - len(idle), self._size - len(self._workers))):
            self._workers.append(self._start())
            idle.append(self._workers[-1])
        return idle

    def _retry(self, stage: str, shard: S, staging: StagingView) -> Receipt:
        """Retry a shard whose worker died: first with all rows, then without poison rows."""
        poison_rows: frozenset[int] = frozenset()
        while len(poison_rows) <= _MAX_POISON_ROWS:
            receipt = self._run_alone(ShardJob(shard, Window(poison_rows=poison_rows), staging, stage))
            if receipt is not None:
                return receipt
            row = self._find_poison_row(shard, poison_rows, staging)
            if row in poison_rows or not shard.rows:
                fix = "read the worker's last lines in the log, or give the machine more memory"
                raise RetryableError("the worker crashes whatever rows it gets", shard.name, fix)
            logger.warning("shard %s: row %d crashes its worker; retrying without it", shard.name, row)
            poison_rows |= {row}
        what = f"more than {_MAX_POISON_ROWS} rows crash their worker"
        raise RetryableError(what, shard.name, "look at the rows named in the log, or give the machine more memory")

    def _find_poison_row(self, shard: S, poison_rows: frozenset[int], staging: StagingView) -> int:
        start, stop = 0, shard.rows
        scratch = StagingView(staging.path(f"{WORK_FOLDER}/probe"))
        durable.make_folder(scratch.folder)
        # Bisect: rows [start, stop) crash a worker. Keep the half that crashes alone, until one row remains.
        while stop - start > 1:
            middle = (start + stop) // 2
            if self._run_alone(ShardJob(shard, Window(start, middle, poison_rows), scratch, None)) is None:
                stop = middle
            elif self._run_alone(ShardJob(shard, Window(middle, stop, poison_rows), scratch, None)) is None:
                start = middle
            else:
                what = f"the worker crashes on rows {start} to {stop} together, but on neither half alone"
                raise RetryableError(what, shard.name, "run again with fewer workers or more memory")
        durable.remove(scratch.folder)
        return start

    def _run_alone(self, job: ShardJob[S]) -> Receipt | None:
        """Run a job in a new worker; return None if the worker dies."""
        worker = self._start()
        try:
            worker.send_job(job)
            return worker.receive_receipt()
        finally:
            worker.stop()


def _stop_all(workers: Sequence[PoolWorker[S]]) -> None:
    for worker in workers:
        worker.stop()

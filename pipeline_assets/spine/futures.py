"""Workers of any engine whose `submit` returns a `concurrent.futures.Future`.

Each process of the engine unpickles the work of a stage and loads the stage's data once, before the first job. Jobs and
receipts are a few KB; everything else is in files below the data root, which has the same path in all processes.
"""

import functools
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Generic, TypeAlias

from pipeline_assets.spine.errors import one_line
from pipeline_assets.spine.pool import Pool
from pipeline_assets.spine.stage import S, WarmUp, Work
from pipeline_assets.spine.staging import Receipt
from pipeline_assets.spine.worker import Failure, ShardJob, run_job

JobResult: TypeAlias = Receipt | Failure
JobFunction: TypeAlias = Callable[[bytes, bytes], JobResult]


@dataclass(frozen=True)
class FutureEngine:
    """Engine whose processes run the jobs of stages, on this machine or on others."""

    submit: Callable[[JobFunction, bytes, bytes], Future[JobResult]]  # calls a function in a process that can import it
    cancel: Callable[[Future[JobResult]], object]  # cancels a call, which may end before that
    death_errors: tuple[type[BaseException], ...]  # exceptions of a call whose process died

    def pool(self, work: Work[S], warm_up: WarmUp, worker_count: int) -> Pool[S]:
        """Return a pool of `worker_count` workers, each with one job at a time."""
        start = functools.partial(_FutureWorker[S], self, pickle.dumps((work, warm_up)))
        return Pool(start, worker_count)


class _FutureWorker(Generic[S]):
    """Slot of a pool: has the methods of `Worker`, and submits one job at a time."""

    has_retired = False

    def __init__(self, engine: FutureEngine, pickled_stage: bytes) -> None:
        self._engine, self._stage = engine, pickled_stage
        self.job: ShardJob[S] | None = None
        self.future: Future[JobResult] = Future()

    def send_job(self, job: ShardJob[S]) -> None:
        self.job, self.future = job, self._engine.submit(run_pickled, self._stage, pickle.dumps(job))

    def receive_receipt(self) -> Receipt | None:
        job, self.job = self.job, None
        try:
            result = self.future.result()
        except self._engine.death_errors:
            return None
        if isinstance(result, Failure):
            raise result.error_for(job)
        return result

    def describe_end(self) -> str:
        return one_line(self.future.exception(), 160)

    def wait_for_any(self, workers: "Sequence[_FutureWorker[S]]") -> "Sequence[_FutureWorker[S]]":
        done, _ = wait([worker.future for worker in workers], return_when=FIRST_COMPLETED)
        return [worker for worker in workers if worker.future in done]

    def stop(self) -> None:
        if self.job is not None:  # the call may write into a folder that is sealed next
            self._engine.cancel(self.future)
            wait([self.future])


def run_pickled(pickled_stage: bytes, pickled_job: bytes) -> JobResult:
    """Unpickle and run a job in this process; return a Failure if it raises an error."""
    try:
        work = _load_stage(pickled_stage)
    except Exception as error:
        return Failure.from_exception(error)
    return run_job(work, pickle.loads(pickled_job))


@functools.lru_cache(maxsize=1)
def _load_stage(pickled_stage: bytes) -> Work:
    """Unpickle the work of a stage, and load the data that its shards share."""
    work: Work
    work, warm_up = pickle.loads(pickled_stage)
    warm_up()
    return work

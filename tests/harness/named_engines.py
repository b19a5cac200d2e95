"""Engines of the contract suite, opened by name."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any
from unittest import mock

from pipeline_assets.spine import ray_engine, worker
from pipeline_assets.spine.engine import RunSettings, StageRunner, run_unfinished_shards, stage_runner
from pipeline_assets.spine.futures import FutureEngine
from pipeline_assets.spine.stage import WarmUp, Work, no_warm_up

BUILDERS = Path(__file__).parents[1] / "builders"
NAMES = ("here", "forked", "futures", "ray")
RUN_SETTINGS = {"here": RunSettings(), "forked": RunSettings(2), "ray": RunSettings(2, engine="ray")}
Engine = Callable[..., StageRunner[Any]]
"""Takes the work of a stage, and a warm-up if it has one; returns a function that runs the stage."""


class ProcessPool:
    """A `ProcessPoolExecutor` that is replaced when it breaks."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._executor = self._open()

    def submit(self, function: Callable[..., Any], stage: bytes, job: bytes) -> "Future[Any]":
        try:
            return self._executor.submit(function, stage, job)
        except BrokenProcessPool:
            self.close()
            self._executor = self._open()
            return self._executor.submit(function, stage, job)

    def close(self) -> None:
        self._executor.shutdown()

    def _open(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._size, get_context("fork"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    Thread(target=worker._die_with_parent, daemon=True).start()


@contextlib.contextmanager
def engine_named(name: str) -> Iterator[Engine]:
    """Open an engine, whose processes end with the block, except those of Ray."""
    if name == "futures":
        with contextlib.closing(ProcessPool(2)) as pool:
            yield functools.partial(_by_futures, pool)
    else:
        yield lambda work, warm_up=no_warm_up: stage_runner(work, RUN_SETTINGS[name], warm_up)


def _by_futures(pool: ProcessPool, work: Work[Any], warm_up: WarmUp = no_warm_up) -> StageRunner[Any]:
    engine = FutureEngine(pool.submit, lambda future: future.cancel(), (BrokenProcessPool,))
    return functools.partial(
        run_unfinished_shards,
        settings=RunSettings(2),
        runner=lambda stage, shards, folder: engine.pool(work, warm_up, 2).run(stage, shards, folder),
    )


@contextlib.contextmanager
def ray_here(builders: Path = BUILDERS) -> Iterator[None]:
    """Let runs in the block start Ray on this machine, with the builders on its path.

    A Ray that an earlier test left would have another path.
    """
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(builders), str(Path(__file__).parent)])
    with mock.patch.dict(os.environ, {"PYTHONPATH": path}):
        os.environ.pop("RAY_ADDRESS", None)
        ray_engine.disconnect()
        try:
            yield
        finally:
            ray_engine.disconnect()


@contextlib.contextmanager
def counted_ray_jobs() -> Iterator[list[int]]:
    """Count the jobs sent to Ray in the block, in a list of one number."""
    count, make_engine = [0], ray_engine.FutureEngine

    def counted(submit: Callable[..., Any], *functions: Any) -> FutureEngine:
        def submit_counted(*call: Any) -> "Future[Any]":
            count[0] += 1
            future: Future[Any] = submit(*call)
            return future

        return make_engine(submit_counted, *functions)

    with mock.patch.object(ray_engine, "FutureEngine", counted):
        yield count

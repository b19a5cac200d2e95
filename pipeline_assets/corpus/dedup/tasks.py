"""What the steps of a deduplication give their workers: tasks that say themselves what is done, each with as much of
the corpus as a worker may hold.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import Shard, Window

_PROCESS_BYTES = 200 << 20  # libraries, compiled code, tables
_LEAST_SHARE_BYTES = 64 << 20


@dataclass(frozen=True)
class Task:
    """What a step does to one shard of the corpus, or to one range of runs: `kernel(shard, …, window, folder)`."""

    name: str
    rows: int
    kernel: Callable[[Window, BuildFolder], Receipt]

    @classmethod
    def of(cls, kernel: Callable[..., Receipt], shard: Shard, *arguments: object) -> Self:
        return cls(shard.name, shard.rows, functools.partial(kernel, shard, *arguments))


def do(task: Task, window: Window, folder: BuildFolder) -> Receipt:
    """The work of every step: what its tasks say."""
    return task.kernel(window, folder)


def share_bytes(settings: RunSettings) -> int:
    """What one worker may hold of the corpus. Where the limit is below what libraries take alone, it is passed."""
    for_all = settings.memory_bytes - _PROCESS_BYTES
    return max(for_all // max(settings.workers, 1) - _PROCESS_BYTES, _LEAST_SHARE_BYTES)


def parts(settings: RunSettings) -> int:
    """Into how many parts work is cut at least, so that all workers have some."""
    return 4 * settings.workers if settings.workers > 1 else 1

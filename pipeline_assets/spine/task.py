"""Tasks: shards bound to their kernels, for stages that share workers."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pipeline_assets.spine.shard import Shard
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingView


@dataclass(frozen=True)
class Task:
    """Shard bound to its kernel, the function that processes the shard."""

    name: str
    rows: int
    kernel: Callable[[Window, StagingView], Receipt]

    @classmethod
    def bind(cls, kernel: Callable[..., Receipt], shard: Shard, *arguments: object, **keywords: object) -> Self:
        """Bind a shard to `kernel(shard, *arguments, window, folder, **keywords)`."""
        return cls(shard.name, shard.rows, functools.partial(kernel, shard, *arguments, **keywords))


def run_task(task: Task, window: Window, staging: StagingView) -> Receipt:
    """Run a task; this is the `Work` of stages that share their workers."""
    return task.kernel(window, staging)

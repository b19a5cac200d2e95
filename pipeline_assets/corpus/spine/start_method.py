"""How worker processes start.

- `forkserver`: one process a command loads what shards need, and forks a worker whenever one is wanted: what was loaded
  is loaded once, and its memory is shared. The default on Linux.
- `spawn`: each worker is started afresh. Safe everywhere; the default elsewhere.
- `fork`: each worker is a copy of this process. Starts fastest; not safe in a process with threads, as Dagster's are.
"""

import sys
from collections.abc import Callable
from typing import Any, Literal

from pipeline_assets.corpus.spine.fork_server import ForkedWorkers
from pipeline_assets.corpus.spine.stage import WarmUp, Work
from pipeline_assets.corpus.spine.worker import Started, serve, start_process

StartMethod = Literal["spawn", "fork", "forkserver"]
Starter = Callable[[], Started]


def default_start_method() -> StartMethod:
    """`forkserver` where the system's own libraries are known to survive a fork."""
    return "forkserver" if sys.platform.startswith("linux") else "spawn"


def starter(method: StartMethod, work: Work[Any], warm_up: WarmUp, growth_bytes: int) -> Starter:
    """A function that starts a worker of a stage.

    Args:
        growth_bytes: see `EngineSettings`.
    """
    if method == "forkserver":
        return ForkedWorkers(work, warm_up, growth_bytes).start
    return lambda: start_process(method, serve, work)

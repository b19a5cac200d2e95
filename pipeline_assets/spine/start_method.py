"""Start method of worker processes.

- `forkserver`: one process per command loads the data that shards share, and forks workers, which share its memory.
  Default on Linux, whose system libraries work after a fork.
- `spawn`: each worker is a new interpreter. Default on other systems, and an alternative on Linux machines that kill a
  fork server because of its memory use.
"""

import functools
import sys
from typing import Any, Literal

from pipeline_assets.spine import worker
from pipeline_assets.spine.fork_server import forking_starter
from pipeline_assets.spine.stage import WarmUp, Work

StartMethod = Literal["forkserver", "spawn"]


def default_start_method() -> StartMethod:
    """Return the start method for this operating system."""
    return "forkserver" if sys.platform.startswith("linux") else "spawn"


def worker_starter(method: StartMethod, work: Work[Any], warm_up: WarmUp, max_growth_bytes: int) -> worker.Starter:
    """Return a function that starts a worker; `spawn` ignores the last two arguments."""
    if method == "forkserver":
        return forking_starter(work, warm_up, max_growth_bytes)
    return functools.partial(worker.start_process, method, worker.serve, work)

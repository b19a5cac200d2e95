"""Start method of worker processes.

- `forkserver`: one process per command loads the data that shards share, and forks workers, which share its memory.
  Default on Linux, whose system libraries work after a fork.
- `spawn`: each worker is a new interpreter. Default on other systems, and an alternative on Linux machines that kill a
  fork server because of its memory use.
"""

import sys
from typing import Literal, TypeAlias

StartMethod: TypeAlias = Literal["forkserver", "spawn"]


def default_start_method() -> StartMethod:
    """Return the start method for this operating system."""
    return "forkserver" if sys.platform.startswith("linux") else "spawn"

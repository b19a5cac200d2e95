"""Workers forked from the test's process, with its patches and loaded torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from pipeline_assets.spine import fork_server


@contextmanager
def forked_here() -> Iterator[None]:
    """Fork workers from this process in the block, whatever threads it has."""
    kept, fork_server._server = fork_server._server, None
    try:
        with mock.patch.object(fork_server, "_can_fork_safely", lambda: True):
            yield
    finally:
        fork_server._stop_server()
        fork_server._server = kept

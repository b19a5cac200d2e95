"""Builder that has the lock on an artifact, according to the lock file."""

import datetime
import socket
import time
from pathlib import Path
from typing import Annotated

import msgspec

from pipeline_assets.spine.errors import TransientError
from pipeline_assets.spine.processes import is_dead_process

_DEAD_OWNER_WAIT_S, _UNNAMED_OWNER_WAIT_S = 2.0, 0.3


class Builder(msgspec.Struct, frozen=True, rename={"since_s": "since"}):
    """Process that has the lock on an artifact, according to the lock file.

    If the file is invalid, `fence` is 0 and each other field is None. `since_s` is in seconds since 1970.
    """

    fence: Annotated[int, msgspec.Meta(ge=0, le=1 << 48)] = 0
    pid: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)] | None = None
    host: str | None = None
    since_s: Annotated[float, msgspec.Meta(ge=0, lt=1e11)] | None = None

    @property
    def since(self) -> datetime.datetime | None:
        return None if self.since_s is None else datetime.datetime.fromtimestamp(self.since_s, datetime.UTC)

    @property
    def patience_s(self) -> float:
        """Seconds to wait for the lock of a dead or unknown owner; 0 for any other owner."""
        if self.pid is None:
            return _UNNAMED_OWNER_WAIT_S
        is_dead = self.host == socket.gethostname() and is_dead_process(self.pid)
        return _DEAD_OWNER_WAIT_S if is_dead else 0.0


class BuilderBusyError(TransientError):
    """Error because another process, such as an artifact's builder, has the lock."""


def busy_error(target: Path, owner: Builder) -> BuilderBusyError:
    """Return an error that names the builder of `target` and the duration so far."""
    who = "another process" if owner.pid is None else f"process {owner.pid} on {owner.host}"
    age = "" if owner.since_s is None else f", for {max(0.0, time.time() - owner.since_s):.0f} s"
    return BuilderBusyError(f"{who} is building this{age}", target, "wait for it or stop it, then run the same command")

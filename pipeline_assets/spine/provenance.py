"""Provenance of an artifact: facts about its build that no digest covers."""

import datetime
import functools
import hashlib
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

from pipeline_assets.spine.usage import cpu_seconds

_LIBRARIES = ("dagster", "gigatoken", "huggingface_hub", "msgspec", "numpy", "pyarrow", "tiktoken", "zstandard")
_PROJECT_FOLDER = Path(__file__).parents[2]


class ProvenanceRecorder:
    """Recorder that notes the start of a build and returns its provenance at the end.

    `command` is the command as typed, with an id that all builds of this process share; None in a process of the UI.
    """

    command: ClassVar[Mapping[str, str] | None] = None

    @classmethod
    def record_command(cls, command_line: str) -> None:
        """Record the command line of this process, with a unique id."""
        process = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        cls.command = {"typed": command_line, "id": hashlib.sha256(process.encode()).hexdigest()[:12]}

    def __init__(self) -> None:
        self._started_at = datetime.datetime.now(datetime.UTC)
        self._started = time.monotonic()
        self._used = cpu_seconds()

    def provenance(self, run_settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return times, host, versions and command, with a copy of the run settings."""
        return {
            "started_at_utc": self._started_at.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._started, 3),
            "cpu_seconds": round(max(0.0, cpu_seconds() - self._used), 2),
            "host": socket.gethostname(),
            "platform": platform.platform(),
            "python": sys.version.split()[0],
            "libraries": dict(library_versions()),
            "git_sha": git_sha(),
            "run_settings": dict(run_settings),
            **({} if self.command is None else {"command": dict(self.command)}),
        }


@functools.cache
def library_versions() -> Mapping[str, str | None]:
    """Return versions of libraries that could affect output; None if not installed."""
    packages = {name: next(iter(metadata.distributions(name=name)), None) for name in _LIBRARIES}
    return {name: None if package is None else package.version for name, package in packages.items()}


@functools.cache
def git_sha() -> str | None:
    """Return the commit of the program's source; None if unknown.

    If the working tree differs from the commit, `+changes` is appended. An installed wheel has no commit, even inside
    the checkout of another project. The result is cached, since a process keeps running the source that it has loaded.
    """
    git = ["git", "--no-optional-locks", "-C", str(_PROJECT_FOLDER)]
    status = [*git, "status", "--branch", "--porcelain=2"]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True)
        lines = subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    head = lines[0].removeprefix("# branch.oid ")
    if head == "(initial)":  # nothing is committed yet
        return None
    return head + ("" if all(line.startswith("#") for line in lines) else "+changes")

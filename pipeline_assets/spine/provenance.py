"""Provenance of an artifact: when, where and with what it was built. True, useful, and no part of any digest."""

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
_PROJECT = Path(__file__).parents[2]


class Stopwatch:
    """Started at the beginning of a build; tells its provenance at the end. The command is what was typed, and an id
    that all builds of that process share; None in a process of the UI.
    """

    command: ClassVar[Mapping[str, str] | None] = None

    @classmethod
    def name_command(cls, typed: str) -> None:
        """Says what this process was started for."""
        process = f"{socket.gethostname()} {os.getpid()} {time.time_ns()}"
        cls.command = {"typed": typed, "id": hashlib.sha256(process.encode()).hexdigest()[:12]}

    def __init__(self) -> None:
        self._started_at = datetime.datetime.now(datetime.UTC)
        self._started = time.monotonic()
        self._used = cpu_seconds()

    def provenance(self, run_settings: Mapping[str, Any]) -> dict[str, Any]:
        """Times, host, versions and run settings. Settings hold no secret: tokens are never among them."""
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
    """Versions of the libraries that could have a part in the bytes; None for one that is not installed."""
    found = {name: next(iter(metadata.distributions(name=name)), None) for name in _LIBRARIES}
    return {name: None if one is None else one.version for name, one in found.items()}


def versions() -> dict[str, str | None]:
    """What could have a part in the bytes: the program's commit, Python, the platform, libraries."""
    return package_versions(Stopwatch().provenance({}))


def package_versions(provenance: Mapping[str, Any]) -> dict[str, str | None]:
    """As `versions`, of the machine that a manifest's provenance tells of, as far as it tells."""
    told = {"program": "git_sha", "python": "python", "platform": "platform"}
    return {
        **{name: provenance[key] for name, key in told.items() if key in provenance},
        **provenance.get("libraries", {}),
    }


@functools.cache
def git_sha() -> str | None:
    """Commit of the program's source, with `+changes` where the working tree differs; None outside a git checkout.

    Asked once: a process goes on with the source that it has loaded. An installed wheel has no commit, even if its
    environment is stored in some other project's checkout.
    """
    git = ["git", "--no-optional-locks", "-C", str(_PROJECT)]
    status = [*git, "status", "--branch", "--porcelain=2"]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, check=True)
        told = subprocess.run(status, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return None
    head = told[0].removeprefix("# branch.oid ")
    if head == "(initial)":  # nothing is committed yet
        return None
    return head + ("" if all(line.startswith("#") for line in told) else "+changes")

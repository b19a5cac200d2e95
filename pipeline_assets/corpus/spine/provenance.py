"""How an artifact came about: true, useful, and no part of any digest."""

import datetime
import functools
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.spine.usage import cpu_seconds

_LIBRARIES = ("dagster", "gigatoken", "huggingface_hub", "msgspec", "numpy", "pyarrow", "tiktoken", "zstandard")
_PROJECT = Path(__file__).parents[3]


class Stopwatch:
    """Started at the beginning of a build; tells its provenance at the end."""

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
        }


@functools.cache
def library_versions() -> Mapping[str, str | None]:
    """Versions of the libraries that could have a part in the bytes; None for one that is not installed."""
    versions: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def versions() -> dict[str, str | None]:
    """What could have a part in the bytes: the program's commit, Python, the platform, libraries."""
    return {
        "program": git_sha(),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        **library_versions(),
    }


def versions_of(provenance: Mapping[str, Any]) -> dict[str, str | None]:
    """As `versions`, of the machine that a manifest's provenance tells of, as far as it tells."""
    told = {"program": "git_sha", "python": "python", "platform": "platform"}
    return {
        **{name: provenance[key] for name, key in told.items() if key in provenance},
        **provenance.get("libraries", {}),
    }


def git_sha() -> str | None:
    """Commit of the program's source, with `+changes` where the working tree differs; None outside a git checkout."""
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", str(_PROJECT), *command], capture_output=True, text=True, check=True, env=environment
            ).stdout.strip()
            for command in (["rev-parse", "HEAD"], ["status", "--porcelain"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if changes else "")

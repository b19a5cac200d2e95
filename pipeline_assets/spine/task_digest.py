"""Digests of tasks: tasks with equal digests write equal files in all builds.

A digest covers the function, its arguments (the content of files, not their paths), and the versions of program and
libraries. A task that reads a file of its own build has no digest, unless the file is a `StagedInput`: any other file
of the build, such as an index, may refer to further files, which its hash does not cover.
"""

import datetime
import enum
import functools
import hashlib
import json
import os
import types
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import pydantic

from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.program_versions import current_versions
from pipeline_assets.spine.verified_reads import expected_sha256

_PLAIN_TYPES = (str, int, float, bool, type(None))


class _NoDigestError(Exception):
    """Error about an argument without a digest, such as a connection or a staged path."""


def task_digest(work: Callable[..., object], shard: object, staging_folder: Path) -> str | None:
    """Return the hex sha256 of a task; None if one of its arguments has no digest.

    The task applies `work` to `shard` in a staging directory. A file that cannot be read has no digest.
    """
    try:
        described = json.dumps([_describe(work, staging_folder), _describe(shard, staging_folder)])
    except (_NoDigestError, OSError):
        return None
    return hashlib.sha256(f"{_versions_json()}{described}".encode()).hexdigest()


@functools.cache
def _versions_json() -> str:
    return json.dumps(current_versions(), sort_keys=True)


def _describe(value: object, staging_folder: Path) -> Any:
    """Return a JSON-compatible description of a value, equal only for equal values."""
    describe = functools.partial(_describe, staging_folder=staging_folder)
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    match value:
        case bool() | int() | float() | str() | None if type(value) in _PLAIN_TYPES:
            return value
        case Path() if not value.is_relative_to(staging_folder):
            return ["file", _sha256(value)]
        case functools.partial():
            return ["partial", *map(describe, (value.func, value.args, value.keywords))]
        case enum.Enum() | bytes() | Fraction() | datetime.date():
            return [kind, repr(value)]
        case pydantic.BaseModel():
            return [kind, value.model_dump_json()]
        case Mapping():
            return ["mapping", *sorted(([describe(key), describe(item)] for key, item in value.items()), key=repr)]
        case Set():
            return ["set", *sorted(map(describe, value), key=repr)]
        case Sequence():
            return ["sequence", *map(describe, value)]
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.metadata.get("digested", True)]
        return [kind, *([name, describe(getattr(value, name))] for name in names)]
    if isinstance(value, types.FunctionType) and "<" not in value.__qualname__:  # no lambda, no local function
        return ["function", value.__module__, value.__qualname__]
    raise _NoDigestError(kind)


def _sha256(path: Path) -> str:
    if (expected := expected_sha256(path)) is not None:
        return expected
    status = os.stat(path)
    return _hash_file(path, status.st_ino, status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=4096)
def _hash_file(path: Path, inode: int, size: int, modified_ns: int) -> str:
    return file_sha256(path)

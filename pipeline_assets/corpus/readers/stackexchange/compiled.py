"""How the kernels of this reader are compiled: by numba, when they are first called, in seconds, once a machine.

numba keeps machine code until the file of the called function changes; a kernel calls functions of many files, so here
it is kept under a digest of them all, beside them or in NUMBA_CACHE_DIR. Where neither can be written, every process
compiles.
"""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.spine.errors import InputError

try:
    import numba
except ImportError:
    fix = "run pip install 'corpusmill[stackexchange]'"
    raise InputError("reading Stack Exchange dumps needs numba", "this environment", fix) from None

P = ParamSpec("P")
R = TypeVar("R")
Bytes = NDArray[np.uint8]
Integers = NDArray[np.int64]
_NO_WRAPPERS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """For functions that Python calls."""

    @functools.cache
    def compiled() -> Callable[P, R]:
        config: Any = numba.config
        users = config.CACHE_DIR
        folder = cache_folder(Path(__file__).parent, users)
        can_write = True
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            can_write = False
        config.CACHE_DIR = str(folder)
        try:
            return cast(Callable[P, R], numba.njit(cache=can_write)(function))
        finally:
            config.CACHE_DIR = users

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return compiled()(*args, **kwargs)

    return call


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """For functions that only kernels call."""
    return cast(Callable[P, R], numba.njit(**_NO_WRAPPERS)(function))


def cache_folder(sources: Path, users: str) -> Path:
    """Where the machine code of all that the sources say is kept.

    Args:
        users: NUMBA_CACHE_DIR; empty if it isn't set.
    """
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(sources.glob("*.py")))).hexdigest()
    return Path(users or sources / "__pycache__") / f"kernels-{digest[:16]}"

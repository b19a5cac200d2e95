"""Decorators that compile kernels with numba and cache the machine code on disk.

The name of the cache folder contains the versions of Python, numba and NumPy, and a hash of all sources of `corpus`.
Clones with equal sources share a folder; changed sources get a new one. Code is not verified: delete a damaged folder.
"""

import contextlib
import functools
import hashlib
import os
import platform
import stat
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import config
from numba.core.caching import UserWideCacheLocator
from numpy.typing import NDArray

from pipeline_assets.compat import compile_without_cache_on_errors, skip_numba_compiler

F = TypeVar("F", bound=Callable[..., object])
skip_numba_compiler()
compile_without_cache_on_errors()
_INNER_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
_SOURCE_FOLDER = Path(__file__).parent


class KernelCacheLocator(UserWideCacheLocator):
    """Numba cache locator for code of `corpus`.

    Code of other packages is cached where numba caches it by default.
    """

    def __init__(self, function: FunctionType) -> None:
        self._module = function.__module__

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> Any:
        if not Path(py_file).is_relative_to(_SOURCE_FOLDER):
            return UserWideCacheLocator.from_function(py_func, py_file)  # type: ignore[no-untyped-call]
        return cls(py_func)

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return ""  # the folder name identifies the sources

    def get_disambiguator(self) -> str:
        return self._module  # distinguishes functions of the same name


vars(config)["CACHE_LOCATOR_CLASSES"] = f"{__name__}.{KernelCacheLocator.__name__}"  # like NUMBA_CACHE_LOCATOR_CLASSES


def compiled(function: F) -> F:
    """Compile a function on its first call with each combination of argument types.

    The machine code is cached in NUMBA_CACHE_DIR (default: the user's cache folder), unless it is not writable, or
    another user could have put code there.
    """
    return cast(F, numba.njit(cache=is_private(cache_folder()))(function))


def compiled_inner(function: F) -> F:
    """Compile a function that only compiled functions call.

    The machine code is cached as part of the callers. Such functions have no wrapper for calls from Python, so a kernel
    with many of them compiles in 75 % of the usual time. They do not count references to arrays, so the kernel runs
    twice as fast. They must therefore return no array; numba refuses to compile a function that creates an array.
    """
    return cast(F, numba.njit(**_INNER_OPTIONS)(function))


def always_inline(function: F) -> F:
    """Compile a function like `compiled_inner`, and inline it into its callers.

    Numba passes an array as seven numbers. In a hot loop, this takes longer than the body of a small function.
    """
    return cast(F, numba.njit(**_INNER_OPTIONS, forceinline=True)(function))


def unaligned_u64_view(text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """View the eight bytes at each position as one number, shape (bytes - 7,).

    Kernels compare and search eight bytes at a time with this view; nothing is copied. `text` needs 7 bytes or more.
    """
    whole = text[: len(text) // 8 * 8].view(np.uint64)  # a view with the dtype; as_strided sets its shape and stride
    return np.lib.stride_tricks.as_strided(whole, (len(text) - 7,), (1,), writeable=False)


@functools.cache
def cache_folder() -> Path:
    digest = hashlib.sha256()
    for path in sorted(_SOURCE_FOLDER.rglob("*.py")):
        digest.update(f"{path.relative_to(_SOURCE_FOLDER).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    versions = f"python{platform.python_version()}-numba{numba.__version__}-numpy{np.__version__}"
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "corpusmill" / "compiled"
    return Path(vars(config)["CACHE_DIR"] or default) / f"{versions}-{digest.hexdigest()[:32]}"


@functools.cache
def is_private(folder: Path) -> bool:
    """Create a folder if missing; check that this user can write to it and no other."""
    with contextlib.suppress(OSError):
        folder.mkdir(0o700, parents=True, exist_ok=True)
        owners = {folder.stat().st_uid, folder.parent.stat().st_uid}  # a parent's owner can exchange the folder
        is_shared = folder.stat().st_mode & stat.S_IWOTH or not owners <= {0, os.geteuid()}
        return not is_shared and os.access(folder, os.W_OK)
    return False

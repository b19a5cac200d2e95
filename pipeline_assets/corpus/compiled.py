"""Compiled kernels: numba's njit with its types kept, and the machine code kept on disk.

The code lies in a folder that is named by what it is compiled from: the sources of `corpus`, all of them, and the
versions of Python, numba and NumPy. So no clone compiles what another has compiled, and old code is never found for new
sources, whichever file they stand in. Like an installed program, and unlike what a build reads, it isn't hashed: if a
disk has damaged it, delete the folder.
"""

import functools
import hashlib
import os
import platform
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import config
from numba.core.caching import UserWideCacheLocator
from numpy.typing import NDArray

from pipeline_assets.compat import skip_numba_extensions

F = TypeVar("F", bound=Callable[..., object])
skip_numba_extensions()
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
_SOURCES = Path(__file__).parent


class KernelLocator(UserWideCacheLocator):
    """Where numba keeps the code of kernels; that of others' functions stays where numba has it."""

    def __init__(self, function: FunctionType) -> None:
        self._module = function.__module__

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> Any:
        """The locator of a function in a file."""
        if not Path(py_file).is_relative_to(_SOURCES):
            return UserWideCacheLocator.from_function(py_func, py_file)  # type: ignore[no-untyped-call]
        return cls(py_func)

    def get_cache_path(self) -> str:
        """The folder of these sources and versions."""
        return str(_cache_folder())

    def get_source_stamp(self) -> str:
        """Nothing: the folder's name tells the sources."""
        return ""

    def get_disambiguator(self) -> str:
        """What tells functions of one name apart."""
        return self._module


vars(config)["CACHE_LOCATOR_CLASSES"] = f"{__name__}.{KernelLocator.__name__}"  # of NUMBA_CACHE_LOCATOR_CLASSES


def compiled(function: F) -> F:
    """The function as machine code, compiled at its first call with such types and cached on disk from then on: in
    NUMBA_CACHE_DIR, else in the user's cache folder, if it can be written.
    """
    return cast(F, numba.njit(cache=_is_writable(_cache_folder()))(function))


def inner(function: F) -> F:
    """As `compiled`, for a function that only compiled ones call.

    It has no code of its own on disk: it is compiled into those, and kept with them. Nor has it the wrappers by which
    Python would call it: a kernel of many small functions takes a third longer to compile with them. And it counts no
    references to its arrays, which its caller holds: two atomic operations an array and call, half the time of such a
    kernel. So it can't make an array of its own, which numba refuses to compile, and must not return one.
    """
    return cast(F, numba.njit(**_INNER)(function))


def always_inline(function: F) -> F:
    """As `inner`, and never called: an array is seven numbers to pass, which in a hot loop take longer than a small
    function.
    """
    return cast(F, numba.njit(**_INNER, forceinline=True)(function))


def unaligned_u64_view(text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The eight bytes that begin at each byte but the last seven, as numbers that kernels compare and search at once: a
    view, not a copy.
    """
    whole = text[: len(text) // 8 * 8].view(np.uint64)
    return np.lib.stride_tricks.as_strided(whole, (len(text) - 7,), (1,), writeable=False)


@functools.cache
def _cache_folder() -> Path:
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.rglob("*.py")):
        digest.update(f"{path.relative_to(_SOURCES).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    versions = f"python{platform.python_version()}-numba{numba.__version__}-numpy{np.__version__}"
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "corpusmill" / "compiled"
    return Path(vars(config)["CACHE_DIR"] or default) / f"{versions}-{digest.hexdigest()[:32]}"


@functools.cache
def _is_writable(folder: Path) -> bool:
    """Whether a folder can be written, or made."""
    while not folder.exists():
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK)

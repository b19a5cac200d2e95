"""Compiled kernels: numba's njit with its types kept, and the machine code kept on disk."""

import contextlib
import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config, entrypoints
from numba.core.caching import IndexDataCacheFile

F = TypeVar("F", bound=Callable[..., object])
_CACHE = "__pycache__"
# At its first call numba loads what other libraries add to its types. No kernel is typed by them, and awkward, which
# comes with gigatoken, takes a tenth of a second of every process.
vars(entrypoints)["_already_initialized"] = True
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
_HASH_BYTES = 32


class _CheckedFiles(IndexDataCacheFile):
    """numba's two files of a function, index and code, each ended by the sha256 of what stands before it.

    numba runs what it reads: one flipped bit is a segmentation fault, at each start again. What isn't as it was written
    counts as not there, and is compiled and written anew. A cache that can't be written is no error.
    """

    def save(self, key: object, data: object) -> None:
        with contextlib.suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> dict[object, str]:
        return dict(super()._load_index()) if _is_as_written(self._index_path) else {}

    def _load_data(self, name: str) -> object:
        path = self._data_path(name)
        if not _is_as_written(path):
            raise FileNotFoundError(path)  # which numba takes for code that is to be compiled
        return super()._load_data(name)

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


def _is_as_written(path: str) -> bool:
    try:
        data = Path(path).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data[:-_HASH_BYTES]).digest() == data[-_HASH_BYTES:]


def compiled(function: F) -> F:
    """The function as machine code, compiled at its first call with such types and cached on disk from then on.

    numba takes a function's cached code for current while the function's own file is unchanged, whatever became of the
    functions and constants that were compiled into it from other files, and a process killed at the wrong moment leaves
    old code under the new file's stamp. So the cache lies in a folder named after every source file beside the
    function's: what a compiled function calls or reads must stand in one of those.
    """
    if vars(config)["DISABLE_JIT"]:
        return function
    settings = vars(config)  # numba reads its cache folder once for each function, here
    common = settings["CACHE_DIR"]
    settings["CACHE_DIR"] = _cache_folder(Path(function.__code__.co_filename).parent)
    try:
        kernel = numba.njit(function, cache=True)
        kernel._cache._cache_file.__class__ = _CheckedFiles
        return cast(F, kernel)
    except RuntimeError:  # nowhere to write: compiled in each process
        return cast(F, numba.njit(function))
    finally:
        settings["CACHE_DIR"] = common


def inner(function: F) -> F:
    """As `compiled`, for a function that only compiled ones call.

    It has no code of its own on disk: it is compiled into those, and kept with them. Nor has it the wrappers by which
    Python would call it: a kernel of many small functions takes a third longer to compile with them. And it counts no
    references to its arrays, which its caller holds: two atomic operations an array and call, half the time of such a
    kernel. So it can't make an array of its own, which numba refuses to compile, and must not return one.
    """
    return cast(F, numba.njit(**_INNER)(function))


@functools.cache
def _cache_folder(sources: Path) -> str:
    """Where the machine code of a folder's functions lies: NUMBA_CACHE_DIR, beside the sources, or in the home."""
    digest = hashlib.sha256()
    for path in sorted(sources.glob("*.py")):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    if common := vars(config)["CACHE_DIR"]:
        base = Path(common)
    else:
        base = sources / _CACHE if os.access(sources, os.W_OK) else Path("~/.cache/corpusmill").expanduser()
    return str(base / f"compiled-{digest.hexdigest()[:16]}")

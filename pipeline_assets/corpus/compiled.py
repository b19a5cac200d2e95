"""Compiled kernels: numba's njit with its types kept, and the machine code kept on disk.

The code of a kernel is kept under a digest of its module and of what it is compiled from: its own bytecode, and that of
every function and every constant that it names, whatever file they stand in. So a comment compiles nothing, no clone
compiles what another has compiled, and old code is never found for new sources.
"""

import contextlib
import functools
import hashlib
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba.core import config, entrypoints
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.runtime.nrt import rtsys
from numba.np import linalg
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., object])
# At its first call numba loads what other libraries add to its types. No kernel is typed by them, and awkward, which
# comes with gigatoken, takes a tenth of a second of every process.
vars(entrypoints)["_already_initialized"] = True


def _no_blas() -> None:
    raise ImportError("kernels call no BLAS")


# numba asks for one as it loads, and scipy, where it is installed, takes a third of a second to say where it is.
vars(linalg)["ensure_blas"] = _no_blas
_INNER: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
_HASH_BYTES = 32
_MOVED = (ImportError, AttributeError)  # code is kept with the types of its arguments by name, and these may move
_PROJECT = __name__.partition(".")[0]


class _CheckedFiles(IndexDataCacheFile):
    """numba's two files of a function, index and code, each ended by the sha256 of what stands before it.

    numba runs what it reads: one flipped bit is a segmentation fault, at each start again. What isn't as it was written
    counts as not there, and is compiled and written anew. A cache that can't be written is no error.
    """

    def save(self, key: object, data: object) -> None:
        with contextlib.suppress(OSError):
            Path(self._cache_path).mkdir(parents=True, exist_ok=True)
            super().save(key, data)

    def _load_index(self) -> dict[object, str]:
        with contextlib.suppress(*_MOVED):
            if _is_as_written(self._index_path):
                return dict(super()._load_index())
        return {}

    def _load_data(self, name: str) -> object:
        path = self._data_path(name)
        with contextlib.suppress(*_MOVED):
            if _is_as_written(path):
                return super()._load_data(name)
        raise FileNotFoundError(path)  # which numba takes for code that is to be compiled

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + hashlib.sha256(content.getvalue()).digest())


class _KernelCache(FunctionCache):
    """The code of one kernel on disk. Where it lies is worked out when it is first asked for: then all that the kernel
    names is there.
    """

    def __init__(self, function: FunctionType) -> None:
        self._name, self._py_func = repr(function), function
        self._impl = CompileResultCacheImpl.__new__(CompileResultCacheImpl)
        self._impl._locator = self
        self.enable()

    def load_overload(self, sig: object, target_context: Any) -> Any:
        """As numba's, but of numba's own runtime alone: what it loads to compile takes a third of a second."""
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def ensure_cache_path(self) -> None:
        """Nothing: the folder is made with the first file in it."""

    @property
    def cache_path(self) -> str:
        return str(_cache_folder())

    @functools.cached_property
    def _cache_file(self) -> _CheckedFiles:  # type: ignore[override]  # numba makes it at once
        digest = hashlib.sha256()
        for part in (self._py_func.__module__, *_sources_of(self._py_func, set())):
            digest.update(part.encode() + b"\0")
        name = f"{self._py_func.__name__.strip('_')}-{digest.hexdigest()[:32]}"
        return _CheckedFiles(self.cache_path, name, (numba.__version__, np.__version__))


def compiled(function: F) -> F:
    """The function as machine code, compiled at its first call with such types and cached on disk from then on: in
    NUMBA_CACHE_DIR, else in the user's cache folder.
    """
    if vars(config)["DISABLE_JIT"]:
        return function
    kernel = numba.njit(function)
    kernel._cache = _KernelCache(cast(FunctionType, function))
    return cast(F, kernel)


def inner(function: F) -> F:
    """As `compiled`, for a function that only compiled ones call.

    It has no code of its own on disk: it is compiled into those, and kept with them. Nor has it the wrappers by which
    Python would call it: a kernel of many small functions takes a third longer to compile with them. And it counts no
    references to its arrays, which its caller holds: two atomic operations an array and call, half the time of such a
    kernel. So it can't make an array of its own, which numba refuses to compile, and must not return one.
    """
    return cast(F, numba.njit(**_INNER)(function))


def inlined(function: F) -> F:
    """As `inner`, and never called: an array is seven numbers to pass, which in a hot loop take longer than a small
    function.
    """
    return cast(F, numba.njit(**_INNER, forceinline=True)(function))


def eight_bytes_at_each(text: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The eight bytes that begin at each byte but the last seven, as numbers that kernels compare and search at once: a
    view, not a copy.
    """
    whole = text[: len(text) // 8 * 8].view(np.uint64)
    return np.lib.stride_tricks.as_strided(whole, (len(text) - 7,), (1,), writeable=False)


def _is_as_written(path: str) -> bool:
    try:
        data = Path(path).read_bytes()
    except OSError:
        return False
    return hashlib.sha256(data[:-_HASH_BYTES]).digest() == data[-_HASH_BYTES:]


def _cache_folder() -> Path:
    if common := vars(config)["CACHE_DIR"]:
        return Path(common)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "corpusmill" / "compiled"


def _sources_of(value: object, seen: set[int]) -> Iterator[str]:
    """What the machine code of a value's users depends on, as text: the same in every process and place."""
    function = getattr(value, "py_func", getattr(value, "__wrapped__", value))  # of a kernel, of an intrinsic
    if isinstance(function, FunctionType):
        if id(function) not in seen:
            seen.add(id(function))
            yield f"{sorted(getattr(value, 'targetoptions', {}).items())} {function.__defaults__}"
            yield from _sources_of_code(function.__code__, function.__globals__, seen, first_constant=1)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()}"
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} of {len(value)}"
        for one in value:
            yield from _sources_of(one, seen)
    elif isinstance(value, frozenset):
        yield repr(sorted(map(repr, value)))
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__}"
    else:
        yield repr(value)


def _sources_of_code(code: CodeType, names: dict[str, Any], seen: set[int], first_constant: int = 0) -> Iterator[str]:
    """
    Args:
        first_constant: 1 for a function: its first constant is its docstring, or None.
    """
    yield f"{code.co_code.hex()} {code.co_names} {code.co_varnames} {code.co_freevars}"
    for constant in code.co_consts[first_constant:]:
        if isinstance(constant, CodeType):
            yield from _sources_of_code(constant, names, seen)
        else:
            yield from _sources_of(constant, seen)
    for name in code.co_names:
        value = names.get(name)
        if not isinstance(value, ModuleType):
            yield from _sources_of(value, seen)
        elif value.__name__.startswith(_PROJECT):  # of a library the version says enough
            for attribute in code.co_names:
                yield from _sources_of(vars(value).get(attribute), seen)

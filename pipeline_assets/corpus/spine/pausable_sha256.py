"""sha256 that can be put down in the middle and taken up by another process: hashlib's own OpenSSL, by its C functions,
since hashlib doesn't give its state away.

Only files too large to read twice need it. Where the functions are not to be had, or don't do what hashlib does, such
files are hashed from their beginning.
"""

import ctypes
import functools
import hashlib
import sys
from dataclasses import dataclass

_STATE_WORDS = 32  # OpenSSL's SHA256_CTX has 112 bytes; a library that writes more than these 256 fails the trial below
_GUARD = 0x5EA1ED5EA1ED5EA1


@dataclass(frozen=True)
class OpenSsl:
    """hashlib's library; a state is only understood by the version that made it."""

    functions: ctypes.CDLL
    version: str


class PausableSha256:
    """A sha256 whose state can be kept. Its methods are those of hashlib's objects.

    Args:
        state: where to go on, as `state` was on a machine with the same library.
    """

    def __init__(self, openssl: OpenSsl, state: bytes | None = None) -> None:
        self.library = openssl.version
        self._functions = openssl.functions
        self._context = (ctypes.c_uint64 * (_STATE_WORDS + 1))()
        self._context[_STATE_WORDS] = _GUARD
        if state is None:
            self._functions.SHA256_Init(self._context)
        else:
            ctypes.memmove(self._context, state, min(len(state), _STATE_WORDS * 8))

    @property
    def state(self) -> bytes:
        """All there is to know of the bytes seen."""
        return bytes(self._context)[: _STATE_WORDS * 8]

    def update(self, block: memoryview) -> None:
        """More bytes, in memory that may be written to; other threads run meanwhile."""
        data = (ctypes.c_char * len(block)).from_buffer(block)
        self._functions.SHA256_Update(self._context, data, ctypes.c_size_t(len(block)))

    def hexdigest(self) -> str:
        """Of the bytes so far; more may follow."""
        context = type(self._context).from_buffer_copy(self._context)
        digest = ctypes.create_string_buffer(32)
        self._functions.SHA256_Final(digest, context)
        return digest.raw.hex()

    def is_within_bounds(self) -> bool:
        """Whether the library kept to the memory that it was given."""
        return bool(self._context[_STATE_WORDS] == _GUARD)


@functools.cache
def load_openssl() -> OpenSsl | None:
    """The library by which hashlib hashes; None where its functions are not to be had, or not as they should be."""
    try:
        import _hashlib

        functions = ctypes.CDLL(_hashlib.__file__)
        functions.OpenSSL_version.restype = ctypes.c_char_p
        version = f"{functions.OpenSSL_version(0).decode('ascii')}, {sys.byteorder} endian"
        openssl = OpenSsl(functions, version)
        return openssl if _does_what_hashlib_does(openssl) else None
    except (ImportError, OSError, AttributeError, ValueError):
        return None


def _does_what_hashlib_does(openssl: OpenSsl) -> bool:
    data = bytearray(range(256)) * 8
    first = PausableSha256(openssl)
    first.update(memoryview(data)[:333])
    second = PausableSha256(openssl, first.state)
    second.update(memoryview(data)[333:])
    is_right = second.hexdigest() == hashlib.sha256(data).hexdigest()
    return is_right and first.is_within_bounds() and second.is_within_bounds()

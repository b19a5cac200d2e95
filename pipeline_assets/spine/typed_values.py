"""Conversion of decoded values to typed ones, by any number of threads.

msgspec collects the fields of a class when the class is first used. If two threads use it then, one may read what the
other has not yet written, and the process dies. So each type is prepared once, under a lock.
"""

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_lock = threading.Lock()
_prepared: set[Any] = set()


def convert(value: object, shape: type[T]) -> T:
    """Convert decoded JSON to a type; raise ValidationError if its shape differs."""
    _prepare(shape)
    return msgspec.convert(value, shape)


def json_decoder(shape: type[T]) -> "msgspec.json.Decoder[T]":
    """Return a decoder that converts JSON texts to a type."""
    _prepare(shape)
    return msgspec.json.Decoder(shape)


def _prepare(shape: Any) -> None:
    if shape not in _prepared:
        with _lock:
            msgspec.json.Decoder(shape)
            _prepared.add(shape)

"""Conversion of decoded values to typed ones, by any number of threads.

msgspec collects the fields of a class when the class is first used. The process may die if two threads do so at the
same time, so each type is prepared once, under a lock.
"""

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_lock = threading.Lock()
_prepared_types: set[Any] = set()


def convert(value: object, value_type: type[T]) -> T:
    """Convert decoded JSON to a type; raise ValidationError if it does not fit."""
    _prepare(value_type)
    return msgspec.convert(value, value_type)


def json_decoder(value_type: type[T]) -> "msgspec.json.Decoder[T]":
    """Return a decoder that converts JSON texts to a type."""
    _prepare(value_type)
    return msgspec.json.Decoder(value_type)


def _prepare(value_type: Any) -> None:
    if value_type not in _prepared_types:
        with _lock:
            msgspec.json.Decoder(value_type)
            _prepared_types.add(value_type)

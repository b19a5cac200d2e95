"""Cursors of sensors: values that the sensors stored at their last tick.

A stored cursor cannot be trusted: a user may edit it in the UI, and an earlier version of the program may have stored
a different structure.
"""

from typing import TypeVar

import pydantic

T = TypeVar("T")


def read_cursor(text: str | None, structure: type[T], default: T) -> T:
    """Return the value that a sensor stored as JSON.

    Without a cursor, and for a text that does not have the structure, return the default: the sensor then starts as
    if it had never run.
    """
    try:
        return pydantic.TypeAdapter(structure).validate_json(text or "", strict=True)
    except pydantic.ValidationError:
        return default

"""Responses of a hub that cannot be parsed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_ERROR_CHARACTERS = 200
_UNPRINTABLE = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff]+")


class MalformedResponse(Exception):
    """A response that is not from a hub: truncated by a proxy, or a login page."""


@contextmanager
def convert_parse_errors() -> Iterator[None]:
    """Convert parsing errors inside the context to MalformedResponse."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedResponse(error_text(error)) from None


def error_text(error: Exception) -> str:
    """Return an error's text, which a hub may control, as one short printable line."""
    text = _UNPRINTABLE.sub(" ", f"{type(error).__name__}: {error}")
    return text if len(text) <= _MAX_ERROR_CHARACTERS else f"{text[:_MAX_ERROR_CHARACTERS]}…"

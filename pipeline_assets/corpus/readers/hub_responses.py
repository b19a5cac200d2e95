"""Hub responses that cannot be parsed."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

_MAX_ERROR_CHARACTERS = 200
_UNPRINTABLE = re.compile(r"[\0-\x1f\x7f-\x9f\ud800-\udfff]+")


class MalformedResponse(Exception):
    """Error about an unparsable response, such as a login page or a truncated body."""


@contextmanager
def convert_parse_errors() -> Iterator[None]:
    """Convert errors of the parsing code in a `with` block to MalformedResponse."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedResponse(error_text(error)) from None


def error_text(error: Exception) -> str:
    """Return an error's class and text in one short line without control characters."""
    text = _UNPRINTABLE.sub(" ", f"{type(error).__name__}: {error}")
    return text if len(text) <= _MAX_ERROR_CHARACTERS else f"{text[:_MAX_ERROR_CHARACTERS]}…"

"""What a row's values must be for it to become a Document, and how a row that can't says why."""

from dataclasses import dataclass

NESTED_TOO_DEEP = "nested_too_deep"
# Objects and lists inside one another in a value of a row. Far below where Python's stack ends, which depends on who
# calls: a row's fate must not.
MAX_NESTING = 64


@dataclass(frozen=True)
class Fault:
    """Why a row, or one value of it, can't be used; reason and detail as in `Reject`."""

    reason: str
    detail: str = ""


def is_nested_within(value: object, levels: int = MAX_NESTING) -> bool:
    """Whether there are at most so many objects and lists inside one another; a map of Arrow is a list of tuples."""
    if not isinstance(value, (dict, list, tuple)):
        return True
    if levels == 0:
        return False
    for one in value.values() if isinstance(value, dict) else value:
        # Most values are neither: asking before the call saves two calls of three.
        if isinstance(one, (dict, list, tuple)) and not is_nested_within(one, levels - 1):
            return False
    return True


def nesting_fault() -> Fault:
    """Why a row with a value of more than `MAX_NESTING` levels can't be used."""
    return Fault(NESTED_TOO_DEEP, f"more than {MAX_NESTING} objects and lists inside one another")


def text_fault(text: object, doc_id: object) -> Fault | None:
    """Why a row with this text and id can't be a Document; None if it can."""
    if text is None:
        return Fault("no_text", "null")
    if not isinstance(text, str):
        return Fault("wrong_type", f"text is {type(text).__name__}")
    if doc_id is not None and not isinstance(doc_id, str):
        return Fault("wrong_type", f"id is {type(doc_id).__name__}")
    return None if text else Fault("empty_text")


def utf8_fault(error: UnicodeDecodeError) -> Fault:
    """Which kind of bytes is no UTF-8: a surrogate that stands for no character, or others."""
    try:
        error.object.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return Fault("invalid_utf8", f"{error.reason} at byte {error.start}")
    return Fault("lone_surrogate", f"at byte {error.start}")

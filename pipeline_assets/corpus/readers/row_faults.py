"""What a row's values must be for it to become a Document, and how a row that can't says why."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Why a row, or one value of it, can't be used; reason and detail as in `Reject`."""

    reason: str
    detail: str = ""


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

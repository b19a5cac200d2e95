"""Faults, the reasons why rows or values of sources cannot become Documents."""

from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.readers.nesting import MAX_NESTING
from pipeline_assets.spine.rejects import Reject


@dataclass(frozen=True)
class Fault:
    """Reason why a row or value cannot become part of a Document, as code and detail."""

    reason: str
    detail: str = ""

    def to_reject(self, file_name: str, position: int) -> Reject:
        return Reject(file_name, position, self.reason, self.detail)


Row = dict[str, Any] | Fault
"""Row of a source, by column name, or the reason why it cannot be read."""
NESTED_TOO_DEEP = Fault("nested_too_deep", f"more than {MAX_NESTING} objects and lists inside one another")


def utf8_fault(error: UnicodeDecodeError) -> Fault:
    """Return `lone_surrogate` if only surrogates are invalid, else `invalid_utf8`."""
    try:
        error.object.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return Fault("invalid_utf8", f"{error.reason} at byte {error.start}")
    return Fault("lone_surrogate", f"at byte {error.start}")

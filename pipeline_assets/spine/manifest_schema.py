"""Shapes of the manifest parts whose keys depend on the kind."""

from typing import Annotated, Any, NotRequired, TypeAlias, TypedDict

import msgspec

from pipeline_assets.spine.ledger import Count, Ledger

_Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=1e10)]
_CountOrParts: TypeAlias = Count | dict[str, Count]
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^(?!\.{1,2}\Z)[^/\0]+\Z", max_length=255)]


def total_count(count: object) -> int | None:
    """Return a count, or the sum of a mapping of counts; None for other values."""
    if isinstance(count, dict):
        return sum(part for part in count.values() if isinstance(part, int))
    return count if isinstance(count, int) else None


class _RowGroup(TypedDict):
    """Row group of a Parquet file, in the bytes from `start` to `stop`."""

    number: Count
    first_row: Count
    rows: Count
    start: Count
    stop: Count


class _Input(TypedDict):
    """Fields of an input, which is an artifact or a file."""

    name: str
    digest: Annotated[str, msgspec.Meta(pattern=r"^[^/\0]+\Z")]
    member: NotRequired[_Name]
    bytes: NotRequired[Count]
    row_groups: NotRequired[list[_RowGroup]]


class _Counts(TypedDict, total=False):
    """Ledger and counts that many kinds have; a count may be a mapping of subtotals."""

    documents: _CountOrParts
    tokens: _CountOrParts
    text_bytes: _CountOrParts
    ledger: Ledger


class _Provenance(TypedDict, total=False):
    """Provenance fields that the program reads; all fields are optional."""

    builder: Count
    host: str
    started_at_utc: str
    seconds: _Seconds
    cpu_seconds: _Seconds
    seconds_of: dict[str, _Seconds]
    adopted_shards: Count
    bytes_fetched: Count
    peak_disk_bytes: Count
    peak_memory_bytes: Count | None
    text_bytes_encoded: Count
    tokens_encoded: Count
    run_settings: dict[str, Any]
    libraries: dict[str, str | None]  # None for a library that is not installed


class KindParts(TypedDict):
    """Expected types of the manifest's parts whose keys differ from kind to kind."""

    inputs: list[_Input]
    counts: _Counts
    provenance: _Provenance

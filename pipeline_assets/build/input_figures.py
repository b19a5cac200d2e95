"""Bytes and rows that a build reads, computed from input entries of a manifest."""

from collections.abc import Iterable, Mapping
from typing import Any


def input_figures(inputs: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return `bytes_read` and `rows` of a build's input files; ignore input artifacts.

    If any file has `row_groups`, both figures are sums over all row groups. Otherwise, `bytes_read` is the sum of the
    file sizes, and the dict has no key `rows`. Without files, the dict is empty.
    """
    files = [entry for entry in inputs if "bytes" in entry]
    groups = [group for entry in files for group in entry.get("row_groups", ())]
    if groups:
        size = sum(group["stop"] - group["start"] for group in groups)
        return {"bytes_read": size, "rows": sum(group["rows"] for group in groups)}
    return {"bytes_read": sum(entry["bytes"] for entry in files)} if files else {}

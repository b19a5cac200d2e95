"""Quantities as people read them."""

import datetime
from collections.abc import Collection, Sequence


def as_bytes(count: float) -> str:
    """`535.9 kB`, `12.3 MB`, `1.45 GB`: powers of ten."""
    for unit, size, digits in (("TB", 1e12, 2), ("GB", 1e9, 2), ("MB", 1e6, 1), ("kB", 1e3, 1)):
        if abs(count) >= size:
            return f"{count / size:,.{digits}f} {unit}"
    return f"{count:,.0f} bytes"


def as_seconds(seconds: float) -> str:
    """`0.4 s`, `12 s`, `3.5 min`, `2.1 h`."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s" if seconds < 10 else f"{seconds:,.0f} s"


def aligned(rows: Sequence[tuple[str, ...]], numbers: Collection[int] = ()) -> list[str]:
    """Rows of cells as lines, column under column; the columns in `numbers` to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def age(then: datetime.datetime, now: datetime.datetime) -> str:
    """How long ago, in the largest unit of which it is two or more."""
    seconds = max(0, int((now - then).total_seconds()))
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"

"""Histograms of lengths and scores as bars with labels."""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_BLOCK_CHARACTERS = "▁▂▃▄▅▆▇█"
_OWN_BAR_SHARE = 0.99  # of rows in bars of their own: an outlier would squeeze all others into a few bars


class HistogramBar(NamedTuple):
    """Bar of a histogram: count, label, and range as text, such as `of 4 to 7 tokens`."""

    amount: int
    label: str
    range_text: str


def length_bars(lengths: Sequence[int] | Mapping[str, int], unit: str = " tokens") -> list[HistogramBar]:
    """Return a bar for each power of two from the shortest to the longest length.

    The bar of 2**k counts the lengths from 2**k to 2**(k + 1) - 1. `lengths` has this count at index k if it is a
    sequence, or at key str(2**k) if it is a mapping.
    """
    counted = lengths.items() if isinstance(lengths, Mapping) else ((1 << k, count) for k, count in enumerate(lengths))
    counts = {int(power): count for power, count in counted if count}
    powers = [1 << k for k in range(min(counts).bit_length() - 1, max(counts).bit_length())] if counts else []
    return [
        HistogramBar(counts.get(power, 0), _format_power(power), f"of {power:,} to {2 * power - 1:,}{unit}")
        for power in powers
    ]


def _format_power(power: int) -> str:
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if power >= unit:
            return f"{power // unit}{name}"
    return str(power)


def score_bars(bins: Sequence[int], edges: Sequence[float]) -> list[HistogramBar]:
    """Return a bar per bin, from the first bin with rows until 99 % of rows are shown.

    The last bar covers all higher bins. `bins[k]` counts rows from `edges[k]` to the next edge; `edges` may be longer.
    """
    reached, enough = list(itertools.accumulate(bins)), _OWN_BAR_SHARE * sum(bins)
    shown = [number for number, rows in enumerate(reached) if rows and (not number or reached[number - 1] < enough)]
    counted = [(bins[number], f"{edges[number]:.1f}") for number in shown[:-1]]
    counted += [(sum(bins[number:]), f"{edges[number]:.1f}+") for number in shown[-1:]]
    return [HistogramBar(rows, label, f"from {label}") for rows, label in counted]


def text_plot(bars: Sequence[HistogramBar]) -> str:
    """Plot bars on one line, between the first and the last label; "" without bars."""
    return f"{bars[0].label} {sparkline([bar.amount for bar in bars])} {bars[-1].label}" if bars else ""


def sparkline(counts: Sequence[int]) -> str:
    """Plot counts as a line of block characters with proportional heights."""
    # Height 7 · count / maximum, rounded up (-(-a // b) is the ceiling of a / b), so only 0 has the lowest character.
    return "".join(_BLOCK_CHARACTERS[-(-7 * count // (max(counts) or 1))] for count in counts)

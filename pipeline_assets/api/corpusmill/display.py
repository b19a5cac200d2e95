"""HTML of artifacts, traces and plots for notebooks, with escaped texts."""

import html
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pipeline_assets.build.rows.trace import TracedRow
from pipeline_assets.corpus.plots import HistogramBar, length_bars, text_plot
from pipeline_assets.spine.visible import VISIBLE_TABLE, to_one_line

_MAX_BARS, _MAX_VALUE_CHARACTERS = 20, 64  # values with more characters are counted by length
_MAX_DISTINCT_VALUES = 1 << 20  # values that are counted, in about 150 MiB; a column of more has ids, not categories
_BAR_HEIGHT_PX, _NARROW_BAR_PX, _WIDE_BAR_PX = 120, 34, 130  # wide bars have room for 20 characters


class Traces(list[TracedRow]):
    """Rows traced to their sources.

    Notebooks show them as a table, and a Python shell as a line per source row.
    """

    def __repr__(self) -> str:
        rows = [f"{row}  {licence}  {excerpt}" for row, _, licence, excerpt in self._source_rows()]
        return "\n".join(map(to_one_line, rows)) or "no rows"

    def _repr_html_(self) -> str:
        return html_table(["source row", "digest of the file", "licence", "text"], self._source_rows())

    def _source_rows(self) -> list[tuple[str, str, str, str]]:
        texts = [(row, traced.text) for traced in self for row in traced.text.source.rows]
        return [(str(row), text.source.digest, text.source.license_tag, text.excerpt) for row, text in texts]


@dataclass(frozen=True)
class Plot:
    """Bars with labels: SVG in a notebook, and a line of block characters elsewhere."""

    title: str
    bars: Sequence[HistogramBar]

    def __repr__(self) -> str:
        return f"{self.title}: {text_plot(self.bars) or 'no rows'}"

    def _repr_html_(self) -> str:
        highest = max((bar.amount for bar in self.bars), default=1)
        width = _NARROW_BAR_PX if all(len(bar.label) <= 5 for bar in self.bars) else _WIDE_BAR_PX
        shapes = "".join(_bar_svg(number * width, width, bar, highest) for number, bar in enumerate(self.bars))
        size = f"width='{len(self.bars) * width}' height='{_BAR_HEIGHT_PX + 28}'"
        return f"<figure><figcaption>{_escape(self.title)}</figcaption><svg {size} role='img'>{shapes}</svg></figure>"


def _bar_svg(left_px: int, width_px: int, bar: HistogramBar, max_amount: int) -> str:
    height = _BAR_HEIGHT_PX * bar.amount / max_amount
    title = f"<title>{_escape(f'{bar.amount:,} {bar.range_text}')}</title>"
    box = f"x='{left_px}' y='{_BAR_HEIGHT_PX + 12 - height:.1f}' width='{width_px - 4}' height='{height:.1f}'"
    position = f"x='{left_px}' y='{_BAR_HEIGHT_PX + 26}'"
    label = f"<text {position} font-size='11' fill='currentColor'>{_escape(bar.label[:20])}</text>"
    return f"<rect {box} fill='#4c78a8'>{title}</rect>{label}"


def plot_column(name: str, chunks: Iterable[pa.ChunkedArray]) -> Plot:
    """Plot the values of a column from its chunks, which are read once.

    Lists are replaced by their items. Texts and booleans have bars for the 20 most common values. If any text is longer
    than 64 characters, or over 1,048,576 texts are distinct, text lengths are plotted instead. The bins of integers and
    lengths are bounded by powers of two. Other numbers have 20 equal bins between the 1st and the 99th percentile.
    """
    total, longest, values, numbers = 0, 0, Counter[str](), list[NDArray[np.float64]]()
    powers = np.zeros(64, np.int64)
    for nullable in chunks:
        part = (pc.list_flatten(nullable) if pa.types.is_list(nullable.type) else nullable).drop_null()
        part = part.cast(pa.string()) if pa.types.is_boolean(part.type) else part
        total += len(part)
        if pa.types.is_string(part.type) or pa.types.is_large_string(part.type):
            lengths = pc.utf8_length(part)
            powers += _count_by_highest_bit(lengths)
            longest = max(longest, pc.max(lengths).as_py() or 0)
            is_countable = longest <= _MAX_VALUE_CHARACTERS and len(values) <= _MAX_DISTINCT_VALUES
            counted = pc.value_counts(part).to_pylist() if is_countable else []
            values.update({entry["values"]: entry["counts"] for entry in counted})
        elif pa.types.is_integer(part.type):
            powers += _count_by_highest_bit(part)
        else:
            numbers.append(part.cast(pa.float64()).to_numpy())
    if numbers and total:
        joined = np.concatenate(numbers)
        low, high = np.percentile(joined, [1, 99])
        counts, edges = np.histogram(joined.clip(low, high), _MAX_BARS)
        bins = zip(counts.tolist(), edges[:-1], edges[1:], strict=True)
        bars = [HistogramBar(n, f"{a:.3g}", f"from {a:.4g} to {b:.4g}") for n, a, b in bins]
        return Plot(f"{name}: {total:,} numbers", bars)
    if values and longest <= _MAX_VALUE_CHARACTERS and len(values) <= _MAX_DISTINCT_VALUES:
        bars = [HistogramBar(count, text, f"of {text}") for text, count in values.most_common(_MAX_BARS)]
        return Plot(f"{name}: {total:,} values, {len(values):,} different", bars)
    what = "lengths in characters" if longest else "numbers"
    return Plot(f"{name}: {total:,} {what}", length_bars({str(1 << k): int(n) for k, n in enumerate(powers)}, ""))


def _count_by_highest_bit(numbers: pa.ChunkedArray) -> NDArray[np.int64]:
    """Count integers by their highest bit, shape (64,); values below 1 count as 1."""
    # frexp gives x = m · 2**e with 0.5 <= m < 1, so 2**(e - 1) <= x < 2**e.
    _, exponents = np.frexp(np.maximum(numbers.to_numpy(), 1).astype(np.float64))
    return np.bincount(exponents - 1, minlength=64)


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table; escape the texts, and make control characters visible."""
    lines = ["".join(f"<th>{_escape(name)}</th>" for name in header)] if header else []
    lines += ["".join(f"<td>{_escape(value)}</td>" for value in row) for row in rows]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _escape(text: str) -> str:
    return html.escape(text.translate(VISIBLE_TABLE))

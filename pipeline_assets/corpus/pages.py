"""Pages for people: reports as HTML, with tables, shares and histograms, in light and dark, and nothing loaded from
elsewhere; and Markdown, with texts from elsewhere that can't leave their place.

Every text is escaped but what is `Html` already: a page of the web must not run in a report that quotes it.
"""

import html
import re
from collections.abc import Iterable, Sequence

from pipeline_assets.corpus.spine.visible import VISIBLE

_MARKS = re.compile(r"[\\`*\[\]<>#|~$&!]|(?<![^\W_])_|_(?![^\W_])")  # inside a word `_` is none
_ADDRESS = re.compile(r"://|www\.|@|mailto:|xmpp:", re.IGNORECASE)
_PIPE = re.compile(r"(\\*)\|")


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str | int]]) -> list[str]:
    """The lines of a table whose cells are Markdown already, or numbers, which are grouped; without rows, one that says
    so.
    """
    if not rows:
        return ["(none)"]
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    return ["| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *cells)]


def code(text: str) -> str:
    """Text as code, in a cell or outside."""
    return f"`{cell(text)}`"


def cell(text: str) -> str:
    """Text that can't leave its cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")


def plain(text: str) -> str:
    """Text on one line, in a cell or outside, of which nothing is a mark, so that nothing of it is fetched or clicked.

    One that holds what may be an address is shown as code: those who read GitHub's Markdown, such as the UI, make links
    of addresses after escapes are gone, but none of code.
    """
    line = " ".join(text.split()).translate(VISIBLE)
    if not _ADDRESS.search(line):
        return _MARKS.sub(r"\\\g<0>", line)
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if "`" in (line[0], line[-1]) else ""
    # A pipe ends a cell in code too, unless it is escaped; before it a backslash is one only if it is escaped itself.
    return fence + pad + _PIPE.sub(r"\1\1\\|", line) + pad + fence


REPORT_JSON, REPORT_HTML = "report.json", "report.html"
_STYLE = """
:root { color-scheme: light dark; --page: #fff; --text: #1c2333; --faint: #5a6275; --line: #e4e7ee; --code: #f5f6fa;
--bar: #4f5bd5; --alarm: #b3261e }
@media (prefers-color-scheme: dark) { :root { --page: #14171f; --text: #e3e6ee; --faint: #9aa3b8; --line: #2c3242;
--code: #1d212d; --bar: #7f8af0; --alarm: #ff8a80 } }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: var(--text);
background: var(--page) }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
summary h2 { display: inline-block; margin: .6rem 0 }
table { border-collapse: collapse; margin: .6rem 0 } td, th { padding: .2rem .8rem .2rem 0; text-align: left;
vertical-align: top; border-bottom: 1px solid var(--line) } td.number, th.number { text-align: right;
font-variant-numeric: tabular-nums } figure { display: inline-block; margin: .4rem 2rem .6rem 0; vertical-align: top }
.track { display: inline-block; width: 160px; margin-left: .6rem; text-align: left }
.share { display: inline-block; height: .6rem; background: var(--bar) } .bar { fill: var(--bar) }
.shades { font-size: 13px; white-space: nowrap } .shades td, .shades th { padding: .2rem .4rem }
.shade { display: block; margin: -.2rem -.4rem; padding: .2rem .4rem;
background: color-mix(in srgb, var(--bar) calc(var(--of) * 60%), transparent) }
svg text { font-size: 11px; fill: var(--faint) }
pre { white-space: pre-wrap; background: var(--code); padding: .5rem; margin: 0; max-height: 8rem; overflow: auto }
.examples { table-layout: fixed; width: 100% } .examples th:last-child { width: 45% }
td, pre { overflow-wrap: anywhere } figure { max-width: 100%; overflow-x: auto }
.unknown { color: var(--alarm); font-weight: 600 } .note { color: var(--faint) }
"""
_BAR_WIDTH, _PLOT_HEIGHT, _LABEL_HEIGHT = 34, 120, 30
_CELL_WIDTH, _CELL_HEIGHT = 110, 16


class Html(str):
    """What is HTML already."""


Cells = Sequence[str | int]
"""A line of a table: texts, which are escaped, numbers, which are grouped, and `Html`."""


def page(title: str, parts: Iterable[str]) -> str:
    """The whole page, of parts that are HTML."""
    head = f"<meta charset='utf-8'><title>{escaped(title)}</title><style>{_STYLE}</style>"
    body = f"<h1>{escaped(title)}</h1>{''.join(parts)}"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{body}</body></html>\n"


def table(head: Sequence[str], rows: Sequence[Cells], numbers_from: int = 1, kind: str = "") -> str:
    """Lines below a head; cells from the column `numbers_from` on are set as numbers."""

    def line(cells: Cells, tag: str) -> str:
        kinds = ("" if place < numbers_from else " class='number'" for place in range(len(cells)))
        return "".join(f"<{tag}{kind}>{_cell(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table{kind}><tr>{line(head, 'th')}</tr>{body}</table>"


def shades(head: Sequence[str], rows: Sequence[tuple[str, int, Sequence[int]]]) -> str:
    """Counts as a table; the stronger their shade, the larger their share of the whole of their line.

    Args:
        rows: name, whole and counts of each.
    """
    lines = [[name, *(_shade(count, whole) for count in counts)] for name, whole, counts in rows]
    return table(head, lines, kind=" class='shades'")


def _shade(count: int, whole: int) -> str:
    return Html(f"<span class='shade' style='--of:{count / whole:.3f}'>{count:,}</span>") if count else ""


def histogram(title: str, lengths: Sequence[int], things: str) -> str:
    """Things by length in tokens as bars: bin k holds 2**k <= tokens < 2**(k + 1)."""
    filled = [number for number, count in enumerate(lengths) if count]
    if not filled:
        return ""
    bars = [
        (count, _short(2**number), f"{count:,} {things} of {2**number:,} to {2 ** (number + 1) - 1:,} tokens")
        for number, count in enumerate(lengths)
        if filled[0] <= number <= filled[-1]
    ]
    return figure(f"{title}: {sum(lengths):,} {things}", plot(bars))


def plot(bars: Sequence[tuple[int, str, str]]) -> str:
    """Counts as bars.

    Args:
        bars: count, label below the bar, and what is said where the bar is pointed at.
    """
    highest = max(count for count, _, _ in bars)
    shown = []
    for place, (count, label, said) in enumerate(bars):
        height = round(_PLOT_HEIGHT * count / highest, 1)
        x, y = place * _BAR_WIDTH, _PLOT_HEIGHT - height + 14
        said = f"<title>{escaped(said)}</title>"
        shown.append(f"<rect class='bar' x='{x}' y='{y}' width='{_BAR_WIDTH - 4}' height='{height}'>{said}</rect>")
        shown.append(f"<text x='{x}' y='{_PLOT_HEIGHT + _LABEL_HEIGHT}'>{escaped(label)}</text>")
    size = f"width='{len(bars) * _BAR_WIDTH}' height='{_PLOT_HEIGHT + _LABEL_HEIGHT + 6}'"
    return f"<svg {size} role='img'>{''.join(shown)}</svg>"


def small_plot(counts: Sequence[int]) -> Html:
    """Plot counts as bars in a table cell; all such plots have the same width."""
    heights = [round(_CELL_HEIGHT * count / max(counts), 1) for count in counts]
    shown = (
        f"<rect class='bar' x='{place}' y='{_CELL_HEIGHT - height:.1f}' width='.85' height='{height}'/>"
        for place, height in enumerate(heights)
    )
    box = f"viewBox='0 0 {len(counts)} {_CELL_HEIGHT}' preserveAspectRatio='none'"
    return Html(f"<svg width='{_CELL_WIDTH}' height='{_CELL_HEIGHT}' {box} role='img'>{''.join(shown)}</svg>")


def figure(caption: str, shown: str) -> str:
    """Return HTML below its caption, next to other figures if the page is wide enough."""
    return f"<figure><figcaption class='note'>{escaped(caption)}</figcaption>{shown}</figure>"


def _short(number: int) -> str:
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "k")):
        if number >= unit:
            return f"{number // unit}{name}"
    return str(number)


def _cell(value: str | int) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return value if isinstance(value, Html) else escaped(value)


def escaped(text: str) -> str:
    """Escape a text for HTML."""
    return html.escape(text)


def pre(text: str) -> Html:
    """Return text with its line breaks, in a box."""
    return Html(f"<pre>{escaped(text)}</pre>")


def share(share: float) -> Html:
    """Format a share in [0, 1] as percent, with a bar of that length."""
    bar = f"<span class='track'><span class='share' style='width:{100 * share:.1f}%'></span></span>"
    return Html(f"{100 * share:.1f} %{bar}")

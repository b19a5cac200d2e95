"""What candidate pools hold, as one HTML page and as the UI shows it first."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from pipeline_assets.corpus.html_page import REPORT_JSON, Cells, escaped, figure, histogram, page, shades, share, table
from pipeline_assets.corpus.nemotron.pools_recipe import no_row_has_all
from pipeline_assets.corpus.profile import LENGTH_BINS
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.files import REBUILD, OwnFile
from pipeline_assets.corpus.spine.ledger import Ledger

CORRECTNESS = ("0", "(0, 0.25]", "(0.25, 0.5]", "(0.5, 0.75]", "(0.75, 1)", "1", "null")
_UP_TO = (0, 0.25, 0.5, 0.75, float(np.nextafter(1, 0)))


def correctness_range(share: float | None) -> str:
    """The range of `CORRECTNESS` that a share of right attempts is in."""
    return "null" if share is None else CORRECTNESS[bisect_left(_UP_TO, share)]


def length_range(tokens: int | None) -> str:
    """The largest power of two that the tokens of a row reach, `1` for those without."""
    return str(1 << max((tokens or 0).bit_length() - 1, 0))


class Pool(msgspec.Struct, frozen=True):
    """What a pool holds.

    Attributes:
        rows, tokens, completion_tokens: in all.
        lengths: rows by the largest power of two that their tokens reach, `1` for those without.
        correctness: rows by the ranges of `CORRECTNESS`.
        domains: rows of each.
        shared: rows that are in another pool too, by its name.
    """

    rows: int
    tokens: int
    completion_tokens: int
    lengths: dict[str, int]
    correctness: dict[str, int]
    domains: dict[str, int]
    shared: dict[str, int]

    def bins(self) -> list[int]:
        """Rows by length, bin k holding 2**k <= tokens < 2**(k + 1)."""
        return [self.lengths.get(str(1 << number), 0) for number in range(LENGTH_BINS)]


class Pools(msgspec.Struct, frozen=True):
    """The pools of a dataset, or of all.

    Attributes:
        rows, tokens, completion_tokens: of rows that are in some pool, each counted once.
        ledger: what became of the rows that pools are chosen from.
        left_out, empty: why pools have no rows of a dataset, as the manifest of its pools has it.
    """

    rows: int
    tokens: int
    completion_tokens: int
    ledger: Ledger
    pools: dict[str, Pool]
    left_out: dict[str, str] = {}
    empty: dict[str, dict[str, int]] = {}


class PoolReport(msgspec.Struct, frozen=True):
    """What `report.json` says."""

    schema: str
    total: Pools
    datasets: dict[str, Pools]


_BARS = "▁▂▃▄▅▆▇█"
_REPORT_FILE = OwnFile("report", 256 << 20, REBUILD, PoolReport)


def page_of(report: PoolReport) -> str:
    """The page: of all datasets, then of each."""
    sections = {"All datasets": report.total, **report.datasets} if len(report.datasets) > 1 else report.datasets
    empty = [(name, pool, why) for name, of in report.datasets.items() for pool, why in _without_rows(of)]
    parts = [
        _datasets(report),
        *(_pools(name, of, is_open=number == 0) for number, (name, of) in enumerate(sections.items())),
        "<h2>Pools without rows</h2>" + table(["dataset", "pool", "why"], empty, numbers_from=3) if empty else "",
    ]
    return page("Candidate pools", parts)


def _datasets(report: PoolReport) -> str:
    """What became of the rows of each dataset, and of all."""
    reasons = sorted(report.total.ledger.dropped)
    head = ["dataset", "rows", *(reason.replace("_", " ") for reason in reasons)]
    rows: list[Cells] = []
    for name, of in [*report.datasets.items(), ("all", report.total)]:
        gone = (of.ledger.dropped.get(reason, 0) for reason in reasons)
        rows.append([name, of.ledger.rows_in, *gone, of.rows, of.tokens, of.completion_tokens])
    return table([*head, "in some pool", "tokens", "completion tokens"], rows)


def _without_rows(of: Pools) -> Iterator[tuple[str, str]]:
    """(pool, why) of those that have none."""
    yield from ((pool, f"left out: {why}") for pool, why in of.left_out.items())
    yield from ((pool, no_row_has_all(conditions)) for pool, conditions in of.empty.items())


def _pools(title: str, of: Pools, is_open: bool) -> str:
    """Sizes, what pools share, and what their rows are."""
    pools = {f"{number}. {name}": pool for number, (name, pool) in enumerate(of.pools.items(), 1)}
    sizes: list[Cells] = [
        [name, pool.rows, pool.tokens, pool.completion_tokens, share(pool.rows / of.rows)]
        for name, pool in pools.items()
    ]
    head = ["pool", "rows", "tokens", "completion tokens", "share of the rows in some pool"]
    lengths = (histogram(name, pool.bins(), "rows") for name, pool in pools.items())
    note = "<p class='note'>Rows by tokens, from the length under each bar on.</p>"
    inside = "".join([table(head, sizes), *_shaded(pools, list(of.pools)), note, *lengths])
    shown = inside if pools else "<p class='note'>No pool has rows.</p>"
    return f"<details{' open' if is_open else ''}><summary><h2>{escaped(title)}</h2></summary>{shown}</details>"


def _shaded(pools: Mapping[str, Pool], names: Sequence[str]) -> Iterator[str]:
    """Tables with a line for each pool, by its numbered name."""
    domains = sorted({domain for pool in pools.values() for domain in pool.domains})
    numbers = [number.partition(" ")[0] for number in pools]
    for caption, head, columns, part in (
        ("Rows in both pools; a stronger shade is a larger share of the pool on the left", numbers, names, "shared"),
        ("Rows by correctness", CORRECTNESS, CORRECTNESS, "correctness"),
        ("Rows by domain", domains, domains, "domains"),
    ):
        lines = [
            (name, pool.rows, [getattr(pool, part).get(column, 0) for column in columns])
            for name, pool in pools.items()
        ]
        yield figure(caption, shades(["pool", *head], lines))


def preview_pools(report: Artifact) -> list[dict[str, str]]:
    """A line for each pool of all datasets: sizes, rows by length and by correctness as bars, what it shares most."""
    pools = _REPORT_FILE.read(report.path(REPORT_JSON)).total.pools
    return [
        {
            "pool": name,
            "rows": f"{pool.rows:,}",
            "tokens": f"{pool.tokens:,}",
            "completion tokens": f"{pool.completion_tokens:,}",
            "rows by tokens": _lengths(pool.bins()),
            "by correctness": text_bars([pool.correctness.get(one, 0) for one in CORRECTNESS]),
            "shares most with": max(pool.shared, key=pool.shared.__getitem__, default=""),
        }
        for name, pool in pools.items()
    ]


def _lengths(lengths: Sequence[int]) -> str:
    """Bars between the shortest length and the longest."""
    filled = [number for number, count in enumerate(lengths) if count]
    first, last = filled[0], filled[-1]
    return f"{1 << first:,} {text_bars(lengths[first : last + 1])} {1 << last:,}"


def text_bars(counts: Sequence[int]) -> str:
    """Counts as characters; the lowest is nothing, and nothing else."""
    return "".join(_BARS[-(-7 * count // max(counts))] for count in counts)

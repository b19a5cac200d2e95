"""The report on candidate pools: how large they are, which rows they share, and what these are.

Files: `report.json`, the numbers; `report.html`, the same as one page with plots. A file of a pool has rows of one
split and one hash of their ids, so that files of one name, a bucket, have all that pools share of their rows.
"""

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.parquet import mask, read_columns
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.nemotron.pool_coverage import describe_gap
from pipeline_assets.corpus.nemotron.pools import purpose_of
from pipeline_assets.corpus.nemotron.row_census import add
from pipeline_assets.corpus.nemotron.schema import no_row_has_all
from pipeline_assets.corpus.pages import (
    REPORT_HTML,
    REPORT_JSON,
    Cells,
    escaped,
    figure,
    histogram,
    page,
    shades,
    share,
    table,
)
from pipeline_assets.corpus.profile import LENGTH_BINS
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.files import REBUILD, OwnFile
from pipeline_assets.corpus.spine.ledger import Ledger
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import Window

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
        correctness_gap: rows of a dataset that have a correctness and are in no pool, see `CorrectnessGap`.
    """

    rows: int
    tokens: int
    completion_tokens: int
    ledger: Ledger
    pools: dict[str, Pool]
    left_out: dict[str, str] = {}
    empty: dict[str, dict[str, int]] = {}
    correctness_gap: dict[str, Any] = {}


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
    gaps = [(name, describe_gap(of.correctness_gap)) for name, of in report.datasets.items() if of.correctness_gap]
    empty = [(name, pool, why) for name, of in report.datasets.items() for pool, why in _without_rows(of)]
    parts = [
        _datasets(report),
        *(_pools(name, of, is_open=number == 0) for number, (name, of) in enumerate(sections.items())),
        "<h2>Pools without rows</h2>" + table(["dataset", "pool", "why"], empty, numbers_from=3) if empty else "",
        "<h2>Rows of known correctness in no pool</h2>" + table(["dataset", "rows"], gaps, numbers_from=2)
        if gaps
        else "",
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


POOL_REPORT_STAGE = StageVersion("nemotron_pool_report", 2)
_COLUMNS = ["id", "stats_tokens", "stats_completion_tokens", "meta_correctness", "meta_domain"]
_SIZES = ("rows", "tokens", "completion_tokens")
_ORDER: Mapping[str, Callable[[str], Any]] = {
    "lengths": int,
    "correctness": CORRECTNESS.index,
    "domains": str,
    "shared": str,
}


@dataclass(frozen=True)
class _Bucket:
    """Files that have the rows of one bucket of a dataset, by pool."""

    name: str
    dataset: str
    files: Mapping[str, Path]
    rows: int = 0  # it is read whole


def report_on_pools(building: StagingDir, datasets: Mapping[str, Artifact], settings: RunSettings) -> BuildResult:
    """Both files, in the building folder.

    Args:
        datasets: their pools, by name.
    """
    buckets = list(_buckets(datasets))
    sizes = [file.bytes for pools in datasets.values() for file in pools.manifest.storage]
    receipts = run_stage("count", count_bucket, buckets, building, settings_for(building, settings, sizes))
    found: dict[str, dict[str, Any]] = {
        name: {"ledger": pools.manifest.identity.ledger.to_json(), **dict.fromkeys(_SIZES, 0), "pools": {}}
        for name, pools in datasets.items()
    }
    for bucket, receipt in zip(buckets, receipts, strict=True):
        add(found[bucket.dataset], receipt.notes)
    report = _report({name: {**found[name], **pools.manifest.identity.decisions} for name, pools in datasets.items()})
    as_json = json.dumps(msgspec.to_builtins(report), indent=1, ensure_ascii=False) + "\n"
    files = [write_text(building, REPORT_JSON, as_json), write_text(building, REPORT_HTML, page_of(report))]
    total = report.total
    counts = {"documents": total.rows, "tokens": total.tokens, "completion_tokens": total.completion_tokens}
    return BuildResult(files, {**counts, "pools": {name: pool.rows for name, pool in total.pools.items()}}, {})


def _report(datasets: Mapping[str, Mapping[str, Any]]) -> PoolReport:
    """What is said of each dataset, and of all."""
    total: dict[str, Any] = {}
    for said in datasets.values():
        add(total, {name: said[name] for name in (*_SIZES, "ledger", "pools")})
    ordered = {name: _in_order(said) for name, said in datasets.items()}
    return msgspec.convert(
        {"schema": "corpusmill/pool_report/1", "total": _in_order(total), "datasets": ordered}, PoolReport
    )


def _buckets(datasets: Mapping[str, Artifact]) -> Iterator[_Bucket]:
    for dataset, pools in datasets.items():
        files: dict[str, dict[str, Path]] = {}
        for file in pools.manifest.identity.files:
            files.setdefault(Path(file.path).name, {})[purpose_of(file.path)] = pools.path(file.path)
        yield from (_Bucket(f"{dataset}.{name}", dataset, files[name]) for name in sorted(files))


def count_bucket(bucket: _Bucket, window: Window, folder: BuildFolder) -> Receipt:
    """What pools have in a bucket: a tally in the notes, shaped as `Pools` is."""
    seen: set[str] = set()
    members: dict[str, set[str]] = {}
    once: Counter[str] = Counter()
    pools: dict[str, dict[str, Any]] = {}
    for pool, path in bucket.files.items():
        rows = read_columns(path, _COLUMNS)
        ids: list[str] = rows["id"].to_pylist()
        once.update(_sizes(rows.filter(mask(np.array([one not in seen for one in ids])))))
        pools[pool], members[pool] = {**_sizes(rows), **_spread(rows)}, set(ids)
        seen |= members[pool]
    for pool, own in members.items():
        shared = {other: len(own & theirs) for other, theirs in members.items() if other != pool}
        pools[pool]["shared"] = {other: count for other, count in shared.items() if count}
    return Receipt([], {"documents": once["rows"], "tokens": once["tokens"]}, {**once, "pools": pools})


def _sizes(rows: pa.Table) -> dict[str, int]:
    sums = {name: sum(filter(None, rows[f"stats_{name}"].to_pylist())) for name in _SIZES[1:]}
    return {"rows": rows.num_rows, **sums}


def _spread(rows: pa.Table) -> dict[str, Mapping[str, int]]:
    """Rows by length, by correctness and by domain."""
    tokens, shares, domains = (rows[name].to_pylist() for name in ("stats_tokens", "meta_correctness", "meta_domain"))
    return {
        "lengths": Counter(map(length_range, tokens)),
        "correctness": Counter(map(correctness_range, shares)),
        "domains": Counter(domain or UNKNOWN for domain in domains),
    }


def _in_order(tally: Mapping[str, Any]) -> dict[str, Any]:
    """A tally whose names are in the order that `_ORDER` has for each part: receipts don't keep theirs."""

    def ordered(of: Mapping[str, Any]) -> dict[str, Any]:
        return {
            **of,
            **{part: {name: of[part][name] for name in sorted(of[part], key=_ORDER[part])} for part in _ORDER},
        }

    return {**tally, "pools": {pool: ordered(tally["pools"][pool]) for pool in sorted(tally["pools"])}}

"""Report on candidate pools: their sizes, shared rows and contents.

The files are `report.json`, and `report.html`, the same report as a page with plots. Pools are divided into buckets by
a hash of the row's id, so all copies of a row that several pools share are in one bucket.
"""

import functools
import importlib
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.arrow_columns import bool_column
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.pools import pool_from_path
from pipeline_assets.corpus.nemotron.row_census import add_tally
from pipeline_assets.corpus.pages import REPORT_JSON, write_page, write_report
from pipeline_assets.corpus.plots import length_bars, sparkline, text_plot
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView
from pipeline_assets.spine.task import Task, run_task
from pipeline_assets.spine.typed_values import convert

CORRECTNESS_RANGES = ("0", "(0, 0.25]", "(0.25, 0.5]", "(0.5, 0.75]", "(0.75, 1)", "1", "null")
_CORRECTNESS_UPPER_BOUNDS = (0, 0.25, 0.5, 0.75, float(np.nextafter(1, 0)))


def correctness_range(correctness: float | None) -> str:
    """Return the entry of `CORRECTNESS_RANGES` for a correctness value, or `null`."""
    return "null" if correctness is None else CORRECTNESS_RANGES[bisect_left(_CORRECTNESS_UPPER_BOUNDS, correctness)]


def length_range(tokens: int | None) -> str:
    """Return the largest power of two up to `tokens`, as text; `1` for 0 or None."""
    return str(1 << max((tokens or 0).bit_length() - 1, 0))


class PoolSummary(msgspec.Struct, frozen=True):
    """Sizes of a pool, and its row counts by several properties."""

    rows: int
    tokens: int
    completion_tokens: int
    lengths: dict[str, int]  # by `length_range` of their tokens
    correctness: dict[str, int]  # by range of `CORRECTNESS_RANGES`
    domains: dict[str, int]
    checks: dict[str, int]  # by failed check, see `CHECKS`
    shared: dict[str, int]  # by each other pool that also has the row


class PoolSetSummary(msgspec.Struct, frozen=True):
    """Summary of the pools of one dataset, or of all datasets.

    The summary of all datasets has none of the last four fields.
    """

    rows: int  # in at least one pool; a row in several pools is counted once, and so are its tokens
    tokens: int
    completion_tokens: int
    ledger: Ledger  # of the deduplicated rows from which the pools are selected
    pools: dict[str, PoolSummary]
    left_out: dict[str, str] = {}  # reasons of empty pools whose conditions use only columns without a value
    empty: dict[str, dict[str, int]] = {}  # of other empty pools: rows that meet each condition
    correctness_gap: dict[str, Any] = {}  # rows in no pool with known correctness: count, range and examples
    quotas: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET  # candidates and rows, in total and by stratum


class PoolReport(msgspec.Struct, frozen=True):
    """Contents of `report.json`."""

    schema: str
    total: PoolSetSummary
    datasets: dict[str, PoolSetSummary]


_REPORT_FORMAT = MetadataFormat("report", 256 << 20, REBUILD, PoolReport)


def preview_pools(report: Artifact) -> list[dict[str, str]]:
    """Return a table row for each pool, with sizes, bars and its largest overlap."""
    pools = _REPORT_FORMAT.read(report.path(REPORT_JSON)).total.pools
    return [
        {
            "pool": name,
            "rows": f"{pool.rows:,}",
            "tokens": f"{pool.tokens:,}",
            "completion tokens": f"{pool.completion_tokens:,}",
            "rows by tokens": text_plot(length_bars(pool.lengths)),
            "by correctness": sparkline([pool.correctness.get(name, 0) for name in CORRECTNESS_RANGES]),
            "shares most with": max(pool.shared, key=pool.shared.__getitem__, default=""),
        }
        for name, pool in pools.items()
    ]


POOL_REPORT_STAGE = StageVersion("nemotron_pool_report", 4)
_COLUMNS = ["id", "stats_tokens", "stats_completion_tokens", "meta_correctness", "meta_domain", "meta_tags"]
_SIZES = ("rows", "tokens", "completion_tokens")
# Sort keys of names in parts of a pool; other names are sorted as text.
_SORT_KEYS: Mapping[str, Callable[[str], Any]] = {"lengths": int, "correctness": CORRECTNESS_RANGES.index}


def report_on_pools(staging: StagingDir, datasets: Mapping[str, Artifact], settings: RunSettings) -> BuildResult:
    """Write `report.json`, from which the build later writes `report.html`."""
    buckets = list(_list_buckets(datasets))
    sizes = [file.bytes for pools in datasets.values() for file in pools.manifest.storage]
    tasks = [Task(f"{dataset}.{name}", 0, functools.partial(count_bucket, files)) for dataset, name, files in buckets]
    warm_up = functools.partial(importlib.import_module, __name__)
    receipts = run_stage("count", run_task, tasks, staging, limit_workers(staging, settings, sizes), warm_up)
    tallies: dict[str, dict[str, Any]] = {
        name: {"ledger": pools.manifest.identity.ledger.to_json(), **dict.fromkeys(_SIZES, 0), "pools": {}}
        for name, pools in datasets.items()
    }
    for (dataset, *_), receipt in zip(buckets, receipts, strict=True):
        add_tally(tallies[dataset], receipt.notes)
    sums: dict[str, Any] = {}
    for name, pools in datasets.items():
        add_tally(sums, tallies[name])
        tallies[name] = {**_sort_names(tallies[name]), **pools.manifest.identity.decisions}
    content = {"schema": "corpusmill/pool_report/1", "total": _sort_names(sums), "datasets": tallies}
    report = convert(content, PoolReport)
    total = report.total
    counts = {"documents": total.rows, "tokens": total.tokens, "completion_tokens": total.completion_tokens}
    by_pool = {"pools": {name: pool.rows for name, pool in total.pools.items()}}
    return BuildResult([write_report(staging, report)], counts | by_pool, {}, write_page=write_page)


def _list_buckets(datasets: Mapping[str, Artifact]) -> Iterator[tuple[str, str, dict[str, Path]]]:
    """Yield a (dataset, file name, paths by pool) triple for each bucket."""
    for dataset, pools in datasets.items():
        files: dict[str, dict[str, Path]] = {}
        for file in pools.manifest.identity.files:
            files.setdefault(Path(file.path).name, {})[pool_from_path(file.path)] = pools.path(file.path)
        yield from ((dataset, name, files[name]) for name in sorted(files))


def count_bucket(paths_by_pool: Mapping[str, Path], window: Window, folder: StagingView) -> Receipt:
    """Count a bucket's rows by pool; return the counts as notes of a receipt."""
    seen: set[str] = set()
    members: dict[str, set[str]] = {}
    distinct: Counter[str] = Counter()
    pools: dict[str, dict[str, Any]] = {}
    for pool, path in paths_by_pool.items():
        rows = read_columns(path, _COLUMNS)
        ids: list[str] = rows["id"].to_pylist()
        distinct.update(_sum_sizes(rows.filter(bool_column(np.array([row_id not in seen for row_id in ids])))))
        pools[pool], members[pool] = {**_sum_sizes(rows), **_count_distributions(rows)}, set(ids)
        seen |= members[pool]
    for pool, pool_ids in members.items():
        shared = {other: len(pool_ids & other_ids) for other, other_ids in members.items() if other != pool}
        pools[pool]["shared"] = {other: count for other, count in shared.items() if count}
    return Receipt([], {"documents": distinct["rows"], "tokens": distinct["tokens"]}, {**distinct, "pools": pools})


def _sum_sizes(rows: pa.Table) -> dict[str, int]:
    sums = {name: sum(filter(None, rows[f"stats_{name}"].to_pylist())) for name in _SIZES[1:]}
    return {"rows": rows.num_rows, **sums}


def _count_distributions(rows: pa.Table) -> dict[str, Mapping[str, int]]:
    tags = itertools.chain.from_iterable(filter(None, rows["meta_tags"].to_pylist()))
    tokens, shares, domains = (rows[name].to_pylist() for name in ("stats_tokens", "meta_correctness", "meta_domain"))
    return {
        "lengths": Counter(map(length_range, tokens)),
        "correctness": Counter(map(correctness_range, shares)),
        "domains": Counter(domain or UNKNOWN for domain in domains),
        "checks": Counter(tag.removeprefix("check:") for tag in filter(None, tags) if tag.startswith("check:")),
    }


def _sort_names(tally: Mapping[str, Any]) -> dict[str, Any]:
    """Sort the names in a tally by `_SORT_KEYS`; receipts do not preserve an order."""
    pools = {name: dict(pool) for name, pool in sorted(tally["pools"].items())}
    for pool in pools.values():
        for part in pool.keys() - {*_SIZES}:
            pool[part] = {name: pool[part][name] for name in sorted(pool[part], key=_SORT_KEYS.get(part, str))}
    return {**tally, "pools": pools}

"""The report on candidate pools: how large they are, which rows they share, and what these are.

Files: `report.json`, the numbers; `report.html`, the same as one page with plots. A file of a pool has rows of one
split and one hash of their ids, so that files of one name, a bucket, have all that pools share of their rows.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.parquet import mask, read_columns
from pipeline_assets.corpus.html_page import REPORT_HTML, REPORT_JSON
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.nemotron.pool_page import CORRECTNESS, PoolReport, correctness_range, length_range, page_of
from pipeline_assets.corpus.nemotron.pools import purpose_of
from pipeline_assets.corpus.nemotron.row_census import add
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage, settings_for
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt, StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.worker import Window

POOL_REPORT_STAGE = StageVersion("nemotron_pool_report", 1)
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
    """What pools have in a bucket: a tally in the notes, shaped as `Pools` is.

    Args:
        window: has no part in this: a bucket is read whole, a file after the other.
    """
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

"""Candidate pools: rows of a dataset that are worth scoring, by purpose.

    candidates_<purpose>/<split>-00000-of-0000N.parquet   rows of a pool, `schema.SCHEMA`
    README.md                                             card with a config for each pool; not part of the digest

A row with an accepted licence is in every pool whose conditions the row meets, unless a quota of the pool excludes the
row. A hash of the row's id selects the row's file, so removing a row changes few files. The rows of a file are sorted
by id, in one row group with content-defined chunks, so most bytes of a changed file are unchanged.
"""

import functools
import hashlib
import importlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import bool_column, string_column, to_arrow
from pipeline_assets.corpus.formats.parquet import ParquetOutput, StoredParquet, read_columns, read_footer
from pipeline_assets.corpus.licences import tag_or_unknown
from pipeline_assets.corpus.nemotron.pool_card import write_pool_card
from pipeline_assets.corpus.nemotron.pool_quotas import RankLimits, find_rank_limits, quota_mask
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe, condition_columns, condition_mask, pool_name_for
from pipeline_assets.corpus.nemotron.schema import SCHEMA, data_files, select_columns
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, stage_runner
from pipeline_assets.spine.ledger import Ledger, dropped_key
from pipeline_assets.spine.stage import Window, group_by_size
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingDir, StagingView, total_counts
from pipeline_assets.spine.task import Task, run_task

if TYPE_CHECKING:
    import polars as pl

POOL_PREFIX = "candidates_"
FILE_NUMBER = re.compile(r"-\d{5}(-of-\d{5})?(?=\.parquet$)")  # files that differ only in it are one split
_FLAGS_COLUMN = "chosen"  # pools of a row: U+0001 or U+0000 for each pool
_MAX_EXAMPLES = 20
_BUCKET_BYTES = 64 << 20  # maximum uncompressed size of the split's rows in one bucket, on average
_SPILL_BYTES = 16 << 20  # rows in memory, to be written bucket by bucket
# Only columns with few values use a dictionary: it precedes all pages and changes with every new value.
_DICTIONARY_COLUMNS = ["dataset", "subset", "split", "loss_mode", "loss_rule", "template"]
_DICTIONARY_COLUMNS += ["source_file", "source_revision"]
_DICTIONARY_COLUMNS += ["meta_domain", "meta_license", "meta_difficulty_bin", "meta_solved_bin", "quality_length"]
PARQUET_OPTIONS = {
    "use_content_defined_chunking": {"min_chunk_size": 64 << 10, "max_chunk_size": 256 << 10},
    "use_dictionary": _DICTIONARY_COLUMNS,
    "write_page_index": True,
}


def build_pools(
    staging: StagingDir, splits: Mapping[str, Artifact], recipe: PoolsRecipe, settings: RunSettings
) -> BuildResult:
    """Build the pools of a dataset; `splits` maps each split to its deduplicated rows."""
    files = [(split, rows.path(path)) for split, rows in splits.items() for path in data_files(rows)]
    pools = [*recipe.rules, *(_capability_pools([file for _, file in files]) if recipe.by_capability else ())]
    settings = limit_workers(staging, settings, [file.stat().st_size for _, file in files])
    # The warm-up must not call polars: workers are forked from its process, and would lack the threads of polars.
    run = stage_runner(run_task, settings, functools.partial(importlib.import_module, __name__))
    bucket_counts = {split: _choose_bucket_count(rows) for split, rows in splits.items()}
    tasks = [
        Task(f"{number:05d}", 0, functools.partial(spill_rows, split, file, bucket_counts[split], pools, recipe))
        for number, (split, file) in enumerate(files)
    ]
    receipts = list(run("spill", tasks, staging))
    spilled: dict[str, list[Path]] = {split: [] for split in splits}
    for (split, _), receipt in zip(files, receipts, strict=True):
        spilled[split] += [staging.path(file.path) for file in receipt.files]
    counts, gap = Counter(total_counts(receipts)), _merge_correctness_gaps(receipt.notes for receipt in receipts)
    limits, quotas = find_rank_limits(spilled, pools, recipe, _FLAGS_COLUMN)
    write = functools.partial(write_pools, pools=pools, recipe=recipe, limits=limits)
    tasks = [
        Task(f"{split}-{bucket:05d}", 0, functools.partial(write, split, bucket, bucket_counts[split], paths))
        for split, paths in spilled.items()
        for bucket in range(bucket_counts[split] if paths else 0)
    ]
    receipts = list(run("pools", tasks, staging))
    written = sorted((file for receipt in receipts for file in receipt.files), key=lambda file: file.path)
    counts.update(total_counts(receipts))
    counts.update(documents=-counts[dropped_key("over_quota")], tokens=-counts["lost_tokens"])
    rows: Counter[str] = Counter()
    for file in written:
        rows[pool_from_path(file.path)] += file.rows
    empty = {name: _explain_empty(name, recipe, counts) for name in recipe.rules if not rows[name]}
    return BuildResult(
        files=written,
        counts={
            "ledger": Ledger.from_counts(+counts).to_json(),
            "documents": counts["documents"],
            "tokens": counts["tokens"],
            "pools": dict(sorted(rows.items())),
        },
        decisions={
            "left_out": {name: why for name, why in empty.items() if isinstance(why, str)},
            "empty": {name: why for name, why in empty.items() if not isinstance(why, str)},
            **({"correctness_gap": gap} if gap else {}),
            **({"quotas": quotas} if quotas else {}),
        },
        write_page=functools.partial(write_pool_card, files=written),
    )


def pool_from_path(path: str) -> str:
    """Return the name of the pool that a file belongs to, without `candidates_`."""
    return path.partition("/")[0].removeprefix(POOL_PREFIX)


def source_split(path: str) -> str:
    """Return the split of a pool's file: its name without its number and `.parquet`."""
    return FILE_NUMBER.sub("", path.rpartition("/")[2]).removesuffix(".parquet")


def _choose_bucket_count(rows: Artifact) -> int:
    """Choose a split's number of buckets: a power of two, so that it rarely changes."""
    footers = (read_footer(rows.path(path)) for path in data_files(rows))
    uncompressed: int = sum(
        footer.row_group(group).total_byte_size for footer in footers for group in range(footer.num_row_groups)
    )
    return 1 << (uncompressed // _BUCKET_BYTES).bit_length()  # the first power of two above the quotient


def _explain_empty(pool: str, recipe: PoolsRecipe, counts: Mapping[str, int]) -> str | dict[str, int]:
    """Explain an empty pool by a message, or by the number of rows per condition.

    The result is a message if all columns of the pool's conditions are null in all rows with an accepted licence.
    """
    columns = condition_columns(recipe.rules[pool])
    if not any(counts.get(f"said/{column}", 0) for column in columns):
        return f"no row says anything in {', '.join(columns)}"
    return {condition: counts.get(f"holds/{condition}", 0) for condition in recipe.rules[pool]}


def _capability_pools(files: Sequence[Path]) -> list[str]:
    """Return the sorted names of the pools for capabilities that occur in the files."""
    targets: set[str | None] = set()
    for file in files:
        targets.update(read_columns(file, ["meta_capability_target"])["meta_capability_target"].unique().to_pylist())
    return sorted({pool_name_for(target) for target in targets if target is not None})


def spill_rows(
    split: str, file: Path, buckets: int, pools: Sequence[str], recipe: PoolsRecipe, window: Window, folder: StagingView
) -> Receipt:
    """Write the rows that are in any pool to work files, one row group per bucket.

    The receipt counts all rows as `rows`, rows in no pool as `dropped/<reason>`, and rows in any pool as `documents`,
    with their tokens as `tokens`. Two counts cover only rows with an accepted licence: `holds/<condition>` is the
    number of rows that meet a condition, and `said/<column>` is the number of rows with a value in a column. The notes
    describe rows with an accepted licence and a known correctness that are in no pool.
    """
    files, counts, gaps = list[OutputFile](), Counter[str](), list[dict[str, Any]]()
    chosen = _read_pool_rows(split, file, pools, recipe, counts, gaps)
    for tables in group_by_size(chosen, lambda table: int(table.nbytes), _SPILL_BYTES):
        table = pa.concat_tables(tables)
        numbers = _bucket_numbers(table["id"].to_pylist(), buckets)
        table = table.take(to_arrow(np.argsort(numbers, kind="stable")))
        name, sizes = f"{WORK_FOLDER}/spilled/{file.stem}-{len(files):05d}", np.bincount(numbers, minlength=buckets)
        with ParquetOutput(folder.path(name), table.schema, table.num_rows, use_dictionary=False) as output:
            for end, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
                output.write(table.slice(end - size, size))
        files.append(output.output(name))
    return Receipt(files, counts, _merge_correctness_gaps(gaps))


def _read_pool_rows(
    split: str, path: Path, pools: Sequence[str], recipe: PoolsRecipe, counts: Counter[str], gaps: list[dict[str, Any]]
) -> Iterator[pa.Table]:
    """Yield a table of the rows that are in a pool, for each row group of a file.

    The added column `_FLAGS_COLUMN` has a character for each of `pools`: U+0001 if the row is in the pool, else U+0000.
    All rows are counted in `counts`; for each row group, the result of `_describe_correctness_gap` is added to `gaps`.
    """
    import polars as pl

    own_columns = ("id", "meta_license", "meta_capability_target", "meta_correctness", "stats_tokens")
    columns = sorted({*recipe.columns, *own_columns})
    with StoredParquet(path) as file:
        for table in map(select_columns, file.iter_row_groups()):
            frame = pl.DataFrame(pl.from_arrow(table.select(columns)))
            licences = map(tag_or_unknown, frame["meta_license"].to_list())
            is_accepted = np.array([licence not in recipe.refuse_licences for licence in licences], bool)
            chosen = _find_memberships(frame, pools, recipe, is_accepted, counts)
            is_in_any = np.asarray(chosen.any(axis=1))
            is_known = frame["meta_correctness"].is_not_null().to_numpy()
            gaps.append(_describe_correctness_gap(split, frame.filter(is_known & is_accepted & ~is_in_any)))
            if is_in_any.any():
                flags = string_column([row.tobytes() for row in chosen])
                yield table.append_column(_FLAGS_COLUMN, flags).filter(bool_column(is_in_any))


def _find_memberships(
    frame: "pl.DataFrame",
    pools: Sequence[str],
    recipe: PoolsRecipe,
    is_accepted: NDArray[np.bool_],
    counts: Counter[str],
) -> NDArray[np.bool_]:
    """Return a mask, shape (rows, pools), that is true where a row is in a pool.

    `is_accepted` marks rows with an accepted licence. The counts that `spill_rows` explains are added to `counts`.
    """
    holds = {name: condition_mask(frame, name) for conditions in recipe.rules.values() for name in conditions}
    targets = [None if name is None else pool_name_for(name) for name in frame["meta_capability_target"].to_list()]
    chosen = np.zeros((frame.height, len(pools)), bool)
    for number, pool in enumerate(pools):
        if (conditions := recipe.rules.get(pool)) is None:
            chosen[:, number] = [target == pool for target in targets]
        else:
            chosen[:, number] = np.logical_and.reduce([holds[name] for name in conditions])
    counts[dropped_key("in_no_pool")] += int((is_accepted & ~chosen.any(axis=1)).sum())
    counts[dropped_key("refused_licence")] += int((~is_accepted).sum())
    chosen &= is_accepted[:, None]
    counts.update({f"holds/{name}": int((rows & is_accepted).sum()) for name, rows in holds.items()})
    present = {column: frame[column].is_not_null().to_numpy() & is_accepted for column in recipe.columns}
    counts.update({f"said/{column}": int(rows.sum()) for column, rows in present.items()})
    is_in_any = chosen.any(axis=1)
    tokens = int(frame["stats_tokens"].to_numpy()[is_in_any].sum())
    counts.update(rows=frame.height, documents=int(is_in_any.sum()), tokens=tokens)
    return chosen


def _describe_correctness_gap(split: str, rows: "pl.DataFrame") -> dict[str, Any]:
    """Summarize rows that have a correctness value but no pool; {} if there are none."""
    if not rows.height:
        return {}
    shares, examples = rows["meta_correctness"], [f"{split}/{row_id:.80}" for row_id in rows["id"][:_MAX_EXAMPLES]]
    bounds = {"lowest": repr(shares.min()), "highest": repr(shares.max())}
    return {"rows": rows.height, **bounds, "examples": examples}


def _merge_correctness_gaps(gaps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge results of `_describe_correctness_gap`, in order; empty if all are empty."""
    nonempty = [gap for gap in gaps if gap]
    if not nonempty:
        return {}
    return {
        "rows": sum(gap["rows"] for gap in nonempty),
        "lowest": min((gap["lowest"] for gap in nonempty), key=float),
        "highest": max((gap["highest"] for gap in nonempty), key=float),
        "examples": [name for gap in nonempty for name in gap["examples"]][:_MAX_EXAMPLES],
    }


def _bucket_numbers(ids: Sequence[str], bucket_count: int) -> NDArray[np.int64]:
    """Return each id's bucket: the first 8 bytes of its sha256, modulo `bucket_count`."""
    # Eight bytes each, read as big-endian integers; the modulo is exact because they are unsigned.
    heads = b"".join(hashlib.sha256(row_id.encode()).digest()[:8] for row_id in ids)
    return (np.frombuffer(heads, ">u8") % np.uint64(bucket_count)).astype(np.int64)


def write_pools(
    split: str,
    bucket: int,
    bucket_count: int,
    paths: Sequence[Path],
    window: Window,
    folder: StagingView,
    *,
    pools: Sequence[str],
    recipe: PoolsRecipe,
    limits: RankLimits,
) -> Receipt:
    """Write the rows of a bucket, sorted by id, to one file per pool.

    A pool without rows in the bucket gets no file. `paths` are work files of `spill_rows`; `pools` are in the order of
    their flags in `_FLAGS_COLUMN`. Rows that are in no pool because of quotas count as `dropped/over_quota`, and their
    tokens as `lost_tokens`. `lost_tokens` must not be renamed: receipts of unfinished builds already have this name.
    """
    tables = list[pa.Table]()
    for path in paths:
        with StoredParquet(path) as file:
            tables.append(file.read_row_group(bucket))
    table = pa.concat_tables(tables)
    order = np.argsort(np.array(table["id"].to_pylist(), dtype=object), kind="stable")
    # U+0000 and U+0001 are one byte each in UTF-8: the joined flags are a matrix of bools, shape (rows, pools).
    flags = "".join(table[_FLAGS_COLUMN].to_pylist()).encode()
    chosen = np.frombuffer(flags, bool).reshape(len(order), len(pools))[order]
    table = table.drop_columns([_FLAGS_COLUMN]).take(to_arrow(order))
    selected = np.stack([quota_mask(table, split, pool, recipe, limits) for pool in pools], axis=1)
    over_quota = np.asarray(chosen.any(axis=1) & ~(chosen & selected).any(axis=1))
    chosen = chosen & selected
    files: list[OutputFile] = []
    for number, pool in enumerate(pools):
        rows = np.flatnonzero(chosen[:, number])
        if len(rows):
            name = f"{POOL_PREFIX}{pool}/{split}-{bucket:05d}-of-{bucket_count:05d}.parquet"
            with ParquetOutput(folder.path(name), SCHEMA, len(rows), **PARQUET_OPTIONS) as output:
                output.write(table.take(to_arrow(rows)))
            files.append(output.output(name))
    tokens = sum(filter(None, table["stats_tokens"].filter(bool_column(over_quota)).to_pylist()))
    dropped = {dropped_key("over_quota"): int(over_quota.sum()), "lost_tokens": tokens}
    return Receipt(files, dropped if over_quota.any() else {})

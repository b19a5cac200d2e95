"""Quotas of pools: a maximum number of rows, shared equally among strata.

The strata of a pool take turns, and each selects its next row in the order of ranks (`scoring.row_choice`). The rank of
the last selected row is the limit of the stratum. With the limits of all strata, workers can select rows independently.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import bool_column
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.nemotron.pools_recipe import PoolQuota, PoolsRecipe
from pipeline_assets.corpus.scoring.row_choice import select_round_robin, selection_ranks

RankLimits = Mapping[str, Mapping[str, int]]
"""Highest selected rank by pool and stratum; a stratum without a limit has no selected row."""


def find_rank_limits(
    candidate_files: Mapping[str, Sequence[Path]], pools: Sequence[str], recipe: PoolsRecipe, flags_column: str
) -> tuple[RankLimits, dict[str, Any]]:
    """Return the rank limits and the counts of each pool that has a quota.

    `candidate_files` lists files by split. Their column `flags_column` has one character per pool: U+0001 if the row is
    a candidate of the pool, else U+0000. The counts of a pool are `candidates` and `rows` (the selected candidates), in
    total and by stratum. Memory: some tens of bytes per candidate of the largest pool.
    """
    limits, described = dict[str, dict[str, int]](), dict[str, Any]()
    for number, pool in enumerate(pools):
        if (quota := recipe.quota(pool)) is None:
            continue
        ranks, names = [np.empty(0, np.uint64)], list[str]()
        for split, path in ((split, path) for split, paths in candidate_files.items() for path in paths):
            table = read_columns(path, [flags_column, "id", *quota.stratify])
            is_candidate = np.array([flag[number] == "\x01" for flag in table[flags_column].to_pylist()], bool)
            table = table.filter(bool_column(is_candidate))
            ranks.append(selection_ranks(recipe.seed, pool, split, table["id"].to_pylist()))
            names += read_strata(table, quota)
        rank, candidates = np.concatenate(ranks), Counter(names)
        numbers = {name: group for group, name in enumerate(sorted(candidates))}
        groups = np.array([numbers[name] for name in names], np.int32)
        selected = select_round_robin(rank, groups, quota.max_rows)
        chosen = {name: rank[selected & (groups == group)] for name, group in numbers.items()}
        limits[pool] = {name: int(chosen_ranks.max()) for name, chosen_ranks in chosen.items() if len(chosen_ranks)}
        shares = {name: {"candidates": candidates[name], "rows": len(chosen[name])} for name in chosen}
        described[pool] = {"candidates": len(rank), "rows": int(selected.sum()), "strata": shares}
    return limits, described


def quota_mask(table: pa.Table, split: str, pool: str, recipe: PoolsRecipe, limits: RankLimits) -> NDArray[np.bool_]:
    """Return a mask of the rows that a pool's quota selects, shape (rows,).

    Without a quota, all values are True.
    """
    if (quota := recipe.quota(pool)) is None:
        return np.ones(len(table), bool)
    ranks = selection_ranks(recipe.seed, pool, split, table["id"].to_pylist()).tolist()
    strata = read_strata(table, quota)
    return np.array([rank <= limits[pool].get(name, -1) for rank, name in zip(ranks, strata, strict=True)], bool)


def read_strata(table: pa.Table, quota: PoolQuota) -> list[str]:
    """Return the stratum of each row, such as `math, hard`.

    A stratum is named after the row's values in the columns of the quota, or `all` if the quota has no columns.
    """
    columns = [table[name].to_pylist() for name in quota.stratify]
    if not columns:
        return ["all"] * len(table)
    return [", ".join("null" if value is None else str(value) for value in row) for row in zip(*columns, strict=True)]

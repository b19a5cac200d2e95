"""Choice of the rows of each subset among scored rows.

A rule that limits its rows selects the candidates with the lowest ranks. If it balances strata, it does so in each
stratum. A rank depends only on seed, rule, split and id. So a larger `max_rows` only adds rows to the rule's subset.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.scoring.subset_recipe import SubsetRule


def selection_ranks(seed: int, rule_name: str, split: str, ids: Iterable[str]) -> NDArray[np.uint64]:
    """Compute the rank of each row for a rule, shape (ids,).

    A rank is the first 8 bytes, as a big-endian integer, of the sha256 of seed, rule, split and id, separated by NUL.
    """
    prefix = hashlib.sha256(f"{seed}\0{rule_name}\0{split}\0".encode())
    heads = bytearray()
    for row_id in ids:
        digest = prefix.copy()
        digest.update(row_id.encode())
        heads += digest.digest()[:8]
    return np.frombuffer(bytes(heads), ">u8").astype(np.uint64)


def select_candidates(rule: SubsetRule, ranks: NDArray[np.uint64], strata: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Return a mask of the candidates that a rule selects, shape (candidates,).

    If the rule balances strata, the strata take turns: a stratum contributes its remaining row with the lowest rank, or
    is skipped if it has none. The turns end after `max_rows` rows. Without `max_rows`, each stratum contributes as many
    rows as the smallest stratum has. `ranks` are the candidates' `selection_ranks`, `strata` the numbers of their
    strata, both with the shape (candidates,).
    """
    if rule.max_rows is None and not rule.balance:
        return np.ones(len(ranks), bool)
    groups = strata if rule.balance else np.zeros_like(strata)
    sizes = np.bincount(groups)
    present = sizes[sizes > 0]
    rows = rule.max_rows if rule.max_rows is not None else int(present.min(initial=len(ranks))) * len(present)
    return select_round_robin(ranks, groups, rows)


def select_round_robin(ranks: NDArray[np.uint64], groups: NDArray[np.int32], max_rows: int) -> NDArray[np.bool_]:
    """Return a mask of up to `max_rows` rows; groups take turns, each in rank order."""
    sizes = np.bincount(groups)
    # Sorted by (group, rank), a row's index minus the index of its group's first row is its position in the group.
    position = np.empty(len(ranks), np.int64)
    position[np.lexsort((ranks, groups))] = np.arange(len(ranks)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    selected = np.zeros(len(ranks), bool)
    selected[np.lexsort((groups, position))[:max_rows]] = True  # by position, then group: groups take turns
    return selected


def choose_rows(
    candidates: NDArray[np.bool_],
    ranks: NDArray[np.uint64],
    strata: NDArray[np.int32],
    rules: Sequence[SubsetRule],
    *,
    disjoint: bool,
) -> NDArray[np.bool_]:
    """Return a mask of the rows that each rule selects, shape (rows, rules).

    Rules select in the order of `rules`. `candidates` marks the rows that a rule may select, `ranks` has their
    `selection_ranks` and `strata` the numbers of their strata; all have the shape (rows, rules). If `disjoint`, a rule
    cannot select rows that an earlier rule selected.
    """
    chosen = np.zeros_like(candidates)
    for column, rule in enumerate(rules):
        rows = np.flatnonzero(candidates[:, column] & ~(disjoint & chosen.any(axis=1)))
        chosen[rows, column] = select_candidates(rule, ranks[rows, column], strata[rows, column])
    return chosen


def boundary_mask(
    nll: NDArray[np.float64], percentile: NDArray[np.float64], rule: SubsetRule, error_bar: float
) -> NDArray[np.bool_]:
    """Return a mask of the rows whose NLL is within `error_bar` of a boundary.

    Each end of the rule's percentile range divides rows into two groups; the boundary is the mean of the lower group's
    highest NLL and the upper group's lowest NLL. An end with an empty group has no boundary. `nll` and `percentile`
    have the values of all rows of a split, shape (rows,), NaN without a score. `error_bar` is in nats per token.
    """
    low, high = rule.percentile_range
    is_near = np.zeros(len(nll), bool)
    for below, above in ((percentile < low, percentile >= low), (percentile <= high, percentile > high)):
        if below.any() and above.any():
            boundary = (nll[below].max() + nll[above].min()) / 2
            is_near |= np.abs(nll - boundary) <= error_bar
    return is_near

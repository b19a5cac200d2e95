"""Choice of the rows of each subset among scored rows."""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.scoring.subset_recipe import SubsetRule


def selection_order(seed: int, rule: str, split: str, ids: Iterable[str]) -> NDArray[np.uint64]:
    """The first eight bytes of sha256 of seed, rule, split and id, with NUL between, as a number; shape (ids,).

    The lowest come first.
    """
    before = hashlib.sha256(f"{seed}\0{rule}\0{split}\0".encode())
    heads = bytearray()
    for one in ids:
        digest = before.copy()
        digest.update(one.encode())
        heads += digest.digest()[:8]
    return np.frombuffer(bytes(heads), ">u8").astype(np.uint64)


def select_rows(rule: SubsetRule, turn: NDArray[np.uint64], domains: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which of the rows that it can take a rule takes; all of shape (rows,), `turn` as `turns` has it.

    Balanced domains give a row each, one after the other, as long as they have some: for one row more of the rule, one
    domain gives one more, and none fewer.
    """
    if rule.max_rows is None and not rule.balance:
        return np.ones(len(turn), bool)
    groups = domains if rule.balance else np.zeros_like(domains)
    sizes = np.bincount(groups)
    there = sizes[sizes > 0]
    rows = rule.max_rows if rule.max_rows is not None else int(there.min(initial=len(turn))) * len(there)
    place = np.empty(len(turn), np.int64)  # in its domain
    place[np.lexsort((turn, groups))] = np.arange(len(turn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    taken = np.zeros(len(turn), bool)
    taken[np.lexsort((groups, place))[:rows]] = True
    return taken


def choose_rows(
    candidates: NDArray[np.bool_],
    turn: NDArray[np.uint64],
    domains: NDArray[np.int32],
    rules: Sequence[SubsetRule],
    *,
    disjoint: bool,
) -> NDArray[np.bool_]:
    """Which rows each rule takes, a rule after the other; shape (rows, rules).

    Args:
        candidates: by a rule's band and conditions, shape (rows, rules).
        turn: shape (rows, rules).
        domains: number of each row's domain, shape (rows,).
        disjoint: whether what a rule has taken is no candidate of those behind it.
    """
    chosen = np.zeros_like(candidates)
    for place, rule in enumerate(rules):
        rows = np.flatnonzero(candidates[:, place] & ~(disjoint & chosen.any(axis=1)))
        chosen[rows, place] = select_rows(rule, turn[rows, place], domains[rows])
    return chosen


def near_a_boundary(
    nll: NDArray[np.float64], percentile: NDArray[np.float64], rule: SubsetRule, error_bar: float
) -> NDArray[np.bool_]:
    """Rows of a split that another score within the error bar could bring into the rule's band, or out of it.

    The band begins halfway between the lowest NLL of the split that is in it and the highest below, and ends likewise;
    one that no row lies beyond, as it begins at 0 or ends at 100, has no boundary there. Arrays are of all rows of the
    split, shape (rows,), NaN without a score.
    """
    low, high = rule.band
    is_near = np.zeros(len(nll), bool)
    for below, above in ((percentile < low, percentile >= low), (percentile <= high, percentile > high)):
        if below.any() and above.any():
            boundary = (nll[below].max() + nll[above].min()) / 2
            is_near |= np.abs(nll - boundary) <= error_bar
    return is_near

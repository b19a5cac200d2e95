"""Which rows each rule takes: arrays in, truths out.

Who comes first where there are too many depends on (seed, rule, split, id) of the row alone: not on the order of
splits, on workers, nor on other rows. So a larger `max_rows` only adds rows to a subset.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.scoring.subsets_recipe import SubsetRule


def turns(seed: int, rule: str, split: str, ids: Iterable[str]) -> NDArray[np.uint64]:
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


def in_band(percentile: NDArray[np.float64], rule: SubsetRule) -> NDArray[np.bool_]:
    """Rows whose percentile is in the rule's band; a row without one, NaN, is not."""
    low, high = rule.band
    return (percentile >= low) & (percentile <= high)


def shared_out(sizes: NDArray[np.int64], rows: int) -> NDArray[np.int64]:
    """How many rows each domain gives, so that all give the same, or all that they have; shape (domains,).

    What can't be shared out equally is given by the first that have more. So for one row more, one domain gives one
    more, and none fewer.

    Args:
        sizes: rows of each domain, shape (domains,).
        rows: in total; fewer come where there are fewer.
    """
    total = min(rows, int(sizes.sum()))
    low, high = 0, int(sizes.max(initial=0))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(sizes, middle).sum() <= total else (low, middle - 1)
    quotas = np.minimum(sizes, low)
    quotas[np.flatnonzero(sizes > low)[: total - int(quotas.sum())]] += 1
    return quotas


def taken_by(rule: SubsetRule, turn: NDArray[np.uint64], domains: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which of the rows that it can take a rule takes; all of shape (rows,), `turn` as `turns` has it."""
    if rule.max_rows is None and not rule.balance:
        return np.ones(len(turn), bool)
    groups = domains if rule.balance else np.zeros_like(domains)
    sizes = np.bincount(groups).astype(np.int64)
    there = sizes[sizes > 0]
    rows = rule.max_rows if rule.max_rows is not None else int(there.min(initial=len(turn))) * len(there)
    order = np.lexsort((turn, groups))
    place = np.empty(len(turn), np.int64)  # in its domain
    place[order] = np.arange(len(turn)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.less(place, shared_out(sizes, rows)[groups])


def choose(
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
        chosen[rows, place] = taken_by(rule, turn[rows, place], domains[rows])
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

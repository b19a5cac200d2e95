"""Repeated document ids of a whole corpus, found by a sorted merge of what its shards saw: memory stays bounded."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.spine import durable

_ID_DTYPE = np.dtype([("high", "<u8"), ("low", "<u8"), ("row", "<i8")])
_PART_IDS = 4_000_000  # ids merged at once: about 250 MB with the sort's copies


def write_ids(path: Path, doc_ids: Sequence[str]) -> tuple[int, str]:
    """The ids of a shard's documents, hashed to 128 bits and sorted, with their row in the shard.

    Returns:
        bytes written and their sha256.
    """
    hashes = b"".join(hashlib.sha256(doc_id.encode("utf-8")).digest()[:16] for doc_id in doc_ids)
    halves = np.frombuffer(hashes, ">u8").reshape(-1, 2)
    ids = np.empty(len(doc_ids), _ID_DTYPE)
    ids["high"], ids["low"], ids["row"] = halves[:, 0], halves[:, 1], np.arange(len(doc_ids))
    data = np.sort(ids, order=("high", "low", "row")).tobytes()
    return len(data), durable.write_durably(path, data)


def repeated_ids(paths: Sequence[Path]) -> dict[int, dict[int, int]]:
    """Every document whose id came before, in shard order and row order.

    Args:
        paths: what `write_ids` wrote, one path a shard, in manifest order.
    Returns:
        shard number → row in the shard → which repetition it is: 2 for the second document of an id, and so on.
    """
    shards = [_mapped(path) for path in paths]
    total = sum(len(ids) for ids in shards)
    parts = -(-total // _PART_IDS)
    bounds = [int(part * 2**64 // parts) for part in range(parts)]
    repeats: dict[int, dict[int, int]] = {}
    for part, low in enumerate(bounds):
        high = bounds[part + 1] if part + 1 < parts else None
        for shard, row, ordinal in _repeats_between(shards, low, high):
            repeats.setdefault(shard, {})[row] = ordinal
    return repeats


def rows_of(repeats: Mapping[int, Mapping[int, int]], shard: int) -> dict[int, int]:
    """The repeated rows of one shard, in row order."""
    return dict(sorted(repeats.get(shard, {}).items()))


def _mapped(path: Path) -> NDArray[np.void]:
    return np.memmap(path, _ID_DTYPE, "r") if path.stat().st_size else np.empty(0, _ID_DTYPE)


def _repeats_between(shards: Sequence[NDArray[np.void]], low: int, high: int | None) -> list[tuple[int, int, int]]:
    slices, owners = [], []
    for number, ids in enumerate(shards):
        start = np.searchsorted(ids["high"], np.uint64(low))
        stop = len(ids) if high is None else np.searchsorted(ids["high"], np.uint64(high))
        slices.append(ids[start:stop])
        owners.append(np.full(stop - start, number, np.int32))
    ids, owner = np.concatenate(slices), np.concatenate(owners)
    order = np.lexsort((ids["row"], owner, ids["low"], ids["high"]))
    ids, owner = ids[order], owner[order]
    is_repeat = np.zeros(len(ids), bool)
    is_repeat[1:] = (ids["high"][1:] == ids["high"][:-1]) & (ids["low"][1:] == ids["low"][:-1])
    places = np.arange(len(ids))
    ordinals = places - np.maximum.accumulate(np.where(is_repeat, 0, places)) + 1
    found = np.flatnonzero(is_repeat)
    return [(int(owner[place]), int(ids["row"][place]), int(ordinals[place])) for place in found]

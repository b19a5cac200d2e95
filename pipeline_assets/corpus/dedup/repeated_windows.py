"""Which documents of a source say again what earlier ones said: by the windows that they share.

Documents are taken in order. A window is seen if an earlier document that stays has it: of one that goes windows don't
count, so no passage is lost through a chain. A document goes if more than `max_share` of its windows are seen.

Three steps, each over files: the windows of each shard, sorted; by ranges of hashes those that two documents or more
have; one pass over these, in order, which decides. Whatever the shards, workers and ranges, it decides the same.
Memory: a range of what is sorted, with all rows of a window that very many documents have; in the last step a bit for
each different window that is repeated. All else is in files: 16 bytes of each window, of 64 that are compared of one.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.dedup.order import (
    MAX_DOCUMENTS,
    KeyRange,
    Runs,
    even_ranges,
    is_first,
    ranges,
    rows_of,
    sorted_pairs,
    write_run,
)
from pipeline_assets.corpus.dedup.tasks import Task, parts, share_bytes
from pipeline_assets.corpus.dedup.windows import FATAL, select_shard, select_windows
from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.filters.recipe import WindowRecipe
from pipeline_assets.corpus.formats.parquet import numbers, table_of
from pipeline_assets.corpus.spine.engine import RunSettings, RunStage
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window

_REPEATED, _GONE = f"{WORK}/repeated_windows", f"{WORK}/repeating"
_ROW_BYTES = 120  # of memory for a row: as read, as sorted, as written
_32, _3, _7, _ONE = np.uint64(32), np.uint64(3), np.uint64(7), np.uint8(1)
_LOWER = np.uint64(2**32 - 1)


@dataclass(frozen=True)
class ShardRepeats:
    """What became of the documents of one shard.

    Attributes:
        gone: their numbers, in runs of those that go.
        fatal: rows that killed their worker.
    """

    gone: KeyRange
    fatal: frozenset[int]

    def shares(self) -> dict[int, float]:
        """The rows that go, each with the share of its windows that are seen."""
        if not self.gone.runs:
            return {}
        table = self.gone.table()
        rows = numbers(table["number"]) - np.uint64(self.gone.low)
        return dict(zip(rows.tolist(), numbers(table["share"]).tolist(), strict=True))


def find_repeats(
    run: RunStage[Task],
    building: BuildFolder,
    shards: Sequence[DocumentShard],
    recipe: WindowRecipe,
    refused_licences: frozenset[str],
    settings: RunSettings,
) -> list[ShardRepeats]:
    """Which documents go, shard by shard.

    Args:
        refused_licences: tags of documents that are left out: they go anyway.
    Raises:
        InputError: a line that is no Document, or too many of them.
    """
    firsts = [0, *np.cumsum([shard.rows for shard in shards], dtype=np.int64).tolist()]
    if firsts[-1] > MAX_DOCUMENTS:
        fix = f"make sources of at most {MAX_DOCUMENTS:,} of it"
        raise InputError(f"{firsts[-1]:,} documents", "the source", fix)
    of_shards = list(zip(shards, firsts, strict=False))
    tasks = [Task.of(select_shard, shard, first, recipe, refused_licences) for shard, first in of_shards]
    selected = list(run("windows", tasks, building))
    gone = _decided(run, building, _runs(building, selected), recipe, settings)
    return [
        ShardRepeats(KeyRange(first, first + shard.rows, gone), frozenset(receipt.notes[FATAL]))
        for (shard, first), receipt in zip(of_shards, selected, strict=True)
    ]


def load_kernels() -> None:
    """Loads the compiled code of all steps."""
    select_windows([b"some text"], 4, 2)
    none = np.empty(0, np.uint64)
    sorted_pairs(none, none)
    _decide(none, none, np.empty(0, np.uint32), none, 1, 2, np.zeros(1, np.uint8), none, np.empty(0))


def _decided(
    run: RunStage[Task], building: BuildFolder, windows: Runs, recipe: WindowRecipe, settings: RunSettings
) -> Runs:
    if not windows:
        return ()
    rows, most = rows_of(windows), share_bytes(settings) // _ROW_BYTES
    by_hash = even_ranges(windows, rows, max(min(most, -(-rows // parts(settings))), 1))
    tasks = [Task.of(_find_repeated, one, place) for place, one in enumerate(by_hash)]
    found = list(run("repeated", tasks, building))
    firsts = np.cumsum([0, *(receipt.counts["repeated_windows"] for receipt in found)]).astype(np.uint64)
    decide = functools.partial(_decide_all, _runs(building, found), firsts, Fraction(recipe.max_share), most)
    return _runs(building, list(run("repeating", [Task("all", 0, decide)], building)))


def _runs(building: BuildFolder, receipts: Sequence[Receipt]) -> Runs:
    return tuple(building.path(file.path) for receipt in receipts for file in receipt.files)


def _find_repeated(by_hash: KeyRange, place: int, window: Window, folder: BuildFolder) -> Receipt:
    """The windows in a range of hashes that two documents or more have.

    Files: a run by `number` of a document; `window`, its place among those of the range, and that of the range in the
    upper 32 bits; `windows` of the document. Counts: `repeated_windows`.
    """
    table = by_hash.table()
    hashes = numbers(table["hash"])
    by = np.argsort(hashes)
    is_new = is_first(hashes[by])
    is_repeated = ~(is_new & np.roll(is_new, -1))
    by, is_new = by[is_repeated], is_new[is_repeated]
    windows = np.cumsum(is_new) - 1 + (place << 32)
    documents = numbers(table["number"])[by]
    in_order = np.argsort(documents)
    columns = {
        "number": documents[in_order].astype(np.uint64),
        "window": windows[in_order].astype(np.uint64),
        "windows": numbers(table["windows"])[by[in_order]],
    }
    files = [write_run(folder, f"{_REPEATED}/{by_hash.name}.parquet", table_of(columns))]
    return Receipt(files, {"repeated_windows": int(is_new.sum())})


def _decide_all(
    repeated: Runs,
    firsts: NDArray[np.uint64],
    max_share: Fraction,
    max_rows: int,
    window: Window,
    folder: BuildFolder,
) -> Receipt:
    """Files: runs by `number` of a document that goes; `share`, float64.

    Args:
        firsts: how many repeated windows come before those of each range of hashes, and after the last how many are.
    """
    seen = np.zeros((int(firsts[-1]) >> 3) + 1, np.uint8)
    files: list[OutputFile] = []
    for in_order in ranges(repeated, max_rows):
        table = in_order.table()
        by = np.argsort(numbers(table["number"]))
        documents, windows, totals = (numbers(table[name])[by] for name in ("number", "window", "windows"))
        gone, shares = np.empty(len(by), np.uint64), np.empty(len(by))
        number = _decide(
            documents, windows, totals, firsts, max_share.numerator, max_share.denominator, seen, gone, shares
        )
        columns = {"number": gone[:number], "share": shares[:number]}
        files.append(write_run(folder, f"{_GONE}/{len(files):05d}.parquet", table_of(columns)))
    return Receipt(files, {})


@inner
def _place(window: np.uint64, firsts: NDArray[np.uint64]) -> np.uint64:
    return firsts[window >> _32] + (window & _LOWER)  # type: ignore[no-any-return]


@compiled
def _decide(
    documents: NDArray[np.uint64],
    windows: NDArray[np.uint64],
    totals: NDArray[np.uint32],
    firsts: NDArray[np.uint64],
    numerator: int,
    denominator: int,
    seen: NDArray[np.uint8],
    gone: NDArray[np.uint64],
    shares: NDArray[np.float64],
) -> int:
    """Fills `gone` and `shares`; how many go.

    Args:
        totals: of the windows of a row's document, those too that no other has.
        seen: a bit for each repeated window; those of documents that stay are set.
    """
    number = start = 0
    while start < len(documents):
        stop, before = start, 0
        while stop < len(documents) and documents[stop] == documents[start]:
            place = _place(windows[stop], firsts)
            before += bool(seen[place >> _3] >> np.uint8(place & _7) & _ONE)
            stop += 1
        if before * denominator > numerator * totals[start]:
            gone[number], shares[number] = documents[start], before / totals[start]
            number += 1
        else:
            for row in range(start, stop):
                place = _place(windows[row], firsts)
                seen[place >> _3] |= _ONE << np.uint8(place & _7)
        start = stop
    return number

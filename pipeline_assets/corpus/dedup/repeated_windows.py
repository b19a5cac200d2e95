"""Which documents of a source say again what earlier ones said: by the windows that they share.

Documents are taken in order. A window is seen if an earlier document that stays has it: of one that goes windows don't
count, so no passage is lost through a chain. A document goes if more than `max_share` of its windows are seen.

Three steps, each over files: the windows of each shard, sorted; by ranges of hashes those that two documents or more
have; one pass over these, in order, which decides. Whatever the shards, workers and ranges, it decides the same.
Memory: a range of what is sorted, with all rows of a window that very many documents have; in the last step a bit for
each different window that is repeated. All else is in files: 16 bytes of each window, of 64 that are compared of one.

A window is so many bytes of a document's UTF-8 in a row. Its hash is the polynomial of its bytes, each one more than it
is, so that no zero is lost, in an odd constant modulo 2**64. It is rolled from window to window (Karp and Rabin 1987,
"Efficient randomized pattern-matching algorithms"), and mixed by SplitMix64's finaliser. Windows whose hash is a
multiple of `every` are selected: by what is in them, so that a passage has the same ones wherever it is moved (Manber
1994, "Finding similar files in a large file system"). Where there is none, the window with the smallest hash is. A
document shorter than a window is one window. A window that a document repeats counts once.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.dedup import steps
from pipeline_assets.corpus.dedup.words import POLYNOMIAL
from pipeline_assets.corpus.document import LicensedText
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.filters.recipe import WindowRecipe
from pipeline_assets.corpus.formats.arrow_columns import numbers, to_table
from pipeline_assets.corpus.packing.mixture import split_mix
from pipeline_assets.spine.engine import RunSettings, RunStage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import Task, Window, grouped_by_size
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView

_WINDOWS, _REPEATED, _GONE = (f"{WORK}/{area}" for area in ("windows", "repeated_windows", "repeating"))
_FATAL = "fatal"
_RUN_ROWS = 1 << 20  # 16 MiB, and some times as much while they are sorted
_ONE_64, _ALL = np.uint64(1), np.uint64(2**64 - 1)


class Selected(NamedTuple):
    """Selected windows of documents, in the order of the texts; a repeated one is there again.

    Attributes:
        hashes: uint64, (windows,).
        windows: how many each document has, one or more; int64, (documents,).
    """

    hashes: NDArray[np.uint64]
    windows: NDArray[np.int64]


def select_windows(texts: Sequence[bytes], window_bytes: int, every: int) -> Selected:
    """The selected windows of documents, given as UTF-8."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    text = np.frombuffer(b"".join(texts), np.uint8)
    room = np.empty(len(text) + len(texts) + 1, np.uint64)  # what isn't written takes no memory
    windows = np.empty(len(texts), np.int64)
    found = _select(text, offsets, window_bytes, np.uint64(every), room, windows)
    return Selected(room[:found].copy(), windows)


@compiled
def _select(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    window_bytes: int,
    every: np.uint64,
    hashes: NDArray[np.uint64],
    windows: NDArray[np.int64],
) -> int:
    """Fills `hashes` and `windows`; how many are selected. Each hash is written, and stays if it is counted."""
    leaves = _ONE_64
    for _ in range(window_bytes):
        leaves = leaves * POLYNOMIAL
    found = 0
    for document in range(len(windows)):
        first, stop = found, offsets[document + 1]
        at = min(offsets[document] + window_bytes, stop)
        rolled = np.uint64(0)
        for place in range(offsets[document], at):
            rolled = rolled * POLYNOMIAL + (np.uint64(text[place]) + _ONE_64)
        least = _ALL
        while True:
            hashed = split_mix(rolled)
            least = min(least, hashed)
            hashes[found] = hashed
            found += hashed % every == 0
            if at >= stop:
                break
            left = (np.uint64(text[at - window_bytes]) + _ONE_64) * leaves
            rolled = rolled * POLYNOMIAL + (np.uint64(text[at]) + _ONE_64 - left)
            at += 1
        if found == first:
            hashes[found] = least
            found += 1
        windows[document] = found - first
    return found


_decoder = msgspec.json.Decoder(LicensedText)


def select_shard(
    shard: DocumentShard,
    first_number: int,
    recipe: WindowRecipe,
    refused_licences: frozenset[str],
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Runs of one shard: `hash` of each window that is selected, `number` of its document, `windows` of that document,
    a row for each different window of a document. Notes: `fatal`, rows that kill their worker.

    Args:
        first_number: of the shard's first document; the others follow.
        refused_licences: tags of documents that are left out.
    Raises:
        InputError: a line that is no Document.
    """
    files: list[OutputFile] = []
    fatal: list[int] = []

    def blocks() -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        for documents, killing in read_documents(shard, window, _decoder):
            fatal.extend(killing)
            asked = [(row, one.text) for row, one in documents if one.license_tag not in refused_licences]
            selected = select_windows([text.encode() for _, text in asked], recipe.window_bytes, recipe.every)
            rows = np.fromiter((row for row, _ in asked), np.int64, len(asked))
            yield selected.hashes, np.repeat(rows, selected.windows)

    for group in grouped_by_size(blocks(), lambda block: len(block[0]), _RUN_ROWS):
        hashes, rows = (np.concatenate(columns) for columns in zip(*group, strict=True))
        name = f"{_WINDOWS}/{shard.name}.{len(files):05d}.parquet"
        files.append(_write_run(folder, name, hashes, rows, first_number))
    return Receipt(files, {}, {_FATAL: fatal})


def _write_run(
    folder: StagingView, name: str, hashes: NDArray[np.uint64], rows: NDArray[np.int64], first_number: int
) -> OutputFile:
    hashes, documents = steps.sorted_pairs(hashes, rows.astype(np.uint64))
    is_other = steps.is_first(hashes, documents)
    hashes, rows = hashes[is_other], documents[is_other].astype(np.int64)
    of_documents = np.bincount(rows)[rows].astype(np.uint32)
    columns = {"hash": hashes, "number": (rows + first_number).astype(np.uint32), "windows": of_documents}
    return steps.write_run(folder, name, to_table(columns))


_ROW_BYTES = 120  # of memory for a row: as read, as sorted, as written
_32, _3, _7, _ONE = np.uint64(32), np.uint64(3), np.uint64(7), np.uint8(1)
_LOWER = np.uint64(2**32 - 1)


@dataclass(frozen=True)
class ShardRepeats:
    """What became of the documents of one shard.

    Attributes:
        dropped: their numbers, in runs of those that go.
        fatal: rows that killed their worker.
    """

    dropped: steps.KeyRange
    fatal: frozenset[int]

    def shares(self) -> dict[int, float]:
        """The rows that go, each with the share of its windows that are seen."""
        if not self.dropped.runs:
            return {}
        table = self.dropped.table()
        rows = numbers(table["number"]) - np.uint64(self.dropped.low)
        return dict(zip(rows.tolist(), numbers(table["share"]).tolist(), strict=True))


def find_repeats(
    run: RunStage[Task],
    building: StagingView,
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
    if firsts[-1] > steps.MAX_DOCUMENTS:
        fix = f"make sources of at most {steps.MAX_DOCUMENTS:,} of it"
        raise InputError(f"{firsts[-1]:,} documents", "the source", fix)
    of_shards = list(zip(shards, firsts, strict=False))
    tasks = [Task.for_kernel(select_shard, shard, first, recipe, refused_licences) for shard, first in of_shards]
    selected = list(run("windows", tasks, building))
    gone = _decided(run, building, _runs(building, selected), recipe, settings)
    return [
        ShardRepeats(steps.KeyRange(first, first + shard.rows, gone), frozenset(receipt.notes[_FATAL]))
        for (shard, first), receipt in zip(of_shards, selected, strict=True)
    ]


def load_kernels() -> None:
    """Loads the compiled code of all steps."""
    select_windows([b"some text"], 4, 2)
    none = np.empty(0, np.uint64)
    _decide(none, none, np.empty(0, np.uint32), none, 1, 2, np.zeros(1, np.uint8), none, np.empty(0))


def _decided(
    run: RunStage[Task], building: StagingView, windows: steps.Runs, recipe: WindowRecipe, settings: RunSettings
) -> steps.Runs:
    if not windows:
        return ()
    rows, most = steps.total_rows(windows), steps.share_bytes(settings) // _ROW_BYTES
    by_hash = steps.even_ranges(windows, rows, max(min(most, -(-rows // steps.parts(settings))), 1))
    tasks = [Task.for_kernel(_find_repeated, one, place) for place, one in enumerate(by_hash)]
    found = list(run("repeated", tasks, building))
    firsts = np.cumsum([0, *(receipt.counts["repeated_windows"] for receipt in found)]).astype(np.uint64)
    decide = functools.partial(_decide_all, _runs(building, found), firsts, Fraction(recipe.max_share), most)
    return _runs(building, list(run("repeating", [Task("all", 0, decide)], building)))


def _runs(building: StagingView, receipts: Sequence[Receipt]) -> steps.Runs:
    return tuple(building.path(file.path) for receipt in receipts for file in receipt.files)


def _find_repeated(by_hash: steps.KeyRange, place: int, window: Window, folder: StagingView) -> Receipt:
    """The windows in a range of hashes that two documents or more have.

    Files: a run by `number` of a document; `window`, its place among those of the range, and that of the range in the
    upper 32 bits; `windows` of the document. Counts: `repeated_windows`.
    """
    table = by_hash.table()
    hashes = numbers(table["hash"])
    by = np.argsort(hashes)
    is_new = steps.is_first(hashes[by])
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
    files = [steps.write_run(folder, f"{_REPEATED}/{by_hash.name}.parquet", to_table(columns))]
    return Receipt(files, {"repeated_windows": int(is_new.sum())})


def _decide_all(
    repeated: steps.Runs,
    firsts: NDArray[np.uint64],
    max_share: Fraction,
    max_rows: int,
    window: Window,
    folder: StagingView,
) -> Receipt:
    """Files: runs by `number` of a document that goes; `share`, float64.

    Args:
        firsts: how many repeated windows come before those of each range of hashes, and after the last how many are.
    """
    seen = np.zeros((int(firsts[-1]) >> 3) + 1, np.uint8)
    files: list[OutputFile] = []
    for in_order in steps.ranges(repeated, max_rows):
        table = in_order.table()
        by = np.argsort(numbers(table["number"]))
        documents, windows, totals = (numbers(table[name])[by] for name in ("number", "window", "windows"))
        gone, shares = np.empty(len(by), np.uint64), np.empty(len(by))
        number = _decide(
            documents, windows, totals, firsts, max_share.numerator, max_share.denominator, seen, gone, shares
        )
        columns = {"number": gone[:number], "share": shares[:number]}
        files.append(steps.write_run(folder, f"{_GONE}/{len(files):05d}.parquet", to_table(columns)))
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

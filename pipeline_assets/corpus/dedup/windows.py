"""The windows of text by which a document is known, wherever in it they stand.

A window is so many bytes of a document's UTF-8 in a row. Its hash is the polynomial of its bytes, each one more than it
is, so that no zero is lost, in an odd constant modulo 2**64. It is rolled from window to window (Karp and Rabin 1987,
"Efficient randomized pattern-matching algorithms"), and mixed by SplitMix64's finaliser. Windows whose hash is a
multiple of `every` are selected: by what is in them, so that a passage has the same ones wherever it is moved (Manber
1994, "Finding similar files in a large file system"). Where there is none, the window with the smallest hash is. A
document shorter than a window is one window. A window that a document repeats counts once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.dedup.order import is_first, sorted_pairs, write_run
from pipeline_assets.corpus.dedup.words import POLYNOMIAL
from pipeline_assets.corpus.document import LicensedText
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.filters.recipe import WindowRecipe
from pipeline_assets.corpus.formats.arrow import table_of
from pipeline_assets.corpus.packing.mixture import split_mix
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.staging import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.worker import Window, grouped_by_size

WINDOWS, FATAL = f"{WORK}/windows", "fatal"
_BLOCK_BYTES = 1 << 20
_RUN_ROWS = 1 << 20  # 16 MiB, and some times as much while they are sorted
_ONE, _ALL = np.uint64(1), np.uint64(2**64 - 1)


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
    leaves = _ONE
    for _ in range(window_bytes):
        leaves = leaves * POLYNOMIAL
    found = 0
    for document in range(len(windows)):
        first, stop = found, offsets[document + 1]
        at = min(offsets[document] + window_bytes, stop)
        rolled = np.uint64(0)
        for place in range(offsets[document], at):
            rolled = rolled * POLYNOMIAL + (np.uint64(text[place]) + _ONE)
        least = _ALL
        while True:
            hashed = split_mix(rolled)
            least = min(least, hashed)
            hashes[found] = hashed
            found += hashed % every == 0
            if at >= stop:
                break
            left = (np.uint64(text[at - window_bytes]) + _ONE) * leaves
            rolled = rolled * POLYNOMIAL + (np.uint64(text[at]) + _ONE - left)
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
    folder: BuildFolder,
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
        for block in read_documents(shard, window, _decoder, _BLOCK_BYTES):
            pairs = list(zip(block.rows, block.documents, strict=True))
            fatal.extend(row for row, document in pairs if document is None)
            asked = [
                (row, one.text) for row, one in pairs if one is not None and one.license_tag not in refused_licences
            ]
            selected = select_windows([text.encode() for _, text in asked], recipe.window_bytes, recipe.every)
            rows = np.fromiter((row for row, _ in asked), np.int64, len(asked))
            yield selected.hashes, np.repeat(rows, selected.windows)

    for group in grouped_by_size(blocks(), lambda block: len(block[0]), _RUN_ROWS):
        hashes, rows = (np.concatenate(columns) for columns in zip(*group, strict=True))
        name = f"{WINDOWS}/{shard.name}.{len(files):05d}.parquet"
        files.append(_write_run(folder, name, hashes, rows, first_number))
    return Receipt(files, {}, {FATAL: fatal})


def _write_run(
    folder: BuildFolder, name: str, hashes: NDArray[np.uint64], rows: NDArray[np.int64], first_number: int
) -> OutputFile:
    hashes, documents = sorted_pairs(hashes, rows.astype(np.uint64))
    is_other = is_first(hashes, documents)
    hashes, rows = hashes[is_other], documents[is_other].astype(np.int64)
    of_documents = np.bincount(rows)[rows].astype(np.uint32)
    columns = {"hash": hashes, "number": (rows + first_number).astype(np.uint32), "windows": of_documents}
    return write_run(folder, name, table_of(columns))

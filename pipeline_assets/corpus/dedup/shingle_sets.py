"""Sets of shingles of those documents that are compared: written once, in the order of the corpus, read one by one.

A file holds uint64: of each document its id (UTF-8, filled up with zeros), then the hashes of its shingles, each once,
ascending. An index beside it says where each begins. Two different shingles of two documents have one hash with a
probability of 2**-64, so the size of a union or intersection of hashes is that of the sets of shingles.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, line_blocks, read_documents
from pipeline_assets.corpus.dedup.minhash import shingle_sets
from pipeline_assets.corpus.dedup.order import load, members_between
from pipeline_assets.corpus.dedup.words import normalize
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import Window

SETS = f"{WORK}/sets"
SETS_SUFFIX, INDEX_SUFFIX = ".sets", ".index"
_INDEX = np.dtype([("number", "<u8"), ("offset", "<u8"), ("id_bytes", "<u4"), ("shingles", "<u4")])


@dataclass(frozen=True)
class ComparedShard:
    """The documents of one shard that are compared: those in the set `members`; their sets are written to `area`."""

    shard: CorpusShard
    members: Path
    shingle_words: int
    area: str = SETS

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def rows(self) -> int:
        return self.shard.rows


def write_sets(shard: ComparedShard, window: Window, folder: BuildFolder) -> Receipt:
    """The sets of one shard: their file, and its index; no files where no document is compared.

    Counts: `compared` documents.
    """
    corpus_shard = shard.shard
    wanted = members_between(load(shard.members), corpus_shard.first_number, corpus_shard.first_number + shard.rows)
    if not wanted.any():
        return Receipt([], {"compared": 0})
    sets_name, index_name = f"{shard.area}/{shard.name}{SETS_SUFFIX}", f"{shard.area}/{shard.name}{INDEX_SUFFIX}"
    entries: list[tuple[int, int, int, int]] = []
    with DurableFile(folder.path(sets_name)) as file:
        for records in _records(corpus_shard, window, wanted, shard.shingle_words):
            data = []
            offset = file.bytes_written
            for number, doc_id, shingles in records:
                padded = doc_id + bytes(-len(doc_id) % 8)
                entries.append((number, offset, len(doc_id), len(shingles)))
                data += [padded, shingles.tobytes()]
                offset += len(padded) + shingles.nbytes
            file.write(b"".join(data))
    sets = OutputFile.plain(sets_name, len(entries), file)
    with DurableFile(folder.path(index_name)) as file:
        file.write(np.array(entries, _INDEX).tobytes())
    index = OutputFile.plain(index_name, len(entries), file)
    return Receipt([sets, index], {"compared": len(entries)})


_Record = tuple[int, bytes, NDArray[np.uint64]]


def _records(
    shard: CorpusShard, window: Window, wanted: NDArray[np.bool_], shingle_words: int
) -> Iterator[list[_Record]]:
    for lines in line_blocks(shard, window):
        read = read_documents([one for one in lines if one.line is not None and wanted[one.row]], shard)
        batch = normalize([document.text.encode() for _, document in read])
        hashes, offsets = shingle_sets(batch.word_hashes, batch.first_words, shingle_words)
        yield [
            (shard.first_number + row, document.doc_id.encode(), hashes[start:stop])
            for (row, document), (start, stop) in zip(read, itertools.pairwise(offsets.tolist()), strict=True)
        ]


class Fetched(NamedTuple):
    """Sets of some documents.

    Attributes:
        doc_ids: of each.
        hashes: all their shingles, uint64.
        offsets: of each in `hashes`, and after the last the number of hashes; int64.
    """

    doc_ids: list[str]
    hashes: NDArray[np.uint64]
    offsets: NDArray[np.int64]


class SetsFile(NamedTuple):
    """Sets of one shard, and the entries of their index; `offset` is added to the numbers there."""

    offset: int
    sets: Path
    entries: Path


class ShingleSets:
    """Sets of a whole corpus, by the numbers of documents. Holds no more of them in memory than are asked for."""

    def __init__(self, files: Sequence[SetsFile]) -> None:
        """
        Args:
            files: in the order of their documents.
        """
        self._offsets = [np.uint64(file.offset) for file in files]
        self._descriptors = [os.open(file.sets, os.O_RDONLY) for file in files]
        self._indices = [np.memmap(file.entries, _INDEX, "r") for file in files]
        firsts = [index["number"][0] + offset for index, offset in zip(self._indices, self._offsets, strict=True)]
        self._firsts = np.array(firsts, np.uint64)

    def close(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)

    def sizes(self, numbers: NDArray[np.uint64]) -> NDArray[np.int64]:
        """How many shingles each document has; numbers ascend."""
        return np.concatenate([np.empty(0, np.int64), *(found["shingles"] for _, found in self._entries(numbers))])

    def fetch(self, numbers: NDArray[np.uint64]) -> Fetched:
        """The sets of documents, whose numbers ascend."""
        doc_ids, parts = [], []
        for shard, found in self._entries(numbers):
            for _, offset, id_bytes, shingles in found.tolist():
                skipped = -(-id_bytes // 8) * 8
                record = os.pread(self._descriptors[shard], skipped + 8 * shingles, offset)
                doc_ids.append(record[:id_bytes].decode())
                parts.append(np.frombuffer(record, np.uint64, shingles, skipped))
        offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts], dtype=np.int64)))
        return Fetched(doc_ids, np.concatenate([np.empty(0, np.uint64), *parts]), offsets)

    def _entries(self, numbers: NDArray[np.uint64]) -> Iterator[tuple[int, NDArray[np.void]]]:
        """(shard, its entries in the index) of documents."""
        owners = np.searchsorted(self._firsts, numbers, side="right") - 1
        for shard in np.unique(owners).tolist():
            index, own = self._indices[shard], numbers[owners == shard] - self._offsets[shard]
            yield shard, index[np.searchsorted(index["number"], own)]

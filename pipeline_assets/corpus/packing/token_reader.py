"""Verified reads of the token ids of an encoded shard."""

import itertools
import os
import zlib
from collections.abc import Iterator
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.memmap import TOKEN_DTYPE
from pipeline_assets.corpus.packing.encoded_corpus import EncodedShard
from pipeline_assets.spine.errors import RetryableError

_BLOCK_TOKENS = 1 << 20


class TokenReader:
    """Reader of a file of token ids; it verifies each document by its checksum.

    A read raises RetryableError if the encoded ids of a document have changed.
    """

    def __init__(self, shard: EncodedShard) -> None:
        self._path, self._table = shard.token_file, shard.table

    def __enter__(self) -> Self:
        self._file = open(self._path, "rb", buffering=0)
        return self

    def __exit__(self, *failure: object) -> None:
        self._file.close()

    def read_document(self, document_index: int, buffer: memoryview) -> None:
        """Read a document's ids into `buffer`, which must have exactly their size."""
        self._read(buffer, int(self._table.starts[document_index]))
        self._verify(buffer, document_index)

    def read_blocks(self, start: int, stop: int) -> Iterator[NDArray[np.int32]]:
        """Yield the token ids [start, stop) of the shard, in blocks of up to 1 Mi ids.

        Blocks end where documents end; a document of more than 1 Mi ids is a block of its own. The first block begins
        at `start` and the last ends at `stop`, even within a document.
        """
        ends = self._table.starts + self._table.tokens
        first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist()  # documents of these two ids
        while first <= last:
            begin = int(self._table.starts[first])
            # The documents [first, after) fit in a block, or they are one document.
            after = int(np.searchsorted(ends, begin + _BLOCK_TOKENS, side="right"))
            after = min(max(after, first + 1), last + 1)
            ids = np.empty(int(ends[after - 1]) - begin, TOKEN_DTYPE)
            data = ids.data.cast("B")
            self._read(data, begin)
            byte_bounds = [0, *((ends[first:after] - begin) * TOKEN_DTYPE.itemsize).tolist()]
            for document, (low, high) in enumerate(itertools.pairwise(byte_bounds), first):
                self._verify(data[low:high], document)
            yield ids[max(start - begin, 0) : stop - begin]
            first = after

    def _read(self, buffer: memoryview, first_token: int) -> None:
        # `preadv` reads into the rows of a packed set directly; mapping the file would take half as long again.
        if os.preadv(self._file.fileno(), [buffer], first_token * TOKEN_DTYPE.itemsize) != len(buffer):
            raise self._changed_error("the file of token ids ends early")

    def _verify(self, ids: memoryview, document_index: int) -> None:
        if zlib.crc32(ids) != self._table.checksums[document_index]:
            raise self._changed_error("the token ids differ from those encoded")

    def _changed_error(self, what: str) -> RetryableError:
        return RetryableError(what, self._path, "run the same command again")

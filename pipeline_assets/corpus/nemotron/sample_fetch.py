"""Of large files of lines on a hub, the bytes that a sample reads: a thousand rows of 20 GB are no 20 GB of traffic.

Each file is one of its full size here, with holes (a sparse file) where nothing will be read. Files of Parquet,
compressed ones and small ones are fetched whole. The rows are those of a sample of the whole files: `plan_sample` looks
at sizes alone, and how many rows a piece gives for those before it is counted here as `read_shard` counts it.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pipeline_assets.corpus.formats.compression import codec_of
from pipeline_assets.corpus.nemotron.source_rows import is_blank, plan_sample, read_piece
from pipeline_assets.corpus.nemotron.split_files import format_of
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.readers.lines import lines_of, placed_lines
from pipeline_assets.corpus.readers.parquet import RowGroupRun
from pipeline_assets.corpus.readers.source_folder import HEAD_BYTES, ByteRange, SourceFile

BLOCK_BYTES = 1 << 22


@dataclass(frozen=True)
class SampledSplit:
    """The files of a split on a hub, and the folder where what is read of them is put.

    Attributes:
        files: as the listing has them, in order.
        folder: empty, of the build.
    """

    hub: HubFiles
    dataset: str
    revision: str
    files: Sequence[HubFile]
    folder: Path

    def fetch(self, rows: int) -> list[SourceFile]:
        """The files, of which at least what `plan_sample` reads for so many rows is here.

        Raises:
            InputError: from the hub.
        """
        found = [self._begun(number, file) for number, file in enumerate(self.files)]
        listed = {local.path: file for file, local in zip(self.files, found, strict=True)}
        for shard in plan_sample(found, rows):
            missing = 0
            for piece, limit in zip(shard.pieces, shard.limits or (), strict=True):
                missing += limit
                if isinstance(piece, ByteRange) and piece.file.path.parent == self.folder:
                    missing -= self._fill(piece, missing, listed[piece.file.path])
                elif isinstance(piece, RowGroupRun):
                    missing -= min(piece.rows, missing)
                else:
                    missing -= sum(1 for _ in read_piece(piece, missing))
        return found

    def _begun(self, number: int, file: HubFile) -> SourceFile:
        """The whole file, or one with its first block alone."""
        if format_of(file.path) == "jsonl" and file.size > 2 * BLOCK_BYTES:
            head = next(self._blocks(file, 0))
            if codec_of(head[:HEAD_BYTES]) is None:
                path = self.folder / f"{number}.jsonl"
                with open(path, "wb") as sparse:
                    sparse.truncate(file.size)
                    sparse.write(head)
                return SourceFile(path, file.path, file.size)
        return SourceFile(self.hub.fetch(self.dataset, self.revision, file).local, file.path, file.size)

    def _fill(self, piece: ByteRange, limit: int, file: HubFile) -> int:
        """Puts the first `limit` rows that begin in the piece where they belong, and what is read on the way to them;
        how many there are.

        The line before a piece ends at its first newline, from one byte before its start on.
        """
        first = max(piece.start - 1, 0)
        with open(piece.file.path, "r+b") as sparse:
            placed = lines_of(placed_lines(self._put(file, first, sparse), first, file.path), piece.stop)
            found = (place for place, line in placed if place >= piece.start and not is_blank(line))
            return sum(1 for _ in itertools.islice(found, limit))

    def _put(self, file: HubFile, first: int, sparse: BinaryIO) -> Iterator[bytes]:
        """The bytes of a file from `first` on, put where they belong before they are given."""
        place = first - first % BLOCK_BYTES
        for block in self._blocks(file, place):
            os.pwrite(sparse.fileno(), block, place)
            yield block[max(first - place, 0) :]
            place += len(block)

    def _blocks(self, file: HubFile, start: int) -> Iterator[bytes]:
        """Blocks of the file from `start` on, a multiple of their size, each kept in the cache."""
        for place in range(start, file.size, BLOCK_BYTES):
            stop = min(place + BLOCK_BYTES, file.size)
            yield self.hub.fetch(self.dataset, self.revision, file, place, stop).local.read_bytes()

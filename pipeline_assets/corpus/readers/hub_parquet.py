"""Parquet files on a hub, fetched in parts: footer and row groups."""

import bisect
import io
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.readers.hub_cache import Span, delete_spans
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.spine.errors import InputError

_TAIL_BYTES = 1 << 16  # most footers fit; otherwise a second request fetches the rest


class SpanFile(io.RawIOBase):
    """Hub file that is read from cached spans; reading other bytes raises OSError."""

    def __init__(self, size: int, spans: Sequence[Span]) -> None:
        super().__init__()
        self._size, self._position = size, 0
        self._spans = sorted(spans, key=lambda span: span.start)
        self._starts = [span.start for span in self._spans]
        self._files = [open(span.path, "rb") for span in self._spans]  # noqa: SIM115, closed in close()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        stop = self._size if size < 0 else min(self._size, self._position + size)
        parts = []
        while self._position < stop:
            # The last span that begins at or before the position; a sample of small row groups has a thousand.
            number = bisect.bisect_right(self._starts, self._position) - 1
            if number < 0 or self._spans[number].stop <= self._position:
                raise OSError(f"bytes {self._position} to {stop} were not fetched")
            span, file = self._spans[number], self._files[number]
            file.seek(self._position - span.start)
            block = file.read(min(stop, span.stop) - self._position)
            if not block:
                raise OSError(f"{span.path} was cut while it was read")
            parts.append(block)
            self._position += len(block)
        return b"".join(parts)

    def close(self) -> None:
        for file in self._files:
            file.close()
        super().close()


@dataclass(frozen=True)
class RowGroup:
    """Row group `number` of a hub file, stored in the bytes [start, stop)."""

    file: HubFile
    number: int
    first_row: int  # number in the file
    rows: int
    start: int
    stop: int
    text_bytes: int  # uncompressed size of the text column, the footer's only information about text lengths


def read_footer(hub: HubFiles, dataset: str, commit: str, file: HubFile) -> tuple[pq.FileMetaData, tuple[Span, ...]]:
    """Fetch a footer with at most two range requests; return its metadata and spans.

    If parsing fails, InputError is raised, and the footer is deleted from the cache, so that a retry fetches it again.
    """
    spans: tuple[Span, ...] = (hub.fetch(dataset, commit, file, max(0, file.size - _TAIL_BYTES), file.size),)
    tail = spans[0].path.read_bytes()
    # A Parquet file ends with the footer, the footer's length in four bytes, and PAR1.
    footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
    fix = "the file is damaged: pin another commit"
    if len(tail) < 12 or tail[-4:] != b"PAR1":
        what, fix = "the file is not Parquet", "correct `files` in the recipe"
    elif footer_bytes > file.size:
        what = "the Parquet footer is longer than the file"
    else:
        if footer_bytes > len(tail):
            spans = (hub.fetch(dataset, commit, file, file.size - footer_bytes, spans[0].start), *spans)
        try:
            with SpanFile(file.size, spans) as source:
                return pq.read_metadata(source), spans
        except (pa.ArrowException, OSError, ValueError) as error:  # ValueError: a column's name is not UTF-8
            what = f"the Parquet footer cannot be read ({error})"
    delete_spans(spans)
    raise InputError(what, f"{dataset}@{commit}:{file.path}", fix)


def list_row_groups(metadata: pq.FileMetaData, file: HubFile, text_column: str) -> list[RowGroup]:
    """List a file's row groups in order, each with the size of its text column."""
    groups, first_row = [], 0
    for number, group in enumerate(map(metadata.row_group, range(metadata.num_row_groups))):
        chunks = [group.column(column) for column in range(group.num_columns)]
        # A chunk begins with its first data page, or with a dictionary page; without rows, it may have neither.
        offsets = ((chunk.data_page_offset, chunk.dictionary_page_offset) for chunk in chunks)
        starts = [min(filter(None, pair), default=0) for pair in offsets]
        text_bytes = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == text_column)
        stop = max(start + chunk.total_compressed_size for start, chunk in zip(starts, chunks, strict=True))
        start = min(filter(None, starts), default=0)
        groups.append(RowGroup(file, number, first_row, group.num_rows, start, stop, text_bytes))
        first_row += group.num_rows
    return groups


def open_row_groups(file: HubFile, spans: Sequence[Span]) -> pq.ParquetFile:
    """Open a Parquet file; `spans` are its footer and the row groups to be read.

    Page checksums are verified. If the bytes are damaged, Arrow's own errors are raised.
    """
    return pq.ParquetFile(SpanFile(file.size, spans), pre_buffer=False, page_checksum_verification=True)

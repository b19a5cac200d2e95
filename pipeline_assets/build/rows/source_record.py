"""Records of source rows: the bytes of a row, or JSON for a row of Parquet."""

import json
from collections.abc import Iterator
from pathlib import PurePosixPath

from pipeline_assets.build.rows.source_row import AnySourceRow, LocalRow
from pipeline_assets.corpus.formats.parquet_rows import read_row
from pipeline_assets.corpus.harmony.message import replace_non_finite
from pipeline_assets.corpus.nemotron.parquet_values import to_json_value
from pipeline_assets.corpus.readers.csv_rows import read_csv
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.json_values import file_values, is_array_or_multiline_file
from pipeline_assets.corpus.readers.lines import line_blocks, split_lines
from pipeline_assets.corpus.readers.row_positions import source_file_at
from pipeline_assets.corpus.readers.source_folder import SourceFile, is_compressed
from pipeline_assets.corpus.readers.source_formats import COLUMN_FORMATS, detect_format
from pipeline_assets.spine.errors import InputError, UsageError

_BLOCK_BYTES = 1 << 22  # bytes per request to a hub for a file of lines
_PLAIN_SUFFIXES = frozenset({".jsonl", ".ndjson", ".ndjsonl", ".json"})


def read_record(row: AnySourceRow, hub: HubFiles) -> bytes:
    """Return a row's bytes without its last newline, or a Parquet row as JSON.

    If a hub file has uncompressed JSON lines, only the blocks with the row are fetched, and no check is made that a row
    begins at the position. Other hub files are fetched whole.

    Raises:
        UsageError: The file is not JSON, CSV or Parquet, or changed after the build read it.
        InputError: The file does not exist, or no row begins at the position.
    """
    name = row.path.name if isinstance(row, LocalRow) else row.path
    if detect_format(name) not in COLUMN_FORMATS:
        raise UsageError("file is not JSON, CSV or Parquet", row, "omit --record")
    if isinstance(row, LocalRow):
        if row.has_changed:
            raise UsageError("file changed after it was read", row, "restore the file")
        if (local := source_file_at(row.path)) is None:
            raise InputError("file not found", row.path, "restore the file")
        return _find_record(local, row.row)
    file = next((file for file in hub.list_files(row.dataset, row.commit) if file.path == row.path), None)
    if file is None:
        raise InputError("file not found in the commit", row, "check the address")
    is_line_number = row.is_numbered and detect_format(name) == "lines"
    if PurePosixPath(name).suffix in _PLAIN_SUFFIXES and not is_line_number:
        return _fetch_line(row.dataset, row.commit, file, row.row, hub)
    fetched = SourceFile(hub.fetch(row.dataset, row.commit, file).path, name, file.size)
    return _find_record(fetched, row.row, is_line_number)


def _find_record(file: SourceFile, position: int, is_line_number: bool = False) -> bytes:
    """Return the row at `position`; a row of Parquet is returned as JSON.

    The position is a row number, a byte offset or, if `is_line_number`, a number that counts nonblank lines from 0.
    """
    if detect_format(file.name) == "parquet":
        # The values equal those of normalized rows, except that nulls in objects are kept.
        value = replace_non_finite(to_json_value(read_row(file.path, position)))
        return json.dumps(value, ensure_ascii=False).encode()
    records: Iterator[tuple[int, bytes]]
    if is_line_number:
        records = enumerate(line for _, line in split_lines(line_blocks(file, 0), None) if line.strip())
    elif detect_format(file.name) == "csv":
        records = ((place, content) for place, content, _ in read_csv(file)[1])
    elif is_array_or_multiline_file(file):
        records = file_values(file)
    else:
        records = split_lines(line_blocks(file, 0 if is_compressed(file) else position), None)
    record = next((content for place, content in records if place == position), None)
    if record is None:
        what = f"row {position:,} not found" if is_line_number else f"no row begins at byte {position:,}"
        raise InputError(what, file.path, "check that the file is the one that was read")
    return record.rstrip(b"\r\n")


def _fetch_line(dataset: str, commit: str, file: HubFile, offset: int, hub: HubFiles) -> bytes:
    """Return the line at byte `offset` of a hub file; empty after the end of the file."""
    line = b""
    # From the block that contains `offset`, until a newline. Blocks begin at multiples of the block size, so that
    # neighbouring lines share cached blocks.
    for start in range(offset - offset % _BLOCK_BYTES, file.size, _BLOCK_BYTES):
        span = hub.fetch(dataset, commit, file, start, min(start + _BLOCK_BYTES, file.size))
        block = span.path.read_bytes()[max(offset - start, 0) :]  # without the bytes before `offset`
        head, newline, _ = block.partition(b"\n")
        line += head
        if newline:
            break
    return line.rstrip(b"\r")

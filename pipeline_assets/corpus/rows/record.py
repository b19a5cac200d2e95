"""The record of a source that a row was made from, byte for byte: of lines the line, of Parquet its row as JSON."""

import itertools
import json
from pathlib import PurePosixPath

from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.readers.hub_files import HubFile, HubFiles
from pipeline_assets.corpus.readers.lines import line_blocks, lines_of
from pipeline_assets.corpus.readers.source_folder import SourceFile, format_of
from pipeline_assets.corpus.rows.files import row_of_file
from pipeline_assets.corpus.rows.source_row import AnyRow, FileRow
from pipeline_assets.corpus.spine.errors import InputError, UsageError

_BLOCK_BYTES = 1 << 22  # of a file of lines on a hub, fetched at once
_PLAIN = frozenset({".jsonl", ".ndjson", ".json"})


def record_of(row: AnyRow, hub: HubFiles) -> bytes:
    """Without the newline of a line. Of plain lines on a hub, a few megabytes are fetched; other files whole.

    Raises:
        UsageError: its file is of another kind, or isn't what was read any more.
        InputError: from the hub; or there is no such record.
    """
    name = row.path.name if isinstance(row, FileRow) else row.path
    if format_of(name) not in ("lines", "parquet"):
        raise UsageError("its file is neither JSON lines nor Parquet", row, "leave out --record")
    if isinstance(row, FileRow):
        if row.has_changed:
            raise UsageError("its file changed since it was read", row, "restore the file")
        return _record_in(SourceFile(row.path, name, row.path.stat().st_size), row.row)
    file = next((one for one in hub.list_files(row.dataset, row.commit) if one.path == row.path), None)
    if file is None:
        raise InputError("the commit has no such file", row, "check the address")
    if row.is_numbered and format_of(name) == "lines":
        return _numbered_line(SourceFile(hub.fetch(row.dataset, row.commit, file).local, name, file.size), row.row)
    if PurePosixPath(name).suffix in _PLAIN:
        return _line_on_hub(row.dataset, row.commit, file, row.row, hub)
    return _record_in(SourceFile(hub.fetch(row.dataset, row.commit, file).local, name, file.size), row.row)


def _record_in(file: SourceFile, row: int) -> bytes:
    if format_of(file.name) == "parquet":
        with open_parquet(file.path) as opened:
            columns = opened.schema_arrow.names
        return json.dumps(row_of_file(file.path, row, columns), ensure_ascii=False, default=str).encode()
    start = row if PurePosixPath(file.name).suffix in _PLAIN else 0
    found = next((line for place, line in lines_of(line_blocks(file, start), None) if place == row), None)
    if found is None:
        raise InputError(f"no line begins at byte {row:,}", file.path, "check that the file is what was read")
    return found.rstrip(b"\r\n")


def _numbered_line(file: SourceFile, number: int) -> bytes:
    lines = (line for _, line in lines_of(line_blocks(file, 0), None) if line.strip())
    found = next(itertools.islice(lines, number, None), None)
    if found is None:
        raise InputError(f"it has no row {number:,}", file.path, "check that the file is what was read")
    return found.rstrip(b"\r\n")


def _line_on_hub(dataset: str, commit: str, file: HubFile, place: int, hub: HubFiles) -> bytes:
    line = b""
    for start in range(place - place % _BLOCK_BYTES, file.size, _BLOCK_BYTES):
        span = hub.fetch(dataset, commit, file, start, min(start + _BLOCK_BYTES, file.size))
        head, newline, _ = span.local.read_bytes()[max(place - start, 0) :].partition(b"\n")
        line += head
        if newline:
            break
    return line.rstrip(b"\r")

"""First rows of a hub dataset's files of JSON lines.

Reading cannot start in the middle of a compressed file, so a sample consists of first rows of files. A larger file
contributes more rows. JSON lines have no footer, so rows are counted while the bytes are fetched. In a snapshot's plan,
the first rows of a file are one row group. Row numbers start at 0 and skip blank lines, as in `datasets`.
"""

import functools
import io
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, BinaryIO

from pipeline_assets.corpus.formats.codecs import detect_codec, read_decompressed
from pipeline_assets.corpus.readers.column_recipe import column_fix
from pipeline_assets.corpus.readers.columns import find_column
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.hub_cache import Span, check_file_hash, delete_spans
from pipeline_assets.corpus.readers.hub_files import HubFiles, map_in_order
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_parquet import RowGroup
from pipeline_assets.corpus.readers.json_lines import parse_row, raise_if_array_or_multiline
from pipeline_assets.corpus.readers.lines import regroup_by_lines
from pipeline_assets.corpus.readers.source_folder import HEAD_BYTES
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe, Unit
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.files import seeded_sort_key
from pipeline_assets.spine.progress import Progress

# Minimum amount to read from a drawn file: a request for a few rows costs as much as one for a thousand.
MIN_SHARE: dict[Unit, int] = {"documents": 1000, "text_bytes": 1 << 22}
_FIRST_BLOCK_BYTES, _MAX_BLOCK_BYTES = 1 << 22, 1 << 26
_TEXT_BLOCK_BYTES = 1 << 20
_HEAD_ROWS = 100
_DAMAGED_FIX = "the file is damaged: pin another commit, or exclude it from `files`"


class SpanStream:
    """Stream of the bytes of consecutive spans, from the start of a file."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.read_spans: list[Span] = []  # opened so far
        self._remaining = iter(spans)
        self._file: BinaryIO = io.BytesIO()

    def close(self) -> None:
        self._file.close()

    def head(self) -> bytes:
        """Return at most HEAD_BYTES bytes without consuming them; call this before `read`."""
        head = self.read(HEAD_BYTES)
        if self.read_spans:
            self._file.seek(0)
        return head

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes of one span, at most `size`; b"" after the last span."""
        while not (block := self._file.read(size)):
            span = next(self._remaining, None)
            if span is None:
                return b""
            self._file.close()
            self.read_spans.append(span)
            self._file = open(span.path, "rb")  # noqa: SIM115 - closed above and at the end
        return block


@dataclass(frozen=True)
class Prefix:
    """First rows of a file of JSON lines: their number, size and columns."""

    rows: int
    line_bytes: int  # uncompressed
    stop: int  # number of bytes that were fetched, from the start of the file
    is_whole: bool  # these are all rows of the file
    is_compressed: bool
    columns: tuple[str, ...]  # that occur in the first 100 rows

    def row_group(self, file: HubFile) -> RowGroup:
        """Return a row group of `file` that consists of the rows of this prefix."""
        return RowGroup(file, 0, 0, self.rows, 0, self.stop, self.line_bytes)


def block_ranges(file_bytes: int, stop: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield consecutive byte ranges of a file of lines, until `stop` is reached.

    Each range is twice as long as the previous one, up to 64 MiB. So a few rows need little traffic, and a large file
    needs few requests. Without `stop`, the ranges cover the whole file.
    """
    start, step = 0, _FIRST_BLOCK_BYTES
    while start < (file_bytes if stop is None else stop):
        yield start, min(start + step, file_bytes)
        start, step = start + step, min(2 * step, _MAX_BLOCK_BYTES)


def row_lines(stream: SpanStream, where: str) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed; skip blank lines.

    The memory in use is one block, or the longest line if that is larger. If the file is damaged, delete its cached
    spans and raise InputError.
    """
    try:
        text = read_decompressed(stream, detect_codec(stream.head()), where, _DAMAGED_FIX, _TEXT_BLOCK_BYTES)
        for _, block in regroup_by_lines(text, 0, where):
            yield from (line for line in io.BytesIO(block) if not line.isspace())
    except RetryableError:
        raise
    except InputError:
        delete_spans(stream.read_spans)
        raise


def read_prefix(hub: HubFiles, recipe: SnapshotRecipe, unit: Unit, file: HubFile, limit: int | None) -> Prefix:
    """Read a file's first rows up to a limit; fetch only as many bytes as needed.

    `limit` counts rows if `unit` is `documents`, otherwise bytes of lines. The prefix ends with the line that reaches
    the limit; if `limit` is None, the prefix is the whole file. If the file is read to its end, its hash is checked.
    Raise UsageError if the text column or a rule's column is missing from all of the first 100 rows.
    """
    where = recipe.input_name(file.path)
    rows, line_bytes, is_whole = 0, 0, True
    head: list[dict[str, Any]] = []
    with closing(_open_stream(hub, recipe.dataset, recipe.revision, file)) as source:
        codec = detect_codec(source.head())
        for line in row_lines(source, where):
            if rows < _HEAD_ROWS:
                row = parse_row(line)
                head += [row] if isinstance(row, dict) else []
                if not rows and not head:
                    raise_if_array_or_multiline(line, where)
            rows, line_bytes = rows + 1, line_bytes + len(line)
            if limit is not None and (rows if unit == "documents" else line_bytes) >= limit:
                is_whole = False
                break
    if is_whole and len(source.read_spans) > 1:  # a single span was checked when it was fetched
        check_file_hash(file, source.read_spans, where)
    _check_columns(head, recipe, where)
    stop = source.read_spans[-1].stop if source.read_spans else 0
    return Prefix(rows, line_bytes, stop, is_whole, codec is not None, _column_names(head))


def _open_stream(hub: HubFiles, dataset: str, commit: str, file: HubFile) -> SpanStream:
    """Open a hub file as a stream that fetches each byte range when it is read."""
    return SpanStream(hub.fetch(dataset, commit, file, start, stop) for start, stop in block_ranges(file.size))


def head_columns(hub: HubFiles, dataset: str, commit: str, file: HubFile) -> tuple[str, ...]:
    """Return the columns that occur in the first 100 rows of a file."""
    with closing(_open_stream(hub, dataset, commit, file)) as source:
        lines = row_lines(source, f"{dataset}@{commit}:{file.path}")
        return _column_names(parse_row(line) for line in itertools.islice(lines, _HEAD_ROWS))


def draw_prefixes(
    files: Sequence[HubFile],
    read_file: Callable[[HubFile, int | None], Prefix],
    seed: str,
    limit: tuple[Unit, int],
    threads: int,
    progress: Progress,
) -> dict[str, Prefix]:
    """Read first rows of files until an amount is reached; return prefixes by path.

    `limit` is a unit and an amount. With the unit `files`, the amount is the number of files, which are read whole.
    Otherwise, files are read in random order until the amount is reached. Each file has a share of the amount that is
    proportional to its size, but at least `MIN_SHARE`. `read_file` reads a file's first rows up to a limit, or all rows
    if the limit is None.
    """
    unit, amount = limit
    ranked = sorted(files, key=lambda file: seeded_sort_key(seed, file.path))
    drawn: dict[str, Prefix] = {}
    requests: dict[HubFile, int | None] = dict.fromkeys(ranked[:amount])
    if unit != "files":
        requests = dict(_allot_shares(ranked, amount, unit))
    while requests:
        prefixes = map_in_order(lambda request: read_file(*request), requests.items(), threads)
        for file, prefix in zip(requests, prefixes, strict=True):
            drawn[file.path] = prefix
            progress.add(1, {"rows": prefix.rows})
        totals = {path: prefix.rows if unit == "documents" else prefix.line_bytes for path, prefix in drawn.items()}
        unfinished = [file for file in ranked if file.path not in drawn or not drawn[file.path].is_whole]
        remaining = 0 if unit == "files" else amount - sum(totals.values())
        shares = _allot_shares(unfinished, remaining, unit)
        requests = {file: share + totals.get(file.path, 0) for file, share in shares}
    return {file.path: drawn[file.path] for file in ranked if file.path in drawn}


def read_prefixes(
    hub: HubFiles,
    recipe: SnapshotRecipe,
    listing: Sequence[HubFile],
    settings: RunSettings,
    pinned_inputs: Sequence[Mapping[str, Any]],
) -> dict[str, Prefix]:
    """Return the pinned prefixes by path; if `pinned_inputs` is empty, draw prefixes."""
    if pinned_inputs:
        entries = {entry["name"]: entry for entry in pinned_inputs if "row_groups" in entry}
        listed = [(file, entries.get(recipe.input_name(file.path))) for file in listing]
        return {file.path: _pinned_prefix(hub, recipe, file, entry) for file, entry in listed if entry is not None}
    limit = recipe.amount.limit
    progress = Progress(f"draw {recipe.source}", len(listing), "files", settings.log_every_s)
    read = functools.partial(read_prefix, hub, recipe, limit[0])
    return draw_prefixes(listing, read, recipe.seed, limit, settings.fetch_threads, progress)


def _pinned_prefix(hub: HubFiles, recipe: SnapshotRecipe, file: HubFile, entry: Mapping[str, Any]) -> Prefix:
    """Return the prefix of a file, as pinned by `entry`, an input in a manifest."""
    [group] = entry["row_groups"]
    rows, stop = group["rows"], group["stop"]
    head = read_prefix(hub, recipe, "documents", file, min(rows, _HEAD_ROWS) or None)  # for columns and compression
    line_bytes = stop * (4 if head.is_compressed else 1)  # an estimate
    return Prefix(rows, line_bytes, stop, stop == file.size, head.is_compressed, head.columns)


def _allot_shares(files: Sequence[HubFile], amount: int, unit: Unit) -> Iterator[tuple[HubFile, int]]:
    """Yield each file with its share of the amount, until the amount is used up."""
    total_bytes = max(sum(file.size for file in files), 1)
    remaining = amount
    for file in files:
        if remaining <= 0:
            return
        proportional = -(-amount * file.size // total_bytes)  # rounded up in integers: -(-a // b)
        share = min(remaining, max(MIN_SHARE[unit], proportional))
        remaining -= share
        yield file, share


def _check_columns(rows: Sequence[dict[str, Any]], recipe: SnapshotRecipe, where: str) -> None:
    """Raise UsageError for a required column that no row has; accept empty `rows`."""
    for column, fix in ({recipe.columns.text: column_fix("text")} | recipe.rule_columns()).items():
        if rows and not any(find_column(row, column) for row in rows):
            names = ", ".join(_column_names(rows)) or "none"
            raise UsageError(f"column `{column}` not found in the first rows; they have {names}", where, fix)


def _column_names(rows: Iterable[dict[str, Any] | Fault]) -> tuple[str, ...]:
    """Return the distinct column names of rows, in order of first occurrence."""
    return tuple(dict.fromkeys(name for row in rows if isinstance(row, dict) for name in row))

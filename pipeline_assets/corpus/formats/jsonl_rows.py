"""Rows of `.jsonl.zst` files, read by their numbers."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.typed_values import json_decoder

T = TypeVar("T")


def read_line(path: Path, row: int, row_type: type[T]) -> T:
    """Decode a line, numbered from 0; raise InputError if it is missing or invalid."""
    return read_chosen_lines([(path, row)], row_type)[path, row]


def read_chosen_lines(positions: Iterable[tuple[Path, int]], row_type: type[T]) -> dict[tuple[Path, int], T]:
    """Map each (file, row number) pair in `positions` to its decoded line.

    Rows are numbered from 0. Each file is read once. Raise InputError if a line is missing or invalid.
    """
    rows_by_path: dict[Path, set[int]] = {}
    for path, row in positions:
        rows_by_path.setdefault(path, set()).add(row)
    lines = ((path, _chosen_lines(path, rows, row_type)) for path, rows in rows_by_path.items())
    return {(path, row): line for path, decoded in lines for row, line in decoded}


def _chosen_lines(path: Path, row_numbers: set[int], row_type: type[T]) -> Iterator[tuple[int, T]]:
    decoder, first_row, last_row = json_decoder(row_type), 0, max(row_numbers)
    for block in read_line_blocks(path):
        next_first_row = first_row + block.count(b"\n")
        rows_of_block = sorted(row for row in row_numbers if first_row <= row < next_first_row)
        lines = block.split(b"\n") if rows_of_block else []
        for row in rows_of_block:
            try:
                yield row, decoder.decode(lines[row - first_row])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                what = f"row {row} is not a {row_type.__name__} ({error})"
                raise InputError(what, path, "run `corpusmill verify` on its folder") from None
        first_row = next_first_row
        if first_row > last_row:
            return
    what = f"row {last_row:,} not found, because the file has {pluralize(first_row, 'row')}"
    raise InputError(what, path, "run `corpusmill verify` on its folder")

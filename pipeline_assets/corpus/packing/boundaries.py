"""Where documents begin in rows, as arrays: for masks that let a document attend to itself alone."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.memmap import BOUNDARIES, BOUNDARY_OFFSETS
from pipeline_assets.corpus.packing.plan_files import PlanFiles, mapped
from pipeline_assets.corpus.spine.building import Building, OutputFile
from pipeline_assets.corpus.spine.durable import DurableFile

_CHUNK_ROWS = 1 << 16


def write_boundaries(building: Building, plan: PlanFiles) -> list[OutputFile]:
    """`boundaries.npy` and `boundary_offsets.npy`, see `formats.memmap`."""
    row_starts = mapped(plan.row_starts, np.int64)
    with DurableFile(building.path(BOUNDARIES)) as boundaries:
        _write_header(boundaries, "<i4", (int(row_starts[-1]), 2))
        for chunk in _boundaries(plan):
            boundaries.write(chunk.data)
    with DurableFile(building.path(BOUNDARY_OFFSETS)) as offsets:
        _write_header(offsets, "<i8", row_starts.shape)
        offsets.write(row_starts.data)
    return [
        OutputFile.plain(BOUNDARIES, int(row_starts[-1]), boundaries),
        OutputFile.plain(BOUNDARY_OFFSETS, len(row_starts), offsets),
    ]


def _boundaries(plan: PlanFiles) -> Iterator[NDArray[np.int32]]:
    row_starts, lengths = mapped(plan.row_starts, np.int64), mapped(plan.lengths, np.int32)
    for first in range(0, len(row_starts) - 1, _CHUNK_ROWS):
        of_rows = row_starts[first : first + _CHUNK_ROWS + 1]
        pieces = lengths[of_rows[0] : of_rows[-1]]
        begins = np.cumsum(pieces, dtype=np.int64) - pieces
        of_first = begins[of_rows[:-1] - of_rows[0]]
        in_row = begins - np.repeat(of_first, np.diff(of_rows))
        yield np.stack([in_row, pieces], axis=1).astype(np.int32)


def _write_header(file: DurableFile, kind: str, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})

"""Files with the boundaries of documents in rows, for attention masks."""

import numpy as np

from pipeline_assets.corpus.formats import memmap
from pipeline_assets.corpus.formats.checked_file import map_values
from pipeline_assets.corpus.formats.npy_header import write_npy_header
from pipeline_assets.corpus.packing.plan_format import PlanFiles
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.staging import OutputFile, StagingDir

_CHUNK_ROWS = 1 << 16


def write_boundaries(staging: StagingDir, plan: PlanFiles) -> list[OutputFile]:
    """Write boundaries.npy and boundary_offsets.npy; see `formats.memmap`."""
    row_starts = map_values(plan.row_starts, np.int64)
    with DurableFile(staging.path(memmap.BOUNDARIES_FILE)) as boundaries:
        write_npy_header(boundaries, "<i4", (int(row_starts[-1]), 2))
        for first in range(0, len(row_starts) - 1, _CHUNK_ROWS):
            starts = row_starts[first : first + _CHUNK_ROWS + 1]
            pieces = map_values(plan.lengths, np.int32, int(starts[0]), int(starts[-1]))
            # Tokens of the chunk before each segment, less those before the first segment of its row, give its position
            # in the row.
            begins = np.cumsum(pieces, dtype=np.int64) - pieces
            in_row = begins - np.repeat(begins[starts[:-1] - starts[0]], np.diff(starts))
            boundaries.write(np.stack([in_row, pieces], axis=1).astype(np.int32).data)
    with DurableFile(staging.path(memmap.BOUNDARY_OFFSETS_FILE)) as offsets:
        write_npy_header(offsets, "<i8", row_starts.shape)
        offsets.write(row_starts.data)
    return [
        OutputFile.uncompressed(memmap.BOUNDARIES_FILE, int(row_starts[-1]), boundaries),
        OutputFile.uncompressed(memmap.BOUNDARY_OFFSETS_FILE, len(row_starts), offsets),
    ]

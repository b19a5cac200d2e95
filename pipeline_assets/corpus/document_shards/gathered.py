"""What the shards of a stage say, in one file."""

import hashlib
from collections.abc import Iterable

from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.spine.building import Building, OutputFile
from pipeline_assets.corpus.spine.durable import DurableFile


def gather_lines(building: Building, parts: Iterable[OutputFile], name: str, zstd_level: int) -> OutputFile:
    """The lines of some `.jsonl.zst` files of the building folder, one file after the other."""
    with JsonlZstWriter(building.path(name), zstd_level) as writer:
        for part in parts:
            for block in read_line_blocks(building.path(part.path)):
                writer.write_lines(block, block.count(b"\n"))
    return writer.output(name)


def gather_frames(building: Building, parts: Iterable[OutputFile], name: str) -> OutputFile:
    """As `gather_lines`, but each part stays a zstd frame of its own: nothing is compressed again, and a line can be
    read without those of the parts before.
    """
    content, rows = hashlib.sha256(), 0
    with DurableFile(building.path(name)) as file:
        for part in parts:
            path = building.path(part.path)
            for block in read_line_blocks(path):
                content.update(block)
            file.append(path, part.bytes)
            rows += part.rows
    return OutputFile(name, rows, file.bytes_written, file.sha256, content.hexdigest())

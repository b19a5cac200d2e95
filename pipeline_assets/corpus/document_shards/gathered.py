"""What the shards of a stage say, in one file."""

from collections.abc import Iterable

from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.spine.building import Building, OutputFile


def gather_lines(building: Building, parts: Iterable[OutputFile], name: str, zstd_level: int) -> OutputFile:
    """The lines of some `.jsonl.zst` files of the building folder, one file after the other."""
    with JsonlZstWriter(building.path(name), zstd_level) as writer:
        for part in parts:
            for block in read_line_blocks(building.path(part.path)):
                writer.write_lines(block, block.count(b"\n"))
    return writer.output(name)

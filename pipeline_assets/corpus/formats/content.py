"""What a file of an artifact says, free of how it is stored: the hash that the artifact's digest covers."""

import hashlib
from pathlib import Path

from pipeline_assets.corpus.formats import parquet
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks


def content_sha256(path: Path) -> str:
    """Content hash of a compressed or a Parquet file, read in blocks: memory stays that of one.

    Raises:
        InputError, ArrowException, OSError: it can't be read as what it should be.
    """
    if path.suffix == ".parquet":
        return parquet.content_sha256(path)
    digest = hashlib.sha256()
    for block in read_line_blocks(path):
        digest.update(block)
    return digest.hexdigest()

"""Document shards of installed programs and documentation, or of a folder."""

import hashlib
from itertools import count, islice
from pathlib import Path

import msgspec
from pages import installed_pieces

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks

_SHARD_BYTES = 32 << 20
_encoder = msgspec.json.Encoder()


def write_shards(folder: Path, text_mb: int) -> tuple[list[Path], int, str]:
    """Write about `text_mb` of text as `.jsonl.zst` shards of 32 MiB.

    Return the paths, the number of bytes in all lines, and the sha256 of all lines.
    """
    paths: list[Path] = []
    digest = hashlib.sha256()
    written = 0
    texts = (f"Edition {copy}.\n{text}" if copy else text for copy in count() for text in installed_pieces())
    documents = enumerate(texts)
    while written < text_mb * 1_000_000:
        path = folder / f"{len(paths):05d}.jsonl.zst"
        with JsonlZstWriter(path, 3) as writer:
            while writer.content_bytes < _SHARD_BYTES and written < text_mb * 1_000_000:
                rows = [_encoder.encode(_document(number, text)) + b"\n" for number, text in islice(documents, 100)]
                lines = b"".join(rows)
                writer.write_lines(lines, len(rows))
                digest.update(lines)
                written += len(lines)
        paths.append(path)
    return paths, written, digest.hexdigest()


def link_shards(source: Path, folder: Path) -> tuple[list[Path], int, str]:
    """Link existing shards into `folder`; return what `write_shards` returns."""
    digest, size, paths = hashlib.sha256(), 0, []
    for number, path in enumerate(sorted(source.glob("*.jsonl.zst"))):
        paths.append(folder / f"{number:05d}.jsonl.zst")
        paths[-1].symlink_to(path.absolute())
        for block in read_line_blocks(path):
            digest.update(block)
            size += len(block)
    return paths, size, digest.hexdigest()


def _document(number: int, text: str) -> Document:
    return Document(
        text, "installed", "code", f"piece-{number}", "psf-2.0", "", Meta.from_mapping("pieces", number, {})
    )

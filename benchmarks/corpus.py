"""The input of the benchmarks: pages of docstrings again and again under new ids, as sealed Document shards."""

import hashlib
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
from pages import write_pages

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.compression import JsonlZstWriter, read_line_blocks

_SHARD_BYTES = 32 << 20
_encoder = msgspec.json.Encoder()


def write_shards(folder: Path, text_mb: int) -> tuple[list[Path], int, str]:
    """About `text_mb` of text as `.jsonl.zst` shards of 32 MiB: the paths, the bytes of their lines, their sha256."""
    source = folder / "source"
    write_pages(source)
    rows = [
        row for row in pq.ParquetDataset(source / "data").read().to_pylist() if row["text"] and "\0" not in row["text"]
    ]
    paths: list[Path] = []
    digest = hashlib.sha256()
    written = copy = 0
    while written < text_mb * 1_000_000:
        path = folder / f"{len(paths):05d}.jsonl.zst"
        with JsonlZstWriter(path, 3) as writer:
            while writer.content_bytes < _SHARD_BYTES and written < text_mb * 1_000_000:
                lines = b"".join(_encoder.encode(_edition(row, copy)) + b"\n" for row in rows)
                writer.write_lines(lines, len(rows))
                digest.update(lines)
                written += len(lines)
                copy += 1
        paths.append(path)
    return paths, written, digest.hexdigest()


def link_shards(source: Path, folder: Path) -> tuple[list[Path], int, str]:
    """Shards that are there already, as `write_shards` returns its own."""
    digest, size, paths = hashlib.sha256(), 0, []
    for number, path in enumerate(sorted(source.glob("*.jsonl.zst"))):
        paths.append(folder / f"{number:05d}.jsonl.zst")
        paths[-1].symlink_to(path.absolute())
        for block in read_line_blocks(path):
            digest.update(block)
            size += len(block)
    return paths, size, digest.hexdigest()


def _edition(row: dict[str, object], copy: int) -> Document:
    meta = Meta.of("demo.parquet", 0, {name: value for name, value in row.items() if name not in ("text", "id")})
    text = f"Edition {copy}, number {copy * 7919}.\n{row['text']}"
    return Document(text, "demo", "web", f"{row['id']}-{copy}", "psf-2.0", "", meta)

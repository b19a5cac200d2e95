"""Flows that build.py and snapshot.py compare, each with its worker processes.

    python flows.py NAME FOLDER WORKERS

The flows from Document shards to token ids print their number and leave FOLDER/bare and FOLDER/corpusmill/split, whose
files build.py proves equal. Without workers, a flow is one process.
"""

import functools
import importlib
import json
import multiprocessing
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

END_OF_TEXT = 199_999
VOCABULARY_PATH = Path(__file__).parents[1] / "pipeline_assets" / "corpus" / "tokens" / "o200k_base.tiktoken"


@functools.cache
def gigatoken_once() -> Any:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_tiktoken(VOCABULARY_PATH, pretokenizer="o200k", special_tokens={})
    tokenizer.encode_batch(["the first text builds tables"], parallel=False)
    return tokenizer


def line_blocks(path: Path) -> Iterator[bytes]:
    """Yield whole lines in blocks of a MiB, which fit the processor's cache."""
    import zstandard

    pending = b""
    with open(path, "rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        while block := stream.read(1 << 20):
            end = block.rfind(b"\n") + 1
            if end:
                yield pending + block[:end]
            pending = block[end:] if end else pending + block
    if pending:
        yield pending


class BareShard(NamedTuple):
    """Documents of a shard that `bare` encoded: ids, and tokens with end tokens."""

    doc_ids: list[str]
    lengths: Any


def encode_bare(path: Path, output: BinaryIO) -> BareShard:
    """Encode a shard with zstandard, msgspec, gigatoken and numpy, and sync nothing."""
    import msgspec
    import numpy as np

    class Row(msgspec.Struct, gc=False):
        doc_id: str
        text: str

    tokenizer = gigatoken_once()
    decoder = msgspec.json.Decoder(Row)
    doc_ids, lengths = list[str](), []
    for block in line_blocks(path):
        rows = decoder.decode_lines(block)
        layout = tokenizer.encode_batch([row.text for row in rows], parallel=False).layout
        offsets = np.asarray(layout.offsets.data)
        ids = np.full(int(offsets[-1]) + len(offsets) - 1, END_OF_TEXT, np.int32)
        is_text = np.ones(len(ids), bool)
        is_text[offsets[1:] + np.arange(len(offsets) - 1)] = False
        ids[is_text] = np.asarray(layout.content.data)
        output.write(ids.data)
        doc_ids += [row.doc_id for row in rows]
        lengths.append(np.diff(offsets).astype(np.int32) + 1)
    return BareShard(doc_ids, np.concatenate(lengths))


def bare_shard(path: Path) -> BareShard:
    with open(path.with_suffix(".bare"), "wb", buffering=0) as output:
        return encode_bare(path, output)


def bare(folder: Path, workers: int) -> None:
    """Write a Megatron pair and its table of documents: no hash, receipt or sync."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipeline_assets.corpus.formats.arrow_columns import repeat_text, string_column, to_arrow  # else: pandas

    paths, target = shards(folder), folder / "bare"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    gigatoken_once()
    with open(target / "tokens.bin", "wb", buffering=0) as output:
        if workers == 0:
            encoded = [encode_bare(path, output) for path in paths]
        else:
            with multiprocessing.get_context("fork").Pool(workers) as pool:
                encoded = pool.map(bare_shard, paths, chunksize=1)
            for part in [path.with_suffix(".bare") for path in paths]:
                with open(part, "rb") as file:
                    while os.copy_file_range(file.fileno(), output.fileno(), 1 << 30):
                        pass
                part.unlink()
    tokens = np.concatenate([shard.lengths for shard in encoded])
    pointers, documents = 4 * (np.cumsum(tokens, dtype=np.int64) - tokens), np.arange(len(tokens) + 1)
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 4, len(tokens), len(documents))
    (target / "tokens.idx").write_bytes(header + tokens.tobytes() + pointers.tobytes() + documents.tobytes())
    sizes = [len(shard.doc_ids) for shard in encoded]
    columns = {
        "doc_id": pa.chunked_array([string_column(shard.doc_ids) for shard in encoded]),
        "source_shard": pa.chunked_array(
            [repeat_text(path.name, size) for path, size in zip(paths, sizes, strict=True)]
        ),
        "row": to_arrow(np.concatenate([np.arange(size) for size in sizes])),
        "tokens": to_arrow(tokens),
    }
    pq.write_table(pa.table(columns), target / "documents.parquet", compression="zstd")
    print(int(tokens.sum()))


def bare_rows(path: Path) -> Path:
    """Write every row as a line of JSON with pyarrow, orjson and zstandard alone."""
    import orjson
    import pyarrow.parquet as pq
    import zstandard

    target = path.with_suffix(".jsonl.zst")
    with open(target, "wb") as output, zstandard.ZstdCompressor(level=3).stream_writer(output) as stream:
        for batch in pq.ParquetFile(path).iter_batches(1024, use_threads=False):
            stream.write(b"".join(orjson.dumps(row) + b"\n" for row in batch.to_pylist()))
    return target


def snapshot(folder: Path, workers: int) -> None:
    """Run the real snapshot from cached hub files, with all checks and syncs."""
    from pipeline_assets.corpus.readers.hub_files import HubFiles
    from pipeline_assets.corpus.snapshot.convert import take_snapshot
    from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
    from pipeline_assets.spine.engine import RunSettings
    from pipeline_assets.spine.opening import open_staging_dir

    recipe = SnapshotRecipe.model_validate_json((folder / "recipe.json").read_bytes(), strict=False)
    target = folder / "taken" / "snapshot"
    shutil.rmtree(target.parent, ignore_errors=True)
    with open_staging_dir(target, {}) as building:
        hub = HubFiles(folder / "cache", endpoint="http://127.0.0.1:9")
        content = take_snapshot(building, hub, recipe, RunSettings(workers))
    print(content.counts["documents"])


def bare_snapshot(folder: Path, workers: int) -> None:
    for library in ("orjson", "pyarrow.parquet", "zstandard"):  # once, before the fork
        importlib.import_module(library)
    paths = sorted(folder.glob("hub/datasets/*/*/data/*/*.parquet"))
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for target in pool.map(bare_rows, paths, chunksize=1):
            target.unlink()


def corpusmill_read(folder: Path) -> None:
    """Read every Document of the shards with the project's reader."""
    import msgspec

    from pipeline_assets.corpus.document import Document
    from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks

    decoder = msgspec.json.Decoder(Document)
    print(sum(len(decoder.decode_lines(block)) for path in shards(folder) for block in read_line_blocks(path)))


def bare_read(folder: Path) -> None:
    """Read every Document with zstandard and msgspec, a MiB at a time."""
    import msgspec

    from pipeline_assets.corpus.document import Document

    decoder = msgspec.json.Decoder(Document)
    print(sum(len(decoder.decode_lines(block)) for path in shards(folder) for block in line_blocks(path)))


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl.zst"))


def corpusmill(folder: Path, workers: int) -> None:
    """Run the real stage: with all checks and syncs, and sealed."""
    from pipeline_assets.corpus.megatron_split import MegatronRecipe, build_split
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
    from pipeline_assets.spine.artifact import Artifact
    from pipeline_assets.spine.engine import RunSettings
    from pipeline_assets.spine.manifest import FileContent, Identity, Manifest, StageVersion
    from pipeline_assets.spine.opening import open_staging_dir

    recipe = MegatronRecipe.model_validate(
        {
            "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
            "token_budget": 10**12,
            "valid_fraction": "0",
        }
    )
    files = [FileContent(name, rows, "") for name, rows in json.loads((folder / "rows.json").read_text()).items()]
    target = folder / "corpusmill" / "split"
    shutil.rmtree(target.parent, ignore_errors=True)
    sealed_by = {"dataset": "benchmark", "language": None, "amount": {}}  # a snapshot's decisions, which a plan reads
    counts = {"documents": 1, "text_bytes": 0}
    identity = Identity(StageVersion("snapshot", 1), sealed_by, [], None, {}, counts, files)
    corpus = Artifact(folder, Manifest("healing/text", "benchmark", identity, [], {}))
    with open_staging_dir(target, {}) as building:
        built = build_split(building, corpus, files, recipe, "train", RunSettings(workers))
        identity = Identity(
            StageVersion("split", 1),
            {},
            [],
            None,
            built.decisions,
            built.counts,
            [file.content for file in built.files],
        )
        stored = [file.stored for file in built.files]
        building.seal(Manifest("healing/split", "benchmark", identity, stored, {}))
    print(built.counts["tokens"])


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `corpusmill` does: idle BLAS threads would spin
    name, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    match name:
        case "bare":
            bare(folder, workers)
        case "corpusmill":
            corpusmill(folder, workers)
        case "bare snapshot":
            bare_snapshot(folder, workers)
        case "snapshot":
            snapshot(folder, workers)
        case "bare read":
            bare_read(folder)
        case "read":
            corpusmill_read(folder)

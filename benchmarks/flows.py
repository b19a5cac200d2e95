"""Flows that build.py and snapshot.py compare, each with its worker processes.

    python flows.py NAME FOLDER WORKERS

The flows from Document shards to token ids print the number of tokens and the sha256 of the ids, so that they are
compared only when their ids are proven equal.
"""

import functools
import hashlib
import json
import multiprocessing
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

END_OF_TEXT = 199_999
VOCABULARY = Path(__file__).parents[1] / "pipeline_assets" / "corpus" / "tokens" / "o200k_base.tiktoken"


@functools.cache
def gigatoken_once() -> Any:
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_tiktoken(VOCABULARY, pretokenizer="o200k", special_tokens={})
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


def bare_shard(path: Path) -> Path:
    """Encode a shard with zstandard, msgspec, gigatoken and numpy, and sync nothing."""
    import msgspec
    import numpy as np

    class Row(msgspec.Struct):
        text: str

    tokenizer = gigatoken_once()
    decoder = msgspec.json.Decoder(Row)
    target = path.with_suffix(".bare")
    with open(target, "wb") as output:
        for block in line_blocks(path):
            texts = [row.text for row in decoder.decode_lines(block)]
            layout = tokenizer.encode_batch(texts, parallel=False).layout
            offsets = np.asarray(layout.offsets.data)
            ids = np.full(int(offsets[-1]) + len(offsets) - 1, END_OF_TEXT, np.int32)
            is_text = np.ones(len(ids), bool)
            is_text[offsets[1:] + np.arange(len(offsets) - 1)] = False
            ids[is_text] = np.asarray(layout.content.data)
            ids.tofile(output)
    return target


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
    paths = sorted(folder.glob("hub/datasets/*/*/data/*/*.parquet"))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
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


def in_a_pool(work: object, folder: Path, workers: int) -> None:
    """Encode the shards in a pool, whose tokenizer is loaded before the fork."""
    gigatoken_once()
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        targets = pool.map(work, shards(folder), chunksize=1)  # type: ignore[arg-type]
    report(targets)


def corpusmill(folder: Path, workers: int) -> None:
    """Run the real stage and merge its shards, with all checks and syncs."""
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
    target = folder / "built" / "split"
    shutil.rmtree(target.parent, ignore_errors=True)
    sealed_by = {
        "dataset": "benchmark",
        "language": None,
        "amount": {},
    }  # the decisions of a snapshot that a plan reads
    counts = {"documents": 1, "text_bytes": 0}
    identity = Identity(StageVersion("snapshot", 1), sealed_by, [], None, {}, counts, files)
    corpus = Artifact(folder, Manifest("healing/text", "benchmark", identity, [], {}))
    with open_staging_dir(target, {}) as building:
        build_split(building, corpus, files, recipe, "train", RunSettings(workers))
        print_digest([building.path("tokens.bin")])


def report(targets: list[Path]) -> None:
    print_digest(targets)
    for target in targets:
        target.unlink()


def print_digest(paths: list[Path]) -> None:
    """Print a digest of the files, by which build.py compares the flows."""
    digest, size = hashlib.sha256(), 0
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                size += len(block)
    print(size // 4, digest.hexdigest())


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as `corpusmill` does: idle BLAS threads would spin
    name, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    match name:
        case "bare":
            in_a_pool(bare_shard, folder, workers)
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

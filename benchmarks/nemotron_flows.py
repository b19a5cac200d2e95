"""Flows that nemotron_split.py measures: files of raw rows in, Parquet out.

    python nemotron_flows.py FLOW FORMAT FOLDER WORKERS SPLIT ...

`corpusmill` builds sealed artifacts in FOLDER/built; `bare` and `library` are the ceiling and the peer. WORKERS is the
JSON decoder for `bare`.
"""

import functools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from nemotron_input import Row, Split, real_splits, row_texts

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.nemotron.normalise_split import normalise_split
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE, RowsRecipe
from pipeline_assets.corpus.nemotron.source_rows import SCAN_SHARD_BYTES
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, VOCABULARY_SHA256, load_encoder
from pipeline_assets.spine.engine import RunSettings

RULES = RowsRecipe(shard_bytes=SCAN_SHARD_BYTES, max_reject_fraction="0")
DECODERS: dict[str, Callable[[bytes], Any]] = {"msgspec": msgspec.json.Decoder().decode, "orjson": orjson.loads}
_BLOCK_ROWS, _BLOCK_CHARACTERS = 256, 8 << 20


def corpusmill(kind: str, folder: Path, workers: int, splits: list[Split]) -> None:
    """Build one sealed artifact per split from scratch; print rows and tokens."""
    root = folder / "built"
    shutil.rmtree(root, ignore_errors=True)
    rows = tokens = 0
    for split in splits:
        path = split.path(folder, kind)
        normalise = functools.partial(
            normalise_split,
            files=[SourceFile(path, path.name, path.stat().st_size)],
            origin=replace(split.origin, file=path.name),
            rules=RULES,
            settings=RunSettings(workers),
        )
        target = Target(unknown_kind("made/rows", NORMALISE_STAGE), "benchmark", Path(split.name), {})
        counts = build_target(target, root, normalise, False, {}).manifest.identity.counts
        rows, tokens = rows + counts["documents"], tokens + counts["tokens"]
    print(rows, tokens)


def bare(kind: str, folder: Path, decoder: str, splits: list[Split]) -> None:
    """Decode, encode and write five columns; print rows and tokens.

    Nothing is rendered, checked, hashed or synced.
    """
    encoder = load_encoder(VOCABULARY_SHA256)
    schema = pa.schema(
        [(name, pa.string()) for name in ("id", "text", "license")]
        + [("metadata", pa.binary()), ("tokens", pa.int32())]
    )
    rows = tokens = 0
    for split in splits:
        path = split.path(folder, kind)
        read = _lines(path, DECODERS[decoder]) if kind == "jsonl" else _batches(path)
        target = folder / "bare" / f"{split.name}.parquet"
        target.parent.mkdir(exist_ok=True)
        with pq.ParquetWriter(target, schema, compression="zstd") as writer:
            for block in read:
                texts = ["\n".join(row_texts(row)) for row in block]
                runs = encoder.encode(texts)
                columns = [
                    [str(row.get("uuid")) for row in block],
                    texts,
                    [row.get("license") for row in block],
                    [msgspec.json.encode(row.get("metadata")) for row in block],
                    runs.lengths,
                ]
                writer.write_table(pa.table(columns, schema))
                rows, tokens = rows + len(block), tokens + len(runs.ids)
    print(rows, tokens)


def _lines(path: Path, decode: Callable[[bytes], Row]) -> Iterator[list[Row]]:
    block: list[Row] = []
    characters = 0
    with open(path, "rb") as file:
        for line in file:
            block.append(decode(line))
            characters += len(line)
            if len(block) == _BLOCK_ROWS or characters >= _BLOCK_CHARACTERS:
                yield block
                block, characters = [], 0
    if block:
        yield block


def _batches(path: Path) -> Iterator[list[Row]]:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        for batch in file.iter_batches(_BLOCK_ROWS, use_threads=False):
            yield batch.to_pylist()


def library(kind: str, folder: Path) -> None:
    """Run `datasets.map` over a plain openai-harmony loop: render, decode, parse.

    Its rows are already messages, which it need not extract from the raw rows. Prints the number of rows and the CPU
    seconds of the map and of writing, without loading.
    """
    os.environ |= {"HF_HUB_OFFLINE": "1", "TIKTOKEN_ENCODINGS_BASE": str(VOCABULARY_PATH.parent)}
    import datasets
    import openai_harmony

    datasets.disable_progress_bars()
    harmony = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
    config = openai_harmony.RenderConversationConfig(auto_drop_analysis=False)

    def render(row: Row) -> Row:
        conversation = []
        for message in row["messages"]:
            author = openai_harmony.Author(role=openai_harmony.Role(message["role"]), name=message["name"])
            rendered = openai_harmony.Message.from_author_and_content(author, message["content"])
            rendered.recipient, rendered.channel = message["recipient"], message["channel"]
            rendered.content_type = message["content_type"]
            conversation.append(rendered)
        ids = harmony.render_conversation_for_training(openai_harmony.Conversation.from_messages(conversation), config)
        harmony.parse_messages_from_completion_tokens(ids)
        return {"text": harmony.decode_utf8(ids), "tokens": len(ids)}

    path = str(folder / f"sample.{kind}")
    load = datasets.Dataset.from_json if kind == "jsonl" else datasets.Dataset.from_parquet
    rows = load(path, cache_dir=str(folder / "cache"))
    started = time.process_time()
    rows.map(render, remove_columns="messages").to_parquet(folder / "library.parquet")
    print(json.dumps([len(rows), time.process_time() - started]))


def main() -> None:
    flow, kind, folder, workers, *names = sys.argv[1:]
    pa.set_cpu_count(1)
    os.environ["PATH"] = ""  # no git for provenance: a fork for it would count this process's memory twice
    splits = [split for split in real_splits() if split.name in names]
    if flow == "corpusmill":
        corpusmill(kind, Path(folder), int(workers), splits)
    elif flow == "bare":
        bare(kind, Path(folder), workers, splits)
    else:
        library(kind, Path(folder))


if __name__ == "__main__":
    main()

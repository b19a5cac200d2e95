"""Peers that tokenise the shards that build.py encodes, with the same ids.

    python peers.py NAME FOLDER WORKERS

They print the number and the sha256 of their ids, which build.py compares. `tokenizer` runs first: it writes
FOLDER/tokenizer.json, o200k for `tokenizers`, which the last two peers need.
"""

import functools
import hashlib
import json
import multiprocessing
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows import END_OF_TEXT, VOCABULARY_PATH, shards

_TOKENIZER = "tokenizer.json"
_PREPROCESS_CHUNK = 32  # lines per task, as in Megatron-LM's tools/preprocess_data.py


@functools.cache
def tiktoken_once() -> Any:
    from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, load_encoder

    return load_encoder(VOCABULARY_SHA256).oracle


def lines(path: Path) -> Iterator[bytes]:
    import io

    import zstandard

    with open(path, "rb") as file:
        yield from io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True))


def tiktoken_shard(path: Path) -> Path:
    """Encode a shard with json, tiktoken and numpy, document by document."""
    import numpy as np

    encoding = tiktoken_once()
    target = path.with_suffix(".tiktoken")
    with open(target, "wb") as output:
        for line in lines(path):
            ids = encoding.encode_ordinary(json.loads(line)["text"])
            np.array([*ids, END_OF_TEXT], np.int32).tofile(output)
    return target


def tiktoken(folder: Path, workers: int) -> None:
    tiktoken_once()
    with multiprocessing.get_context("fork").Pool(max(workers, 1)) as pool:
        report(pool.map(tiktoken_shard, shards(folder), chunksize=1))


def naive(folder: Path) -> None:
    """Encode in one process: all ids in a list, then an array, then a file."""
    import numpy as np

    encoding = tiktoken_once()
    ids: list[int] = []
    for path in shards(folder):
        for line in lines(path):
            ids.extend(encoding.encode(json.loads(line)["text"], disallowed_special=()))
            ids.append(END_OF_TEXT)
    target = folder / "naive"
    np.array(ids, dtype=np.int32).tofile(target)
    report([target])


def write_tokenizer(folder: Path) -> None:
    """Write o200k as a tokenizer.json.

    Both specials are added, in order: with a gap, `<|endoftext|>` would get 199998.
    """
    from tokenizers import AddedToken
    from transformers.convert_slow_tokenizer import TikTokenConverter

    from pipeline_assets.corpus.tokens.o200k_vocabulary import SPLIT_PATTERN

    converter = TikTokenConverter(vocab_file=str(VOCABULARY_PATH), pattern=SPLIT_PATTERN, extra_special_tokens=[])
    tokenizer = converter.converted()
    tokenizer.add_special_tokens([AddedToken("<|startoftext|>"), AddedToken("<|endoftext|>")])
    tokenizer.save(str(folder / _TOKENIZER))


_worker_tokenizer: Any = None


def load_worker_tokenizer(path: str) -> None:
    global _worker_tokenizer
    from transformers import PreTrainedTokenizerFast

    _worker_tokenizer = PreTrainedTokenizerFast(tokenizer_file=path)


def encode_line(line: bytes) -> tuple[list[int], list[int], int]:
    ids = _worker_tokenizer(json.loads(line)["text"], add_special_tokens=False).input_ids
    ids.append(END_OF_TEXT)
    return ids, [len(ids)], len(line)


def preprocess(folder: Path, workers: int) -> None:
    """Run Megatron-LM's preprocess_data.py: a pool encodes, its writer stores the ids."""
    import numpy as np
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    target = folder / "preprocess.bin"
    builder = IndexedDatasetBuilder(str(target), dtype=np.int32)
    tokenizer = str(folder / _TOKENIZER)
    with multiprocessing.get_context("spawn").Pool(workers, load_worker_tokenizer, (tokenizer,)) as pool:
        for path in shards(folder):
            for ids, lengths, _ in pool.imap(encode_line, lines(path), _PREPROCESS_CHUNK):
                builder.add_document(torch.IntTensor(ids), lengths)
    builder.finalize(str(target.with_suffix(".idx")))
    report([target])


def datatrove(folder: Path, workers: int) -> None:
    """Run datatrove's JsonlReader and MegatronDocumentTokenizer, one task per shard."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens.megatron_tokenizer import MegatronDocumentTokenizer

    target = folder / "datatrove"
    shutil.rmtree(target, ignore_errors=True)
    executor = LocalPipelineExecutor(
        [
            JsonlReader(str(folder), glob_pattern="*.jsonl.zst", id_key="doc_id", recursive=False),
            MegatronDocumentTokenizer(str(target / "out"), tokenizer_name_or_path=str(folder / _TOKENIZER)),
        ],
        tasks=len(shards(folder)),
        workers=workers,
        logging_dir=str(target / "logs"),
        start_method="spawn",  # a fork server is never waited for, so its seconds would not be counted
    )
    executor.run()
    print_digest(sorted((target / "out").glob("*.bin")))


def report(targets: list[Path]) -> None:
    print_digest(targets)
    for target in targets:
        target.unlink()


def print_digest(paths: list[Path]) -> None:
    """Print number and sha256 of the int32 ids in the files."""
    digest, size = hashlib.sha256(), 0
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
                size += len(block)
    print(size // 4, digest.hexdigest())


if __name__ == "__main__":
    name, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    match name:
        case "tokenizer":
            write_tokenizer(folder)
        case "tiktoken":
            tiktoken(folder, workers)
        case "naive":
            naive(folder)
        case "preprocess_data":
            preprocess(folder, workers)
        case "datatrove":
            datatrove(folder, workers)

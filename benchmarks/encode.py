"""Benchmark of the exact encoder against raw gigatoken and tiktoken.

    python benchmarks/encode.py --mb 100 --runs 3

Text is encoded to ids in one process. Raw gigatoken is the ceiling. It is not exact: it classifies 4,699 code points
differently from tiktoken, so the encoder searches each text for them and sends matching texts to tiktoken. The ids of
the encoder and of tiktoken are proven equal.
"""

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from corpus import write_shards
from measure import machine_line

from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.partial_documents import DocumentText
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_PATH, VOCABULARY_SHA256, load_encoder

_BATCH = 2000


def load_texts(folder: Path, text_mb: int) -> list[str]:
    """Return the texts of the benchmark corpus."""
    paths, _, _ = write_shards(folder, text_mb)
    decoder = msgspec.json.Decoder(DocumentText)
    return [
        document.text for path in paths for block in read_line_blocks(path) for document in decoder.decode_lines(block)
    ]


def time_encoding(encode: Callable[[list[str]], np.ndarray], texts: list[str]) -> tuple[float, str]:
    """Return the CPU seconds to encode all texts in batches, and the ids' sha256."""
    digest, spent = hashlib.sha256(), 0.0
    for start in range(0, len(texts), _BATCH):
        batch = texts[start : start + _BATCH]
        started = time.process_time()
        ids = encode(batch)
        spent += time.process_time() - started
        digest.update(np.ascontiguousarray(ids, np.int32))
    return spent, digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Text → ids in one process")
    parser.add_argument("--mb", type=int, default=100, help="megabytes of text")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    import gigatoken

    raw = gigatoken.Tokenizer.from_tiktoken(VOCABULARY_PATH, pretokenizer="o200k", special_tokens={})
    encoder = load_encoder(VOCABULARY_SHA256)
    slow = load_encoder(VOCABULARY_SHA256, driver="tiktoken")
    flows: dict[str, Callable[[list[str]], np.ndarray]] = {
        "raw gigatoken": lambda batch: np.asarray(raw.encode_batch(batch, parallel=False).layout.content.data),
        "corpusmill": lambda batch: encoder.encode(batch).ids,
        "tiktoken": lambda batch: slow.encode(batch).ids,
    }
    with tempfile.TemporaryDirectory() as temporary:
        texts = load_texts(Path(temporary), options.mb)
    for encode in flows.values():
        encode(texts[:100])
    runs = {name: [time_encoding(encode, texts) for _ in range(options.runs)] for name, encode in flows.items()}
    seconds = {name: statistics.median(spent for spent, _ in results) for name, results in runs.items()}
    digests = {name: {digest for _, digest in results} for name, results in runs.items()}
    if digests["corpusmill"] != digests["tiktoken"] or len(digests["tiktoken"]) != 1:
        sys.exit(f"ids differ: {digests}")
    size = sum(len(text.encode()) for text in texts)
    print(f"{machine_line()}; one process, median of {options.runs}, {size / 1e6:.0f} MB of text, ids equal\n")
    print("| flow | CPU s | to the ceiling | MB per CPU s |\n|---|---|---|---|")
    for name, spent in seconds.items():
        print(f"| {name} | {spent:.2f} | {spent / seconds['raw gigatoken']:.2f} | {size / 1e6 / spent:.0f} |")
    ratios = {name: round(spent / seconds["raw gigatoken"], 3) for name, spent in seconds.items()}
    print(json.dumps({"benchmark": "encode", "mb": options.mb, "cpu_to_ceiling": ratios}))


if __name__ == "__main__":
    main()

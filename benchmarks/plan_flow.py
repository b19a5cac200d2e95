"""Flow that plans a packed set of documents with synthetic lengths.

    python plan_flow.py STRATEGY FOLDER DOCUMENTS

Half of the documents are below 500 tokens; they belong to two sources. Prints the CPU seconds and the peak resident
memory in MiB of the process that plans; another process writes the files that the plan reads.
"""

import json
import multiprocessing
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.arrow_columns import repeat_text, to_arrow
from pipeline_assets.corpus.formats.checked_table import write_checked_table
from pipeline_assets.corpus.packing.encoded_corpus import EncodedShard
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.tokens.encode import TABLE_SCHEMA
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.spine.stage import WHOLE_SHARD
from pipeline_assets.spine.staging import StagingView

SEQ_LEN, SHARD_DOCUMENTS = 2048, 1_000_000


def write_lengths(folder: Path, documents: int) -> list[EncodedShard]:
    """Write encoded shards with lengths but no tokens, which a plan does not read."""
    dice = np.random.default_rng(1)
    shards = []
    for number, start in enumerate(range(0, documents, SHARD_DOCUMENTS)):
        count = min(SHARD_DOCUMENTS, documents - start)
        tokens = np.maximum(dice.lognormal(np.log(500), 1, count), 1).astype(np.int32)
        starts = np.cumsum(tokens, dtype=np.int64) - tokens
        texts = [repeat_text("d", count), repeat_text("l", count)]
        numbers = [np.arange(count), starts, tokens, np.zeros(count, np.uint32)]
        path = folder / f"{number:05d}.arrow"
        table = pa.Table.from_arrays([*texts, *map(to_arrow, numbers)], schema=TABLE_SCHEMA)
        write_checked_table(StagingView(folder), path.name, table)
        shards.append(EncodedShard("ab"[start >= documents // 2], f"{number:05d}", path, path, count))
    return shards


def plan(strategy: str, folder: Path, shards: list[EncodedShard], rows: int) -> tuple[float, float]:
    """Plan the rows; return CPU seconds and peak MiB of this process."""
    from pipeline_assets.corpus.packing.plan import write_plan

    recipe = PackRecipe.model_validate(
        {
            "seq_len": SEQ_LEN,
            "num_seqs": rows,
            "strategy": strategy,
            "seed": 1,
            "weights": {"a": "0.5", "b": "0.5"},
            "max_epochs": {"every_source": "1"},
            "tokenizer": {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256},
            "boundaries": False,
        }
    )
    write_plan(shards, WHOLE_SHARD, StagingView(folder), recipe)
    return time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    strategy, folder, documents = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    spawned = multiprocessing.get_context("spawn")
    with spawned.Pool(1) as pool:
        shards = pool.apply(write_lengths, (folder, documents))
    tokens = documents * 500 * np.exp(0.5)  # the mean of the lengths
    with spawned.Pool(1) as pool:
        print(json.dumps(pool.apply(plan, (strategy, folder, shards, int(0.98 * tokens / SEQ_LEN)))))


if __name__ == "__main__":
    main()

"""Flows that pools.py measures: deduplicated rows in, files of each pool out.

    python pools_flows.py FLOW FOLDER WORKERS

`corpusmill` builds the target of the recipe by the driver; `bare` is the ceiling. Each prints the rows of every pool.
"""

import json
import os
import random
import shutil
import sys
import uuid
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pages import write_pages

from pipeline_assets.build import drive
from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.formats.parquet import ParquetOutput
from pipeline_assets.corpus.nemotron.pools_recipe import DEFAULT_RULES, PoolsRecipe, pool_name_for
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.staging import StagingDir
from pipeline_assets.systems.nemotron import CANDIDATE_POOLS, DEDUPLICATED

SPLIT = DEDUPLICATED.target("benchmark", {}, partition="made/train")
POOLS = CANDIDATE_POOLS.target("benchmark", {"pools": PoolsRecipe().content()}, [SPLIT], partition="made")
TARGETS = ("Instruction following", "chat", "structured outputs")
_GROUP_BYTES = 8 << 20  # of text, the row groups of normalizing
_PASSAGE_CHARACTERS = 400


def write_rows(folder: Path, rows: int, characters: int, file_bytes: int = 128 << 20) -> None:
    """Seal rows of a split in place of the deduplicated ones.

    Each row has shuffled passages of the demo corpus, `characters` on average, and metadata by which the default rules
    select two pools per row. A file has `file_bytes` of text, by default as many as normalizing writes.
    """
    write_pages(folder / "source")
    corpus = "\n".join(pq.ParquetDataset(folder / "source" / "data").read(["text"])["text"].to_pylist())
    seeded = random.Random(7)

    def write(building: StagingDir) -> BuildResult:
        outputs = []
        group_rows = min(4096, _GROUP_BYTES // characters)
        file_rows = file_bytes // characters // group_rows * group_rows
        file_count = -(-rows // file_rows)
        for number in range(file_count):
            name, stop = f"data/train-{number:05d}-of-{file_count:05d}.parquet", min((number + 1) * file_rows, rows)
            with ParquetOutput(building.path(name), SCHEMA, file_rows) as output:
                for first in range(number * file_rows, stop, group_rows):
                    group = range(first, min(first + group_rows, stop))
                    table = [_row(corpus, seeded, row, characters) for row in group]
                    output.write(pa.Table.from_pylist(table, SCHEMA))
            outputs.append(output.output(name))
        return BuildResult(outputs, {"documents": rows}, {})

    build_target(SPLIT, folder, write, True, {})


def _row(corpus: str, seeded: random.Random, number: int, characters: int) -> dict[str, object]:
    passages = seeded.randint(1, 2 * characters // _PASSAGE_CHARACTERS - 1)
    starts = (seeded.randrange(len(corpus) - _PASSAGE_CHARACTERS) for _ in range(passages))
    parts = (corpus[start : start + _PASSAGE_CHARACTERS] for start in starts)
    text = f"<|start|>user<|message|>{next(parts)}<|end|><|start|>assistant<|message|>{''.join(parts)}<|end|>"
    correctness = seeded.choice([None, None, 0.0, 0.25, 0.625, 0.75, 1.0, 1.0])
    tokens = seeded.choice([*[len(text) // 4] * 30, 20_000])
    return {
        "id": str(uuid.UUID(int=seeded.getrandbits(128))),
        "dataset": "made",
        "subset": "default",
        "split": "train",
        "text": text,
        "text_sha1": f"{seeded.getrandbits(160):040x}",
        "loss_mode": "assistant_all",
        "loss_rule": "assistant_all, analysis, calls",
        "template": "harmony/1",
        "meta_correctness": correctness,
        "meta_pass_k": None if correctness is None else 8,
        "meta_correct_count": None if correctness is None else int(8 * correctness),
        "meta_domain": "math",
        "meta_tags": ["multi_turn", "reasoning", *seeded.sample(["source:forum", "tools"], 1)],
        "meta_expected_answer": str(seeded.randrange(1000)),
        "meta_capability_target": seeded.choice([None] * 27 + [*TARGETS]),
        "meta_reasoning": seeded.choice(["on", "on", "off", None]),
        "meta_license": seeded.choice(["cc-by-4.0", "cc-by-4.0", "cc-by-sa-4.0"]),
        "quality_valid_harmony": True,
        "quality_completion_nonempty": True,
        "quality_is_duplicate": False,
        "quality_length": "normal",
        "quality_repetition": seeded.randrange(100) / 1000,
        "quality_empty_messages": 0,
        "stats_char_len": len(text),
        "stats_approx_tokens": tokens,
        "stats_tokens": tokens,
        "stats_completion_tokens": tokens // 2,
        "stats_turns": 1,
        "stats_tool_calls": seeded.choice([0, 0, 0, 3]),
        "source_file": "data/train.jsonl",
        "source_row": 4321 * number,
        "source_revision": "0" * 40,
    }


def corpusmill(folder: Path, workers: int) -> dict[str, int]:
    """Build the artifact from scratch; return the rows of each pool."""
    shutil.rmtree(folder / POOLS.folder, ignore_errors=True)
    built = drive.build_without_checks(POOLS, Run.from_settings(folder, os.environ, workers=workers))
    return built.manifest.identity.counts["pools"]


def bare(folder: Path) -> dict[str, int]:
    """Read each file once, and write a file of it for each pool.

    The zstd level is the same. Nothing is sorted, hashed, checked or synced.
    """
    target = folder / "bare"
    shutil.rmtree(target, ignore_errors=True)
    rules = {pool: [pl.sql_expr(condition) for condition in conditions] for pool, conditions in DEFAULT_RULES.items()}
    rules |= {pool_name_for(name): [pl.col("meta_capability_target") == name] for name in TARGETS}
    counts = dict.fromkeys(sorted(rules), 0)
    for pool in rules:
        (target / pool).mkdir(parents=True)
    for number, file in enumerate(sorted((folder / SPLIT.folder / "data").iterdir())):
        rows = pl.read_parquet(file)
        for pool, conditions in rules.items():
            chosen = rows.filter(*conditions)
            chosen.write_parquet(target / pool / f"{number}.parquet", compression="zstd", compression_level=1)
            counts[pool] += len(chosen)
    return counts


def main() -> None:
    flow, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(corpusmill(folder, workers) if flow == "corpusmill" else bare(folder)))


if __name__ == "__main__":
    main()

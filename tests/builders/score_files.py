"""Synthetic scores of a split, in two pool files: rows with and without a score."""

import math
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.corpus.scoring.scores import SCORES_SCHEMA

Row = dict[str, Any]
POOL = pa.schema([("id", pa.string()), ("meta_domain", pa.string()), ("meta_correctness", pa.float64())])


def scored_row(number: int, nll_mean: float | None, tokens: int = 10, **columns: Any) -> Row:
    """Build a score row with columns of its pool; `size` is completion bytes."""
    count, size = columns.pop("count", 4), columns.pop("size", 20)
    row: Row = {
        "id": f"row-{number}",
        "nll_mean": nll_mean,
        "nll_sum": None if nll_mean is None else nll_mean * count,
        "completion_token_count": count,
        "completion_bytes": size,
        "tokens": tokens,
        "truncated": False,
        "tokens_lost": 0,
        "reason": "no_completion" if nll_mean is None else None,
        "domain": "math",
        "correctness": None,
    }
    return {**row, **columns}


def write_scores(
    folder: Path, name: str, rows: list[Row], decisions: dict[str, Any] | None = None, pool: pa.Schema = POOL
) -> ScoredSplit:
    """Write scores and pool files in which an unscored row precedes each row."""
    folder.mkdir(parents=True, exist_ok=True)
    half = len(rows) // 2
    found: list[Row] = []
    files = {"a.parquet": rows[:half], "b.parquet": rows[half:]}
    for file, own in files.items():
        pools = [
            {"id": row["id"] if scored else "-", "meta_domain": row["domain"], "meta_correctness": row["correctness"]}
            for row in own
            for scored in (False, True)
        ]
        table = pa.Table.from_pylist(pools, POOL).select(pool.names)
        pq.write_table(table, folder / file, row_group_size=7)
        found += [{**row, "pool_file": file, "pool_row": 2 * place + 1} for place, row in enumerate(own)]
    pq.write_table(pa.Table.from_pylist(found, SCORES_SCHEMA), folder / "scores.parquet", row_group_size=9)
    return ScoredSplit(name, folder / "scores.parquet", {file: folder / file for file in files}, decisions or {})


def drawn_rows(seed: int, rows: int) -> list[Row]:
    """Draw rows of all sorts, each tenth without a score."""
    dice = random.Random(seed)
    return [
        scored_row(
            number,
            None if dice.random() < 0.1 else dice.choice([0.0, 0.3, 0.7, math.exp(dice.gauss(-0.6, 0.5))]),
            dice.choice([0, 1, 2, 1023, 1024, 5000]),
            count=dice.choice([1, 7, 300]),
            size=dice.choice([3, 30, 1200]),
            truncated=dice.random() < 0.2,
            tokens_lost=dice.choice([0, 17]),
            domain=dice.choice(["math", "proof", "chat_if", None]),
            correctness=dice.choice([None, 0.0, 0.1, 0.25, 0.6, 0.99, 1.0]),
        )
        for number in range(rows)
    ]


def naive_percentile(value: float, values: list[float]) -> Fraction:
    below, equal = sum(other < value for other in values), sum(other == value for other in values)
    return Fraction(100) * (below + Fraction(equal + 1, 2) - Fraction(1, 2)) / len(values)

"""Pools of Harmony texts with synthetic scores and their training subsets."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from nemotron_rows import called, encoder, normalised

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.corpus.scoring.scores import SCORES_SCHEMA, percentiles
from pipeline_assets.corpus.scoring.subset_recipe import SUBSETS_STAGE, SubsetsRecipe
from pipeline_assets.corpus.scoring.subsets import choose_subsets
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings

Row = dict[str, Any]
HARD = "is <|endoftext|> café 東京 \u088f 🎉?"  # characters that encoders classify differently, a false token


def talk(name: str, answer: str = "four", **columns: Any) -> Row:
    """Build a normalized row: question, reasoning, call and answer."""
    tool = {"role": "tool", "tool_call_id": "call_0", "content": "4"}
    call = {**called('{"word": "2 + 2"}'), "reasoning_content": f"think of {answer}"}
    question, last = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": answer}
    rows = normalised({"uuid": name, "messages": [question, call, tool, last]})
    [row] = rows.batch.to_pylist()
    return {**row, **columns}


def bare(name: str, **columns: Any) -> Row:
    """Build a row for selection, whose text is never encoded."""
    empty: Row = dict.fromkeys(SCHEMA.names)
    return {**empty, "id": name, "text": "t", "stats_tokens": 10, "stats_completion_tokens": 4, **columns}


def scored(
    folder: Path,
    name: str,
    rows: Sequence[Row],
    nll: Sequence[float | None],
    schema: pa.Schema = SCHEMA,
    **decisions: Any,
) -> ScoredSplit:
    """Write two pools with small row groups, and their scores."""
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    cut = len(rows) // 3
    values = np.array([np.nan if mean is None else mean for mean in nll], np.float64)
    ranks = percentiles(values).tolist()
    scores: list[Row] = []
    for file, first, part in (("a.parquet", 0, rows[:cut]), ("b.parquet", cut, rows[cut:])):
        pq.write_table(pa.Table.from_pylist(list(part), schema), folder / file, row_group_size=max(3, len(part) // 20))
        for number, row in enumerate(part):
            mean = nll[first + number]
            score: Row = dict.fromkeys(SCORES_SCHEMA.names) | {"id": row["id"], "pool_file": file, "pool_row": number}
            score["reason"] = "empty" if mean is None else None
            if mean is not None:
                score |= {"nll_mean": mean, "nll_sum": 4 * mean, "ppl": math.exp(mean), "completion_token_count": 4}
                score |= {"percentile_within_split": ranks[first + number], "bits_per_byte": mean / 2}
            scores.append(score)
    pq.write_table(
        pa.Table.from_pylist(scores, SCORES_SCHEMA), folder / "scores.parquet", row_group_size=max(4, len(rows) // 20)
    )
    files = {file: folder / file for file in ("a.parquet", "b.parquet")}
    return ScoredSplit(name, folder / "scores.parquet", files, decisions)


def build_subsets(
    root: Path,
    splits: Sequence[ScoredSplit],
    rules: Mapping[str, Any],
    workers: int = 0,
    tokenizer: Tokenizer | None = None,
    **recipe: Any,
) -> Artifact:
    own = SubsetsRecipe.from_mapping({"rules": rules, "tokens": False, **recipe}, "the test")
    target = Target(
        unknown_kind("nemotron/training_subsets", SUBSETS_STAGE), "mine", Path("subsets"), {"subsets": own.content()}
    )
    settings, chosen = RunSettings(workers), tokenizer or encoder()
    return build_target(target, root, lambda b: choose_subsets(b, splits, own, chosen, settings), True, {})


def rows_in(subsets: Artifact, rule: str) -> list[Row]:
    """Read the rows of a subset in the order of its files."""
    files = sorted(subsets.folder.glob(f"subset_{rule}/*/*.parquet"))
    return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]


def ids_in(subsets: Artifact, rule: str) -> list[str]:
    return [row["id"] for row in rows_in(subsets, rule)]

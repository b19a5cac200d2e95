"""Candidate pools of synthetic deduplicated rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.corpus.nemotron.pools import build_pools
from pipeline_assets.corpus.nemotron.pools_recipe import PoolsRecipe
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import OutputFile

Row = dict[str, Any]
STAGE = StageVersion("made", 1)


def row(number: int, **columns: Any) -> Row:
    empty: Row = dict.fromkeys(SCHEMA.names)
    fields = {"id": f"row-{number}", "dataset": "made/chats", "split": "low", "text": f"text {number}"}
    source = {"stats_tokens": 10, "stats_tool_calls": 0, "source_file": "low.jsonl", "source_row": number}
    return {**empty, **fields, **source, **columns}


def rows_artifact(root: Path, *files: list[Row], name: str = "low", schema: pa.Schema = SCHEMA) -> Artifact:
    """Seal deduplicated rows of a split in one or more files."""

    def make(building: Any) -> BuildResult:
        written: list[OutputFile] = []
        for number, rows in enumerate(files):
            path = f"data/{name}-{number:05d}-of-{len(files):05d}.parquet"
            table = pa.Table.from_pylist(rows, schema)
            written.append(write_table(building.path(path), path, [table], schema))
        return BuildResult(written, {}, {})

    return build_target(Target(unknown_kind("made/rows", STAGE), name, Path("made", name), {}), root, make, True, {})


def seal_pools(
    root: Path, splits: dict[str, Artifact], recipe: PoolsRecipe | None = None, name: str = "pools"
) -> Artifact:
    rules = recipe or PoolsRecipe()
    target = Target(unknown_kind("nemotron/candidate_pools", STAGE), name, Path("pools"), {"pools": rules.content()})
    return build_target(target, root, lambda building: build_pools(building, splits, rules, RunSettings()), True, {})


MIXED = [
    row(0, meta_correctness=1.0, stats_tool_calls=2, meta_reasoning="on"),
    row(1, meta_correctness=0.75, meta_reasoning="off"),
    row(2, meta_correctness=0.25, stats_tokens=20_000),
    row(3, meta_correctness=0.0),
    row(4, meta_capability_target="Instruction following"),
    row(5, meta_capability_target="chat", meta_correctness=0.6),
]

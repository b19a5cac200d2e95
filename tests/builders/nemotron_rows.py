"""Small Nemotron rows with a recipe and an origin."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.harmony.encode import AssistantAll, AssistantLast
from pipeline_assets.corpus.nemotron.dataset_section import RowOrigin
from pipeline_assets.corpus.nemotron.normalise_rows import NormalisedRows, normalise_rows
from pipeline_assets.corpus.nemotron.normalise_split import normalise_split
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE, RowsRecipe
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256, HarmonyEncoder, load_encoder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings

INLINE = RunSettings()
SETTINGS = RowsRecipe(system=None, shard_bytes=400, max_reject_fraction="0.9")
ORIGIN = RowOrigin("maker/chat", "default", "train", "chat_if", "data/train.jsonl", "0" * 40)
PROOFS = replace(ORIGIN, domain="proof")

QUESTION = {"role": "user", "content": "2 + 2?"}
ANSWER = {"role": "assistant", "content": "4"}
USER = "<|start|>user<|message|>2 + 2?<|end|>"
ANALYSIS = "<|start|>assistant<|channel|>analysis<|message|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
LOOKUP = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Looks a word up.",
        "parameters": {"properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
}


@cache
def encoder() -> HarmonyEncoder:
    return load_encoder(VOCABULARY_SHA256)


def called(*arguments: object, name: str = "lookup") -> dict[str, object]:
    """Build an assistant message with a tool call for each of the arguments."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": argument}}
            for number, argument in enumerate(arguments)
        ],
    }


def reply(content: object) -> dict[str, object]:
    return {"role": "tool", "content": content}


def as_text(messages: list[dict[str, Any]]) -> list[str]:
    """Return each message as JSON text, with its calls as JSON text in it."""
    return [
        json.dumps(message | ({"tool_calls": json.dumps(message["tool_calls"])} if "tool_calls" in message else {}))
        for message in messages
    ]


def rows_recipe(**changes: Any) -> RowsRecipe:
    """Build the recipe with some values changed; `loss` may be a kernel's mode."""
    loss = changes.get("loss")
    if isinstance(loss, AssistantAll | AssistantLast):
        changes["loss"] = {"mode": loss.name} | {key.removeprefix("has_"): value for key, value in vars(loss).items()}
    return RowsRecipe.model_validate({**SETTINGS.model_dump(), **changes})


def normalised(*rows: object, settings: RowsRecipe = SETTINGS, origin: RowOrigin = ORIGIN) -> NormalisedRows:
    return normalise_rows(list(enumerate(rows)), settings, origin, encoder())


def build_split(
    root: Path, files: Sequence[SourceFile], rules: RowsRecipe = SETTINGS, engine: RunSettings = INLINE
) -> Artifact:
    """Build the normalized rows of a split in a data root."""
    target = Target(unknown_kind("nemotron/normalized_shards", NORMALISE_STAGE), "rows", Path("rows"), {})
    return build_target(
        target, root, lambda building: normalise_split(building, files, ORIGIN, rules, engine), False, {}
    )


def read_rows(built: Artifact) -> list[dict[str, Any]]:
    paths = sorted((built.folder / "data").iterdir())
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def to_row(row: object, settings: RowsRecipe = SETTINGS, origin: RowOrigin = ORIGIN) -> dict[str, object]:
    """Return the columns of the only row."""
    [values] = normalised(row, settings=settings, origin=origin).batch.to_pylist()
    return values


def to_text(*messages: object, **columns: object) -> str:
    return to_row({"messages": list(messages), **columns})["text"]


def reason_for(row: object, settings: RowsRecipe = SETTINGS, origin: RowOrigin = ORIGIN) -> str:
    """Return the reason of the only reject."""
    [reject] = normalised(row, settings=settings, origin=origin).rejects
    return reject.reason


def dropped_by(row: object, settings: RowsRecipe) -> tuple[str, str]:
    """Return reason and detail of the only dropped row."""
    found = normalised(row, settings=settings)
    [dropped] = found.dropped
    assert not found.rejects and not found.batch.num_rows
    return dropped.reason, dropped.detail

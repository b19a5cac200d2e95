"""Normalized splits of synthetic rows and their dataset card."""

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nemotron_rows import ANSWER, ORIGIN, QUESTION, rows_recipe

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.nemotron.normalise_split import normalise_split
from pipeline_assets.corpus.nemotron.rows_recipe import NORMALISE_STAGE
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.publishing.dataset_card import (
    CardContent,
    CardSource,
    CardSplit,
    dataset_card,
    file_pattern,
)
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import Identity, Manifest

SOURCE = CardSource("maker/chats", "a" * 40)
IDENTITY = Identity(
    stage=NORMALISE_STAGE,
    recipe={"rows": {"template": "harmony/1"}},
    inputs=[{"name": "nemotron/raw/chats/train", "digest": "sha256:" + "1" * 64}],
    tokenizer={"family": "o200k_harmony", "sha256": "b" * 64},
    decisions={"loss_rule": "assistant_last/1"},
    counts={"ledger": {"in": 4, "out": 3, "merged": 0, "dropped": {}, "rejected": {"not_json": 1}}},
    files=[],
)


def card_split(name: str = "train", **changes: Any) -> CardSplit:
    pattern = file_pattern(f"data/{name}-00000-of-00002.parquet")
    split = CardSplit("default", name, pattern, SCHEMA, 3, 1000, 600, 2048, 4096, by_licence({"cc-by-4.0": 3}))
    return replace(split, **changes)


def by_licence(rows: dict[str | None, int]) -> Counter[tuple[str, str | None]]:
    return Counter({(SOURCE.dataset, licence): count for licence, count in rows.items()})


def card_content(*splits: CardSplit, **changes: Any) -> CardContent:
    manifest = Manifest("nemotron/normalized_shards", "made/chats", IDENTITY, [], {})
    return replace(CardContent("Chats, normalised", "me/chats", splits, [SOURCE], [manifest]), **changes)


def render_card(*splits: CardSplit, **changes: Any) -> str:
    return dataset_card(card_content(*splits, **changes))


def answered(answer: str, **columns: object) -> dict[str, object]:
    return {"messages": [QUESTION, {**ANSWER, "content": answer}], **columns}


def normalise(root: Path, split: str, rows: Sequence[object], shard_bytes: int) -> Artifact:
    """Normalise the rows of a split from one file of lines."""
    path = root / f"{split}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [SourceFile(path, f"data/{path.name}", path.stat().st_size)]
    rules = rows_recipe(shard_bytes=shard_bytes)
    origin = replace(ORIGIN, split=split)
    target = Target(unknown_kind("made/rows", NORMALISE_STAGE), "rows", Path("rows", split), {})
    make = lambda building: normalise_split(building, files, origin, rules, RunSettings())  # noqa: E731
    return build_target(target, root, make, False, {})


def publish(folder: Path, splits: Sequence[Artifact], card: str) -> Path:
    """Copy the published files of splits into a folder; write the card."""
    for split in splits:
        shutil.copytree(split.folder / "data", folder / "data", dirs_exist_ok=True)
        for catalogue in split.folder.glob("*__tools_catalog.json"):
            shutil.copy(catalogue, folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder

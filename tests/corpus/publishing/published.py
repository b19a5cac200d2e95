"""Splits of made rows, normalised, and the content of a card of them."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rows_made import ANSWER, ORIGIN, QUESTION, SETTINGS

from pipeline_assets.corpus.nemotron.normalise_split import normalise_split
from pipeline_assets.corpus.nemotron.sections import NORMALISE_STAGE, NormaliseRules
from pipeline_assets.corpus.publishing.dataset_card import CardContent, CardSplit, dataset_card
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

SPLIT = CardSplit(
    name="train",
    digest="sha256:" + "1" * 64,
    files=2,
    bytes=2048,
    uncompressed_bytes=4096,
    rows=3,
    rejected={},
    tokens=1000,
    completion_tokens=600,
    tool_calls=4,
    licences={"cc-by-4.0": 3},
    filled={"id": 3, "meta_tags": 2},
)
CONTENT = CardContent(
    title="Chats, normalised",
    repository="me/chats",
    source="maker/chats",
    revision="a" * 40,
    template="harmony/1",
    analysis="keep",
    loss_rule="assistant_last/1",
    tokenizer_sha256="b" * 64,
    choices={"system message": "none", "rows of a split": "all"},
    splits=[SPLIT],
)


def card_of(*splits: CardSplit, **changes: Any) -> str:
    return dataset_card(replace(CONTENT, splits=splits, **changes))


def said(answer: str, **columns: object) -> dict[str, object]:
    return {"messages": [QUESTION, {**ANSWER, "content": answer}], **columns}


def normalise(root: Path, split: str, rows: Sequence[object], shard_bytes: int) -> Artifact:
    """The rows of a split, from one file of lines."""
    path = root / f"{split}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = [SourceFile(path, f"data/{path.name}", path.stat().st_size)]
    rules = NormaliseRules(SETTINGS, None, shard_bytes, "0.9", VOCABULARY_SHA256)
    origin = replace(ORIGIN, split=split)
    target = Target("made/rows", "rows", Path("rows", split), NORMALISE_STAGE, {})
    make = lambda building: normalise_split(building, files, origin, rules, RunSettings())  # noqa: E731
    return target.build(root, make, False, {})


def publish(folder: Path, splits: Sequence[Artifact], card: str) -> Path:
    """A folder as a hub has it."""
    for split in splits:
        shutil.copytree(split.folder / "data", folder / "data", dirs_exist_ok=True)
        for catalogue in split.folder.glob("*__tools_catalog.json"):
            shutil.copy(catalogue, folder)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return folder

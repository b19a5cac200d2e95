"""Nemotron recipes built without Dagster."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from command_results import Corpusmill
from nemotron_hub import SHIPPED, Row, synthetic_rows
from stage_a_sources import write_quiz

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe

ANSWER = "The answer is four, as two and two make four."


def build(recipe: NemotronRecipe, root: Path, hub: HubFiles, engine: RunSettings) -> dict[str, str]:
    """Build all artifacts of a recipe; return their digests by role."""
    run = Run(root, engine, hub, publishes=False)
    return {target.role: target.kind.build(target, run).manifest.digest for target in recipe.targets()}


def offline(cache: Path) -> HubFiles:
    """Return a client with a cache and an unreachable hub."""
    return HubFiles(cache, endpoint="http://127.0.0.1:9", tries=1)


_ITEM = "Do you know whether it rains in Bonn?"  # of an evaluation set


def write_nemotron(folder: Path, model: Path | None = None) -> NemotronRecipe:
    """Write rows of tool calls and of maths; return their recipe.

    Ids repeat over shards, and the last row of each split is cut off. `model` is the folder of a scoring model; None
    builds no scores.
    """
    data = folder / "nemotron"
    data.mkdir()
    for split in ("high_part01", "tool_calling"):
        rows = synthetic_rows(split)
        if split == "tool_calling":
            rows[1]["messages"][1]["content"] = _ITEM
        else:
            for number, row in enumerate(rows):
                row["messages"][1]["content"] = f"{ANSWER} Four is {number + 4} less {number}."
        lines = [json.dumps(row) for row in rows]
        (data / f"{split}.jsonl").write_text("\n".join([*lines, lines[0], lines[1][:40]]))
    content = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    section = {"dataset": "chats", "path": str(data), "splits": ["high_part01", "tool_calling"], "domain": "agentic"}
    content |= {"datasets": [section], "rows": content["rows"] | {"shard_bytes": 2000, "max_reject_fraction": "0.5"}}
    content["decontamination"] = write_quiz_section(folder / "quiz", _ITEM)
    content["publish"] = {"repo": "owner/{dataset}-pools"}
    if model is not None:
        scoring = {"model": {"path": str(model)}, "tokenizer": "o200k_harmony", "rescored": 2, "shard_rows": 1}
        content |= {"scoring": scoring, "subsets": {"rules": {"easy": {"percentile": [0, 50]}, "all": {}}}}
    return NemotronRecipe.from_mapping(content, SHIPPED)


def write_quiz_section(folder: Path, *items: str) -> dict[str, Any]:
    """Write an evaluation set; return the section that drops rows with its items."""
    write_quiz(folder, items)
    quiz = {"name": "quiz", "path": str(folder), "files": ["*.jsonl"], "columns": {"text": ["question"], "id": "id"}}
    return {"ngram_words": 13, "min_item_words": 5, "min_item_overlap": "0.5", "evaluation": [quiz]}


def row(name: str, problem: str, answer: str = ANSWER, **columns: Any) -> Row:
    """Build a row with a problem as prompt and an answer."""
    messages = [{"role": "user", "content": problem}, {"role": "assistant", "content": answer}]
    return {"uuid": name, "messages": messages, "license": "cc-by-4.0", **columns}


def run(corpusmill: Corpusmill, root: Path, datasets: Mapping[str, Mapping[str, Sequence[Row]]], **keys: Any) -> Path:
    """Run a recipe over rows by dataset and split; return its output folder."""
    sections = []
    for dataset, splits in datasets.items():
        (root / dataset).mkdir(parents=True)
        for split, rows in splits.items():
            (root / dataset / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        sections.append({"dataset": dataset, "path": dataset, "splits": [*splits], "domain": "math"})
    (root / "recipes").mkdir()
    recipe = {"system": "nemotron", "name": "mine", "rows": {}, "deduplicate": {}, "datasets": sections} | keys
    (root / "recipes" / "mine.yaml").write_text(yaml.safe_dump(recipe))
    result = corpusmill("run", "mine", "--data", root, env={"CORPUSMILL_WORKERS": "0"})
    assert result.returncode == 0, result.stderr
    return root / "nemotron" / "mine"

"""Nemotron recipes built without Dagster; and as crash cases kill them: two splits in a folder, step by step."""

import json
from pathlib import Path

import yaml
from nemotron_hub import SHIPPED, made_rows

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import KINDS


def build(recipe: NemotronRecipe, root: Path, hub: HubFiles, engine: RunSettings) -> dict[str, str]:
    """Builds all artifacts of a recipe; their digests by role."""
    run = Run(root, engine, hub)
    return {target.role: KINDS[target.kind].build(target, run).manifest.digest for target in recipe.targets()}


def offline(cache: Path) -> HubFiles:
    """A hub that nobody answers for, and a cache."""
    return HubFiles(cache, endpoint="http://127.0.0.1:9", tries=1)


def write_nemotron(folder: Path) -> NemotronRecipe:
    """A recipe of tool calls and of maths, whose ids repeat over shards; the last row of each split is cut off."""
    data = folder / "nemotron"
    data.mkdir()
    for split in ("high_part01", "tool_calling"):
        lines = [json.dumps(row) for row in made_rows(split)]
        (data / f"{split}.jsonl").write_text("\n".join([*lines, lines[0], lines[1][:40]]))
    content = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    section = {"dataset": "chats", "path": str(data), "splits": ["high_part01", "tool_calling"], "domain": "agentic"}
    content |= {"datasets": [section], "rows": content["rows"] | {"shard_bytes": 2000, "max_reject_fraction": "0.5"}}
    return NemotronRecipe.of(content, SHIPPED)

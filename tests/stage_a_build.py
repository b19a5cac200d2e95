"""Stage A without Dagster: a recipe over made sources, and its artifacts by their roles."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stage_a_sources import recipe_content, source_named, write_recipe

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.systems.registry import KINDS
from pipeline_assets.systems.stage_a import StageARecipe

INLINE = EngineSettings(workers=0)
NO_COMMIT = "ab" * 20
Change = Callable[[dict[str, Any]], None]


def only(*names: str, **changes: object) -> Change:
    """Leaves a recipe with these sources alone; keyword arguments change keys of the first of them."""

    def change(content: dict[str, Any]) -> None:
        content["sources"] = [source_named(content, name) for name in names]
        content["sources"][0].update(changes)

    return change


def recipe_with(root: Path, change: Change = lambda content: None, commit: str = NO_COMMIT) -> StageARecipe:
    """The recipe over the made sources, written below a root and read."""
    return StageARecipe.read(write_recipe(root, commit, change))


def recipe_of(*sources: Mapping[str, Any], **changes: object) -> StageARecipe:
    """A recipe over other sources than the made ones."""
    return StageARecipe.model_validate(recipe_content(NO_COMMIT) | {"sources": list(sources)} | changes)


def local_source(root: Path, name: str, rows: Sequence[Mapping[str, Any]], **changes: object) -> dict[str, Any]:
    """A section of a source of one file, `rows.jsonl`, which is written: columns text, key and license, no filters."""
    folder = root / "sources" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    section = {
        "kind": "local",
        "source": name,
        "path": str(folder),
        "files": ["*.jsonl"],
        "columns": {"text": "text", "id": "key", "created_at": None, "license": "license"},
        "text_unit": None,
        "domain": "books",
        "license_tag": "cc0-1.0",
    }
    return section | changes


def build(
    recipe: StageARecipe,
    root: Path,
    hub: HubFiles | None = None,
    engine: EngineSettings = INLINE,
    replace: bool = False,
) -> dict[str, Artifact]:
    """Every artifact of a recipe by its role, upstream first."""
    run = Run(root, engine, hub, replace=replace)
    return {target.role: KINDS[target.kind].build(target, run) for target in recipe.targets()}


def normalize(
    recipe: StageARecipe, root: Path, hub: HubFiles | None = None, engine: EngineSettings = INLINE
) -> Artifact:
    """The Documents of the recipe's first source, which is not filtered."""
    run, source = Run(root, engine, hub), recipe.sources[0]
    raw, normalized = (recipe.target(f"stage_a/{step}", source.source) for step in ("raw", "normalized"))
    KINDS[raw.kind].build(raw, run)
    return KINDS[normalized.kind].build(normalized, run)


def digests(built: Mapping[str, Artifact]) -> dict[str, str]:
    return {role: artifact.manifest.digest for role, artifact in built.items()}


def ledger(artifact: Artifact) -> dict[str, Any]:
    counted: dict[str, Any] = artifact.manifest.identity.counts["ledger"]
    return counted

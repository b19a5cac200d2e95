"""Stage A over synthetic sources, built without Dagster."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stage_a_sources import (
    SITES,
    recipe_content,
    source_named,
    with_decontamination,
    with_dedup,
    with_pack,
    write_quiz,
    write_recipe,
    write_site,
)

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.systems.stage_a import StageARecipe

INLINE = RunSettings(workers=0)
NO_COMMIT = "ab" * 20
Change = Callable[[dict[str, Any]], None]


def only(*names: str, **changes: object) -> Change:
    """Return a change that keeps only these sources and edits the first."""

    def change(content: dict[str, Any]) -> None:
        content["sources"] = [source_named(content, name) for name in names]
        content["sources"][0].update(changes)

    return change


def recipe_with(
    root: Path, change: Change = lambda content: None, commit: str = NO_COMMIT, name: str = "mixed"
) -> StageARecipe:
    """Write the recipe of the synthetic sources into a root and read it."""
    return StageARecipe.read(write_recipe(root, commit, change, name))


def parse_recipe(*sources: Mapping[str, Any], **changes: object) -> StageARecipe:
    return StageARecipe.model_validate(recipe_content(NO_COMMIT) | {"sources": list(sources)} | changes)


def local_source(root: Path, name: str, rows: Sequence[Mapping[str, Any]], **changes: object) -> dict[str, Any]:
    """Write `rows.jsonl` and return the section of its source, without filters."""
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
    engine: RunSettings = INLINE,
    replace: bool = False,
) -> dict[str, Artifact]:
    run = Run(root, engine, hub, replace=replace)
    return {target.role: target.kind.build(target, run) for target in recipe.targets()}


def normalize(recipe: StageARecipe, root: Path, hub: HubFiles | None = None, engine: RunSettings = INLINE) -> Artifact:
    run, source = Run(root, engine, hub), recipe.sources[0]
    raw, normalized = (recipe.target(f"stage_a/{step}", source.source) for step in ("raw", "normalized"))
    raw.kind.build(raw, run)
    return normalized.kind.build(normalized, run)


def digests(built: Mapping[str, Artifact]) -> dict[str, str]:
    return {role: artifact.manifest.digest for role, artifact in built.items()}


def ledger(artifact: Artifact) -> dict[str, Any]:
    counted: dict[str, Any] = artifact.manifest.identity.counts["ledger"]
    return counted


def notes_recipe(root: Path, name: str = "mixed", **changes: object) -> StageARecipe:
    """Write a recipe of the local notes alone; `changes` are keys of their source."""
    return recipe_with(root, only("notes", **changes), name=name)


def step(root: Path, name: str, source: str, recipe: str = "mixed") -> Path:
    return root / "stage_a" / recipe / name / source


def write_stage_a(folder: Path, dataset: str, commit: str) -> StageARecipe:
    """Write a site, notes and a quiz; return the recipe of these and of leaves.

    The notes have bad rows, a repeated id and a repeated text; a leaf is an item of the quiz.
    """
    site_name = "garden.stackexchange.com"
    write_quiz(folder / "quiz", ["Leaf 0 of the tree, and the wind that takes it.", "A question that nobody answers."])
    write_site(folder, site_name, questions=6)
    texts = [f"Note {number} has an address a{number}@b.org in it. " * 3 for number in range(10)]
    rows = [{"text": text, "key": f"note-{number % 9}"} for number, text in enumerate([*texts, texts[1]])]
    rows[-1]["key"] = "note-1 again"
    notes = local_source(folder, "notes", [*rows, {"text": "Short."}, {"text": None}], max_reject_fraction="0.5")
    masking = {"emails": True, "public_ips": False}
    notes["filters"] = {"windows": {}, "length": {"min_words": 2}, "masking": masking}
    base = recipe_content(commit)
    site = source_named(base, SITES[0]) | {"source": site_name, "path": str(folder / site_name), "host": site_name}
    site |= {"min_question_score": None, "max_reject_fraction": "0.5"}
    leaves = source_named(base, "pages") | {"source": "leaves", "dataset": dataset, "files": ["*.parquet"]}
    leaves |= {"license_tag": "cc0-1.0", "rules": [], "language": None, "amount": {"files": 100}, "filters": {}}
    content: dict[str, Any] = {}
    with_dedup(content)
    with_decontamination(content, str(folder / "quiz"))
    recipe = parse_recipe(leaves, site, notes, shard_text_bytes=1000, **content).content()
    with_pack(recipe)
    recipe["pack"] |= {"seq_len": 16, "num_seqs": 6}
    return StageARecipe.model_validate(recipe)

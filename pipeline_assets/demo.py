"""The demo: a small real corpus in a hub folder, and a recipe pinned to its commit, in a data root of their own."""

import os
from pathlib import Path
from typing import Any

import typer
import yaml

from pipeline_assets.corpus.preview import preview_split
from pipeline_assets.corpus.rebuild.run import rebuild
from pipeline_assets.corpus.recipes.healing import HealingRecipe
from pipeline_assets.corpus.recipes.kind import RunSettings
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.audit import files_match_manifest
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.recipe import read_yaml
from pipeline_assets.demo_corpus import write_fineweb_edu

HUB_FOLDER = "hub"
RECIPES_FOLDER = "recipes"
DATASET = "HuggingFaceFW/fineweb-edu"
RECIPE_NAME = "healing_text_v1"
_TOKEN_BUDGET = 250_000
_AMOUNT = {"times_token_budget": "1.6", "utf8_bytes_per_token": "4.8"}  # the corpus is small, so chance needs room
_SHARD_TEXT_BYTES = 262_144


def write_hub(root: Path) -> Path:
    """The hub folder of the demo, made if it is not there."""
    hub = root / HUB_FOLDER
    dataset = hub / "datasets" / DATASET
    if not (dataset / "README.md").exists():
        durable.remove(dataset)
        write_fineweb_edu(dataset)
    return hub


def write_recipe(root: Path, project_recipe: Path, commit: str) -> Path:
    """The healing recipe, scaled down and pinned to the demo corpus' commit, in the data root's recipes."""
    recipe: dict[str, Any] = read_yaml(project_recipe)
    recipe["snapshot"] |= {"revision": commit, "amount": _AMOUNT, "shard_text_bytes": _SHARD_TEXT_BYTES}
    recipe["snapshot"]["license_tag"] = "psf-2.0"
    recipe["megatron"]["token_budget"] = _TOKEN_BUDGET
    path = root / RECIPES_FOLDER / f"{RECIPE_NAME}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_durably(path, yaml.safe_dump(recipe, sort_keys=False).encode())
    return path


def run_demo(root: Path, workers: int, recipes: Path) -> None:
    """The healing set of the demo corpus below `root`, built as a user's would be, shown, and built again.

    Raises:
        InputError: as any build.
    """
    from resources.loopback_hub import LoopbackHub

    with LoopbackHub(write_hub(root)) as hub:
        os.environ["HF_ENDPOINT"] = hub.endpoint
        from pipeline_assets.launch import run_targets

        commit = hub.commits()[DATASET]
        typer.echo(f"hub on loopback: {DATASET} at {commit}")
        path = write_recipe(root, recipes / f"{RECIPE_NAME}.yaml", commit)
        recipe = HealingRecipe.read(path)
        has_built = False
        for outcome in run_targets(recipe, path, root, None, {"workers": workers, "replace": True}):
            has_built |= not outcome.was_current
            digest = outcome.manifest.digest if outcome.manifest else "waiting"
            typer.echo(
                f"{'is current' if outcome.was_current else 'built':10} {outcome.target.kind}  {outcome.target.name}"
            )
            typer.echo(f"           {digest}")
            for check in outcome.checks:
                word = "ok" if check.passed else "WARNING" if check.is_warning else "FAILED"
                typer.echo(f"           {word:7} {check.name}: {check.because}")
    dataset = open_artifact(root / recipe.megatron_dataset().folder)
    tokens = dataset.manifest.identity.counts["tokens"]
    typer.echo(f"\n{tokens['train']:,} tokens in train, {tokens['valid']:,} in valid")
    for row in preview_split(open_artifact(root / recipe.megatron_split("train").folder))[:2]:
        typer.echo(f"  {row['doc_id']}  {row['tokens']} tokens: {row['text'][:90]}")
    verdict = files_match_manifest(dataset)
    typer.echo(f"verify {dataset.folder}: {verdict.because}")
    if has_built:
        _show_rebuild(root, dataset.folder, workers)
    typer.echo(f"\nlook at it:  make ui   (or: corpusmill ui --data {root})")


def _show_rebuild(root: Path, folder: Path, workers: int) -> None:
    """The promise, kept: everything again from manifests and pinned hub files, by another number of workers."""
    from resources.hub import Hub

    others = 0 if workers else 1
    settings = RunSettings(EngineSettings(workers=others), Hub().files(root))
    done = rebuild(folder, root, settings, with_upstream=True)
    if not done.is_identical:
        raise InputError(
            "the rebuild is not what was sealed", folder, "type the command `corpusmill rebuild` to see why"
        )
    typer.echo(f"rebuild {folder} --upstream --workers {others}: all {len(done.outcomes)} artifacts identical")

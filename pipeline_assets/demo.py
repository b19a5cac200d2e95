"""The demo: a small real corpus in a hub folder, and a recipe pinned to its commit, in a data root of their own."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import typer
import yaml

from pipeline_assets.corpus.rebuild.run import rebuild
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.peek import preview
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.recipe import read_yaml
from pipeline_assets.demo_corpus import write_fineweb_edu
from pipeline_assets.demo_sources import HELP_DATASET
from pipeline_assets.demo_stage_a import build_stage_a, step_lines, write_stage_a_inputs, write_stage_a_recipe
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.registry import PROJECT_RECIPES, files_match_manifest
from pipeline_assets.systems.stage_a import StageARecipe

if TYPE_CHECKING:
    from pipeline_assets.launch import Outcome

System = Literal["healing", "stage_a"]
SYSTEMS: tuple[System, ...] = get_args(System)
HUB_FOLDER = "hub"
RECIPES_FOLDER = "recipes"
DATASET = "HuggingFaceFW/fineweb-edu"
RECIPE_NAME = "healing_text_v1"
_STAGE_A_WORKERS = 0  # its sources are so small that starting workers would take most of the time
_REBUILT = ".rebuilt"  # digests of what was shown to rebuild
_TOKEN_BUDGET = 247_000  # both splits come within 1 % of theirs
_TEXT_BYTES = 1_920_000  # 1.6 times 4.8 bytes a token: the corpus is small, so chance needs room
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
    recipe["snapshot"] |= {
        "revision": commit,
        "amount": {"text_bytes": _TEXT_BYTES},
        "shard_text_bytes": _SHARD_TEXT_BYTES,
    }
    recipe["snapshot"]["license_tag"] = "psf-2.0"
    recipe["megatron"]["token_budget"] = _TOKEN_BUDGET
    path = root / RECIPES_FOLDER / f"{RECIPE_NAME}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    durable.write_durably(path, yaml.safe_dump(recipe, sort_keys=False).encode())
    return path


def run_demo(root: Path, workers: int, systems: Collection[System] = SYSTEMS) -> None:
    """The healing set and stage A of the demo corpora below `root`, built as a user's would be, shown, and built again.

    Raises:
        InputError: as any build.
    """
    from resources.loopback_hub import LoopbackHub

    if "healing" in systems:
        write_hub(root)
    if "stage_a" in systems:
        write_stage_a_inputs(root, root / HUB_FOLDER)
    with LoopbackHub(root / HUB_FOLDER) as hub:
        os.environ.update(hub.variables())
        commits = hub.commits()
        for dataset, commit in commits.items():
            typer.echo(f"hub on loopback: {dataset} at {commit}")
        if "healing" in systems:
            _build_healing(root, workers, write_recipe(root, PROJECT_RECIPES / f"{RECIPE_NAME}.yaml", commits[DATASET]))
        if "stage_a" in systems:
            _build_stage_a(root, write_stage_a_recipe(root, commits[HELP_DATASET]))
    typer.echo(f"\nlook at it:  make ui   (or: corpusmill ui --data {root})")


def _build_healing(root: Path, workers: int, path: Path) -> None:
    from pipeline_assets.launch import run_targets

    recipe = HealingRecipe.read(path)
    _show(run_targets(recipe, Run.of(root, os.environ, workers=workers, replace=True)))
    dataset = open_artifact(root / recipe.megatron_dataset().folder)
    tokens = dataset.manifest.identity.counts["tokens"]
    typer.echo(f"\n{tokens['train']:,} tokens in train, {tokens['valid']:,} in valid")
    for row in preview(open_artifact(root / recipe.megatron_split("train").folder))[:2]:
        typer.echo(f"  {row['doc_id']}  {row['tokens']} tokens: {row['text'][:90]}")
    verdict = files_match_manifest(dataset)
    typer.echo(f"verify {dataset.folder}: {verdict.because}")
    _show_rebuild(root, dataset.folder, 0 if workers else 1)


def _build_stage_a(root: Path, path: Path) -> None:
    recipe = StageARecipe.read(path)
    _show(build_stage_a(recipe, root, _STAGE_A_WORKERS))
    packed = recipe.packed()
    assert packed is not None
    typer.echo("\n" + "\n".join(step_lines(recipe, root)))
    _show_rebuild(root, root / packed.folder, _STAGE_A_WORKERS)
    _show_rebuild(root, root / recipe.report().folder, _STAGE_A_WORKERS, with_upstream=False)


def _show(outcomes: Iterator["Outcome"]) -> None:
    """A line for each artifact and each check, while they are built."""
    for outcome in outcomes:
        word = "is current" if outcome.was_current else "built"
        typer.echo(f"{word:10} {outcome.target.kind}  {outcome.target.name}")
        typer.echo(f"           {outcome.manifest.digest if outcome.manifest else 'waiting'}")
        for check in outcome.checks:
            typer.echo(f"           {'ok' if check.passed else check.word:7} {check.name}: {check.because}")


def _show_rebuild(root: Path, folder: Path, workers: int, with_upstream: bool = True) -> None:
    """The promise, kept: everything again from manifests, pinned hub files and the sources here; once for a digest."""
    digest, shown = open_artifact(folder).manifest.digest, root / _REBUILT
    before = shown.read_text().splitlines() if shown.exists() else []
    if digest in before:
        return
    done = rebuild(folder, Run.of(root, os.environ, workers=workers), with_upstream)
    if not done.is_identical:
        raise InputError(
            "the rebuild is not what was sealed", folder, "type the command `corpusmill rebuild` to see why"
        )
    durable.write_durably(shown, "\n".join([*before, digest]).encode())
    words = f"rebuild {folder} {'--upstream ' if with_upstream else ''}--workers {workers}"
    count = len(done.outcomes)
    typer.echo(f"{words}: {f'all {count} artifacts' if count > 1 else 'it is'} identical")

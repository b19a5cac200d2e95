"""The demo: small corpora of all systems and their recipes in a data root of their own; built, shown, built again."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, get_args

import pyarrow as pa
import typer

from pipeline_assets.commands.terminal import VERBOSE, Root, Workers, counted, log_to_stderr, tell
from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.kind import files_match_manifest
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.rows.trace import preview
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.recipe import Recipe, read_yaml
from pipeline_assets.corpus.trust.rebuild import rebuild
from pipeline_assets.demo.library import HUB_FOLDER, HUB_TOKEN, parquet, write_changed, write_fineweb_edu, write_recipe
from pipeline_assets.demo.nemotron import made_pools, pool_lines, write_datasets
from pipeline_assets.demo.stage2 import made_mixture, mixture_lines, write_mixture
from pipeline_assets.demo.stage_a import made_stage_a, sentence, step_lines, write_stage_a_inputs
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import PROJECT_RECIPES
from resources.loopback_hub import LoopbackHub

PAIRS_DATASET = "wmt/wmt14"
DATASET = "HuggingFaceFW/fineweb-edu"
RECIPE_NAME = "healing_text_v1"
REBUILT = ".rebuilt"  # digests of what was shown to rebuild
System = Literal["healing", "stage_a", "nemotron", "stage2", "parallel_text"]
_DIGEST_LETTERS = len("sha256:") + 12
_TOKEN_BUDGET = 247_000  # both splits come within 1 % of theirs
_TEXT_BYTES = 1_920_000  # 1.6 times 4.8 bytes a token: the corpus is small, so chance needs room
_SHARD_TEXT_BYTES = 262_144
_PAIRS = {"train": 2000, "validation": 200}
_VOWELS = str.maketrans("aeiou", "éouia")
_PAIRS_CARD = """---
configs:
- config_name: fr-en
  data_files:
  - {split: train, path: fr-en/train-*}
  - {split: validation, path: fr-en/validation-*}
---
# WMT14, made up

This is not WMT14 and holds none of its text: it has the same files and columns, so that a pipeline for the real set
runs on it offline. The side `fr` is no French.
"""


def demo(
    data: Root = Path("data/demo"),
    only: Annotated[System | None, typer.Option(help="Only this system.")] = None,
    workers: Workers = 2,
) -> None:
    """Example: corpusmill demo --data data/demo"""
    Run.of(data, os.environ)  # refuses what is set and can't be used
    log_to_stderr()
    if not os.environ.get(VERBOSE):
        logging.getLogger("corpusmill").setLevel(logging.WARNING)
    durable.make_folder(data)  # a place where nothing can be written is told at once
    asked: Sequence[System] = get_args(System) if only is None else [only]
    hub_folder = data / HUB_FOLDER
    for system in asked:
        match system:
            case "healing":
                write_hub(data)
            case "stage_a":
                write_stage_a_inputs(data)
            case "nemotron":
                write_datasets(hub_folder)
            case "stage2":
                write_mixture(hub_folder)
            case "parallel_text":
                write_pairs(hub_folder)
    with LoopbackHub(hub_folder, writable="nemotron" in asked) as hub:
        os.environ.update(hub.variables() | {"HF_TOKEN": HUB_TOKEN})
        commits = hub.commits()
        tell(f"hub on loopback: {dataset} at {commit}" for dataset, commit in commits.items())
        for system in asked:
            _show(system, data, commits, workers)
    where = "" if data == Path("data/demo") else f" DATA={data}"
    typer.echo(f"\nlook at it:  make ui{where}   (or: corpusmill ui --data {data})")


def write_hub(root: Path) -> Path:
    """The hub folder of the demo, with the healing set's dataset, made if it is not there."""
    dataset = root / HUB_FOLDER / "datasets" / DATASET
    if not (dataset / "README.md").exists():
        durable.remove(dataset)
        write_fineweb_edu(dataset)
    return root / HUB_FOLDER


def made_healing(root: Path, commits: Mapping[str, str]) -> HealingRecipe:
    """The shipped recipe, scaled down and pinned to the demo corpus, in the data root's recipes."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / f"{RECIPE_NAME}.yaml")
    content["snapshot"] |= {
        "revision": commits[DATASET],
        "amount": {"text_bytes": _TEXT_BYTES},
        "shard_text_bytes": _SHARD_TEXT_BYTES,
        "license_tag": "psf-2.0",
    }
    content["megatron"]["token_budget"] = _TOKEN_BUDGET
    return HealingRecipe.read(write_recipe(root, content))


def write_pairs(hub: Path) -> None:
    """A translation set in a hub's folder, laid out as WMT14 fr-en is. Its sentences are made up, and so is the
    language that they are translated to: each word has its own, always the same.
    """
    folder = hub / "datasets" / PAIRS_DATASET
    for split, rows in _PAIRS.items():
        draw, pairs = Random(split), list[dict[str, str]]()
        for _ in range(rows):
            english = sentence(draw)
            pairs.append({"fr": english.lower().translate(_VOWELS).capitalize(), "en": english})
        table = pa.table({"translation": pairs})
        write_changed(folder / "fr-en" / f"{split}-00000-of-00001.parquet", parquet(table, 100))
    write_changed(folder / "README.md", _PAIRS_CARD.encode())


def made_pairs(root: Path, commits: Mapping[str, str]) -> ParallelRecipe:
    """The shipped recipe, pinned to the made set, in the data root's recipes."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / "wmt14_fr_en.yaml")
    content |= {"name": "wmt14_made", "source": content["source"] | {"revision": commits[PAIRS_DATASET]}}
    return ParallelRecipe.read(write_recipe(root, content))


def _show(system: System, root: Path, commits: Mapping[str, str], workers: int) -> None:
    """Builds the demo of a system, says what came out, and that it comes out again. But for healing the sources are so
    small that starting workers would take most of the time.
    """
    match system:
        case "healing":
            healing = made_healing(root, commits)
            _build(healing, root, workers)
            dataset = open_artifact(root / healing.megatron_dataset().folder)
            tokens = dataset.manifest.identity.counts["tokens"]
            typer.echo(f"\n{tokens['train']:,} tokens in train, {tokens['valid']:,} in valid")
            for row in preview(open_artifact(root / healing.megatron_split("train").folder))[:2]:
                typer.echo(f"  {row['doc_id']}  {row['tokens']} tokens: {row['text'][:90]}")
            typer.echo(f"verify {dataset.folder}: {files_match_manifest(dataset).because}")
            _show_rebuild(root, dataset.folder, 0 if workers else 1)
        case "stage_a":
            stage_a = made_stage_a(root, commits)
            _build(stage_a, root)
            tell(["", *step_lines(stage_a, root)])
            _show_rebuild(root, root / stage_a.target("stage_a/packed").folder)
            _show_rebuild(root, root / stage_a.target("stage_a/report").folder, with_upstream=False)
        case "nemotron":
            pools = made_pools(root, commits)
            tell(["", f"{_counted_new(pools, root)} of nemotron built", *pool_lines(pools, root)])
            of_agentic = pools.target("nemotron/candidate_pools", "nemotron-agentic-v1")
            _show_rebuild(root, root / of_agentic.folder)
        case "stage2":
            mixture = made_mixture(root, commits)
            tell(["", f"{_counted_new(mixture, root)} of stage 2 built", *mixture_lines(mixture, root)])
            _show_rebuild(root, root / mixture.target("stage2/token_shards", "c4_en").folder)
        case "parallel_text":
            pairs = made_pairs(root, commits)
            _build(pairs, root)
            cache = root / pairs.target("parallel_text/token_cache").folder
            counts = open_artifact(cache).manifest.identity.counts
            tell([f"parallel text: {counts['pairs']} pairs, {counts['tokens']} tokens"])
            _show_rebuild(root, cache)


def _counted_new(recipe: Recipe, root: Path) -> str:
    """Builds a recipe; how many artifacts were not there."""
    built = list(run_targets(recipe, Run.of(root, os.environ, workers=0, replace=True)))
    return counted(sum(not outcome.was_current for outcome in built), "artifact")


def _build(recipe: Recipe, root: Path, workers: int = 0) -> None:
    """Builds a recipe, with a line for each artifact meanwhile, and one for each check that didn't pass."""
    for outcome in run_targets(recipe, Run.of(root, os.environ, workers=workers, replace=True)):
        word, passed = "is current" if outcome.was_current else "built", [one for one in outcome.checks if one.passed]
        digest = outcome.manifest.digest[:_DIGEST_LETTERS] if outcome.manifest else "waiting"
        checks = f"{counted(len(passed), 'check')} passed" if passed else ""
        typer.echo(f"{word:10} {digest}  {outcome.target.kind:30} {outcome.target.name:36} {checks}".rstrip())
        for check in outcome.checks:
            if not check.passed:
                typer.echo(f"{'':10} {check.word} {check.name}: {check.because}")


def _show_rebuild(root: Path, folder: Path, workers: int = 0, with_upstream: bool = True) -> None:
    """The promise, kept: everything again from manifests, pinned hub files and the sources here; once for a digest."""
    digest, shown = open_artifact(folder).manifest.digest, root / REBUILT
    before = shown.read_text().splitlines() if shown.exists() else []
    if digest in before:
        return
    done = rebuild(folder, Run.of(root, os.environ, workers=workers), with_upstream)
    if not done.is_identical:
        fix = "type the command `corpusmill rebuild` to see why"
        raise InputError("the rebuild is not what was sealed", folder, fix)
    durable.write_durably(shown, "\n".join([*before, digest]).encode())
    words = f"rebuild {folder} {'--upstream ' if with_upstream else ''}--workers {workers}"
    count = len(done.outcomes)
    typer.echo(f"{words}: {f'all {count} artifacts' if count > 1 else 'it is'} identical")

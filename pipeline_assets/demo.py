"""The demo: small corpora of all systems and their recipes in a data root of their own; built, shown, built again."""

import itertools
import logging
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer
import yaml

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
from pipeline_assets.demo_library import (
    HELP_DATASET,
    HUB_FOLDER,
    HUB_TOKEN,
    write_fineweb_edu,
    write_help_dataset,
    write_recipe_text,
)
from pipeline_assets.demo_mixture import write_mixture
from pipeline_assets.demo_nemotron import write_datasets
from pipeline_assets.demo_pairs import made_pairs, write_pairs
from pipeline_assets.demo_sources import SOURCES_FOLDER, write_sources
from pipeline_assets.smoke_nemotron import made_recipe, pool_lines
from pipeline_assets.smoke_stage2 import made_mixture, mixture_lines
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import PROJECT_RECIPES
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from pipeline_assets.systems.stage_a import StageARecipe
from resources.loopback_hub import LoopbackHub

DATASET = "HuggingFaceFW/fineweb-edu"
RECIPE_NAME = "healing_text_v1"
_STAGE_A = Path(__file__).with_name("demo_stage_a.yaml")
_STAGE_A_WORKERS = 0  # its sources are so small that starting workers would take most of the time
_DIGEST_LETTERS = len("sha256:") + 12
REBUILT = ".rebuilt"  # digests of what was shown to rebuild
System = Literal["healing", "stage_a", "nemotron", "stage2", "parallel_text"]
_TOKEN_BUDGET = 247_000  # both splits come within 1 % of theirs
_TEXT_BYTES = 1_920_000  # 1.6 times 4.8 bytes a token: the corpus is small, so chance needs room
_SHARD_TEXT_BYTES = 262_144


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
    asked = set(get_args(System)) if only is None else {only}
    if "healing" in asked:
        write_hub(data)
    if "stage_a" in asked:
        write_stage_a_inputs(data)
    if "nemotron" in asked:
        write_datasets(data / HUB_FOLDER)
    if "stage2" in asked:
        write_mixture(data / HUB_FOLDER)
    if "parallel_text" in asked:
        write_pairs(data / HUB_FOLDER)
    with LoopbackHub(data / HUB_FOLDER, writable="nemotron" in asked) as hub:
        os.environ.update(hub.variables() | {"HF_TOKEN": HUB_TOKEN})
        commits = hub.commits()
        tell(f"hub on loopback: {dataset} at {commit}" for dataset, commit in commits.items())
        if "healing" in asked:
            path = write_recipe(data, PROJECT_RECIPES / f"{RECIPE_NAME}.yaml", commits[DATASET])
            _build_healing(data, workers, HealingRecipe.read(path))
        if "stage_a" in asked:
            _build_stage_a(data, StageARecipe.read(write_stage_a_recipe(data, commits[HELP_DATASET])))
        if "nemotron" in asked:
            _build_nemotron(data, made_recipe(data, commits))
        if "stage2" in asked:
            _build_stage2(data, made_mixture(data, commits))
        if "parallel_text" in asked:
            _build_pairs(data, made_pairs(data, commits))
    where = "" if data == Path("data/demo") else f" DATA={data}"
    typer.echo(f"\nlook at it:  make ui{where}   (or: corpusmill ui --data {data})")


def write_hub(root: Path) -> Path:
    """The hub folder of the demo, with the healing set's dataset, made if it is not there."""
    dataset = root / HUB_FOLDER / "datasets" / DATASET
    if not (dataset / "README.md").exists():
        durable.remove(dataset)
        write_fineweb_edu(dataset)
    return root / HUB_FOLDER


def write_stage_a_inputs(root: Path) -> None:
    """Stage A's dataset in the hub folder, the files of its sources and of the evaluation set beside it."""
    dataset = root / HUB_FOLDER / "datasets" / HELP_DATASET
    if not (dataset / "README.md").exists():
        durable.remove(dataset)
        write_help_dataset(dataset)
    write_sources(root / SOURCES_FOLDER)


def write_recipe(root: Path, project_recipe: Path, commit: str) -> Path:
    """The healing recipe, scaled down and pinned to the demo corpus' commit, in the data root's recipes."""
    recipe: dict[str, Any] = read_yaml(project_recipe)
    recipe["snapshot"] |= {
        "revision": commit,
        "amount": {"text_bytes": _TEXT_BYTES},
        "shard_text_bytes": _SHARD_TEXT_BYTES,
        "license_tag": "psf-2.0",
    }
    recipe["megatron"]["token_budget"] = _TOKEN_BUDGET
    return write_recipe_text(root, RECIPE_NAME, yaml.safe_dump(recipe, sort_keys=False))


def write_stage_a_recipe(root: Path, commit: str) -> Path:
    """The recipe that asks for every step of stage A, pinned to a commit, in the data root's recipes."""
    return write_recipe_text(root, "stage_a_v1", _STAGE_A.read_text(encoding="utf-8").replace("COMMIT", commit))


def _build_healing(root: Path, workers: int, recipe: HealingRecipe) -> None:
    _build(recipe, root, workers)
    dataset = open_artifact(root / recipe.megatron_dataset().folder)
    tokens = dataset.manifest.identity.counts["tokens"]
    typer.echo(f"\n{tokens['train']:,} tokens in train, {tokens['valid']:,} in valid")
    for row in preview(open_artifact(root / recipe.megatron_split("train").folder))[:2]:
        typer.echo(f"  {row['doc_id']}  {row['tokens']} tokens: {row['text'][:90]}")
    verdict = files_match_manifest(dataset)
    typer.echo(f"verify {dataset.folder}: {verdict.because}")
    _show_rebuild(root, dataset.folder, 0 if workers else 1)


def _build_stage_a(root: Path, recipe: StageARecipe) -> None:
    _build(recipe, root, _STAGE_A_WORKERS)
    tell(["", *step_lines(recipe, root)])
    _show_rebuild(root, root / recipe.target("stage_a/packed").folder, _STAGE_A_WORKERS)
    _show_rebuild(root, root / recipe.target("stage_a/report").folder, _STAGE_A_WORKERS, with_upstream=False)


def _build_nemotron(root: Path, recipe: NemotronRecipe) -> None:
    built = list(run_targets(recipe, Run.of(root, os.environ, workers=_STAGE_A_WORKERS, replace=True)))
    new = sum(not outcome.was_current for outcome in built)
    tell(["", f"{counted(new, 'artifact')} of nemotron built", *pool_lines(recipe, root)])
    pools = root / recipe.target("nemotron/candidate_pools", "nemotron-agentic-v1").folder
    _show_rebuild(root, pools, _STAGE_A_WORKERS)


def _build_stage2(root: Path, recipe: Stage2Recipe) -> None:
    built = list(run_targets(recipe, Run.of(root, os.environ, workers=_STAGE_A_WORKERS, replace=True)))
    new = sum(not outcome.was_current for outcome in built)
    tell(["", f"{counted(new, 'artifact')} of stage 2 built", *mixture_lines(recipe, root)])
    _show_rebuild(root, root / recipe.target("stage2/token_shards", "c4_en").folder, _STAGE_A_WORKERS)


def _build_pairs(root: Path, recipe: ParallelRecipe) -> None:
    _build(recipe, root, 0)
    cache = root / recipe.target("parallel_text/token_cache").folder
    counts = open_artifact(cache).manifest.identity.counts
    tell([f"parallel text: {counts['pairs']} pairs, {counts['tokens']} tokens"])
    _show_rebuild(root, cache, 0)


def _build(recipe: Recipe, root: Path, workers: int) -> None:
    """Builds a recipe, with a line for each artifact meanwhile, and one for each check that didn't pass."""
    for outcome in run_targets(recipe, Run.of(root, os.environ, workers=workers, replace=True)):
        word, passed = "is current" if outcome.was_current else "built", [one for one in outcome.checks if one.passed]
        digest = outcome.manifest.digest[:_DIGEST_LETTERS] if outcome.manifest else "waiting"
        checks = f"{counted(len(passed), 'check')} passed" if passed else ""
        typer.echo(f"{word:10} {digest}  {outcome.target.kind:30} {outcome.target.name:36} {checks}".rstrip())
        for check in outcome.checks:
            if not check.passed:
                typer.echo(f"{'':10} {check.word} {check.name}: {check.because}")


def _show_rebuild(root: Path, folder: Path, workers: int, with_upstream: bool = True) -> None:
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


def step_lines(recipe: StageARecipe, root: Path) -> Iterator[str]:
    """What became of the documents of all sources, a line a step, and what each source has of the tokens."""
    packed = open_artifact(root / recipe.target("stage_a/packed").folder).manifest.identity.counts
    for step in ("normalized", "filtered", "deduplicated", "decontaminated"):
        targets = [target for target in recipe.targets() if target.kind == f"stage_a/{step}"]
        ledgers = [open_artifact(root / target.folder).manifest.identity.ledger for target in targets]
        fates: Counter[str] = Counter()
        for fate, reason, count in itertools.chain.from_iterable(ledger.fates() for ledger in ledgers):
            fates[reason or fate] += count
        rows, documents = sum(one.rows_in for one in ledgers), sum(one.out for one in ledgers)
        others = "".join(f" + {count:,} {fate}" for fate, count in fates.items() if count)
        yield f"{step:15} {rows:,} {'rows' if step == 'normalized' else 'documents'} in = {documents:,} out{others}"
    packed_rows = f"{packed['rows']:,} rows, {packed['padding_tokens']:,} of padding"
    yield f"{'packed':15} {packed['documents']:,} documents drawn: {packed['tokens']:,} tokens in {packed_rows}"
    for source, counts in packed["by_source"].items():
        epochs = f"{float(counts['epochs']):.2f} epochs"
        yield f"{'':15} {source}: {counts['packed_tokens']:,} tokens, {float(counts['share']):.1%}, {epochs}"

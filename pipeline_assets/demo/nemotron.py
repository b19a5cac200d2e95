"""Smoke run of Nemotron, from six generated datasets to published pools.

`--score` adds scores under a generated model, then training subsets.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.recipe_writing import write_new_recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Target
from pipeline_assets.commands.scores import pools_section
from pipeline_assets.commands.terminal import Workers, align, check_root, log_to_stderr, print_lines
from pipeline_assets.corpus.nemotron.splits import dataset_key, dataset_of_partition
from pipeline_assets.corpus.scoring.recipe import detect_device
from pipeline_assets.corpus.scoring.toy_model import write_toy_model
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.demo.recipes import write_nemotron_recipe
from pipeline_assets.demo.stage_a import format_summary
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.systems.nemotron import NemotronRecipe

SCORED_RECIPE_NAME = "nemotron_scored"


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Data root for the output.")] = Path("out_nemotron"),
    workers: Workers = 0,
    score: Annotated[
        bool, typer.Option("--score", help="Score the pools with a tiny model; needs the extra `scoring`.")
    ] = False,
) -> None:
    """Build and publish pools of six small datasets, offline.

    Example: corpusmill nemotron smoke --out-dir out_nemotron
    """
    check_root(out_dir, "--out-dir")
    run = Run.from_settings(out_dir, os.environ, workers=workers, replace=True)
    if score:
        detect_device()  # fails early without torch
    log_to_stderr()
    write_inputs(out_dir, "nemotron")
    with LoopbackHub(out_dir / HUB_FOLDER, writable=True) as hub:
        os.environ.update(hub.client_environment())
        recipe = write_nemotron_recipe(out_dir, hub.commits())
        built = sum(not outcome.was_current for outcome in run_targets(recipe.targets(), run))
        if score:
            scored = write_scored_recipe(out_dir, recipe, run)
            built += sum(not outcome.was_current for outcome in run_targets(scored.targets(), run))
    pools = out_dir / recipe.target("nemotron/candidate_pools", "nemotron-math-v2").folder
    build_result = f"{pluralize(built, 'artifact')} built" if built else "all artifacts are up to date"
    commands: list[tuple[object, ...]] = [("trace", pools, "--row", 0), ("peek", pools, "--row", 0)]
    commands += [("hub", "serve", out_dir / HUB_FOLDER, "--writable"), ("ui", "--data", out_dir)]
    subset_lines = [_subset_line(scored, out_dir)] if score else []
    published = f"pools of {pluralize(len(recipe.datasets), 'dataset')} published on loopback, read back by `datasets`"
    print_lines([*pool_lines(recipe, out_dir), published, *subset_lines, *format_summary(build_result, commands)])


def pool_lines(recipe: NemotronRecipe, root: Path) -> Iterator[str]:
    """Yield a table of rows, kept rows and pool sizes by dataset."""
    table = [("dataset", "rows", "kept", "in pools", "pools")]
    for section in recipe.datasets:
        name = dataset_key(section.dataset)
        targets = [target for target in recipe.targets() if dataset_of_partition(str(target.partition)) == name]
        rows, kept = (_sum_ledgers(root, targets, f"nemotron/{kind}") for kind in ("normalized_shards", "deduplicated"))
        pools = open_artifact(root / recipe.target("nemotron/candidate_pools", name).folder).manifest.identity.counts
        sizes = ", ".join(f"{pool} {count:,}" for pool, count in pools["pools"].items())
        table.append((name, f"{rows['in']:,}", f"{kept['out']:,}", f"{pools['documents']:,}", sizes))
    yield from align(table, number_columns={1, 2, 3})


def write_scored_recipe(root: Path, published_recipe: NemotronRecipe, run: Run) -> NemotronRecipe:
    """Write toy models, and a recipe that scores published pools and selects subsets."""
    write_toy_model(root / "models" / "made")
    write_toy_model(root / "models" / "other", seed=1)  # for comparison
    hub, publish = run.require_hub("pools"), published_recipe.publish
    assert publish is not None
    repos = [str(publish.recipe_content(dataset_key(section.dataset))["repo"]) for section in published_recipe.datasets]
    content = {
        "system": "nemotron",
        "name": SCORED_RECIPE_NAME,
        "scoring": {"model": {"path": "models/made"}, "tokenizer": "o200k_harmony", "max_length": 2048, "rescored": 4},
        "subsets": {},
        "datasets": [pools_section(repo, None, hub) for repo in repos],
    }
    return write_new_recipe(NemotronRecipe, content, root, "nemotron smoke", True)[0]


def _subset_line(recipe: NemotronRecipe, root: Path) -> str:
    subsets = open_artifact(root / recipe.target("nemotron/training_subsets").folder)
    sizes = ", ".join(f"{name} {rows:,}" for name, rows in subsets.manifest.identity.counts["subsets"].items())
    return f"scored by a generated model; training subsets: {sizes}; {subsets.folder}"


def _sum_ledgers(root: Path, targets: Sequence[Target], kind: str) -> dict[str, int]:
    selected = [target for target in targets if target.kind.name == kind]
    ledgers = [open_artifact(root / target.folder).manifest.identity.ledger for target in selected]
    return {"in": sum(ledger.rows_in for ledger in ledgers), "out": sum(ledger.out for ledger in ledgers)}

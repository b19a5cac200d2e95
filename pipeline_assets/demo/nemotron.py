"""Nemotron's smoke run: six made datasets from a hub on loopback to published pools.

If asked, it goes on to scores by a made model and to training subsets.
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
from pipeline_assets.commands.terminal import Workers, aligned, log_to_stderr, pluralize, print_lines
from pipeline_assets.corpus.nemotron.splits import dataset_key, dataset_name
from pipeline_assets.corpus.scoring.recipe import detect_device
from pipeline_assets.corpus.scoring.toy_model import write_toy_model
from pipeline_assets.demo.corpora import HUB_FOLDER, write_inputs
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.recipes import made_pools
from pipeline_assets.demo.stage_a import format_summary
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.systems.nemotron import NemotronRecipe

SCORED_NAME = "nemotron_scored"


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Data root of what is made.")] = Path("out_nemotron"),
    workers: Workers = 0,
    score: Annotated[
        bool, typer.Option("--score", help="Score what was published, by a tiny made model; needs the extra `scoring`.")
    ] = False,
) -> None:
    """Example: corpusmill nemotron smoke --out-dir out_nemotron"""
    run = Run.from_settings(out_dir, os.environ, workers=workers, replace=True)
    if score:
        detect_device()  # without torch it refuses, before anything is built
    log_to_stderr()
    write_inputs(out_dir, "nemotron")
    with LoopbackHub(out_dir / HUB_FOLDER, writable=True) as hub:
        os.environ.update(hub.variables())
        recipe = made_pools(out_dir, hub.commits())
        built = sum(not outcome.was_current for outcome in run_targets(recipe.targets(), run))
        if score:
            scored = scored_recipe(out_dir, recipe, run)
            built += sum(not outcome.was_current for outcome in run_targets(scored.targets(), run))
    pools = out_dir / recipe.target("nemotron/candidate_pools", "nemotron-math-v2").folder
    done = f"{pluralize(built, 'artifact')} built" if built else "all was there, nothing built"
    look: list[tuple[object, ...]] = [("trace", pools, "--row", 0), ("peek", pools, "--row", 0)]
    look += [("hub", "serve", out_dir / HUB_FOLDER, "--writable"), ("ui", "--data", out_dir)]
    of_subsets = [_subset_line(scored, out_dir)] if score else []
    published = f"pools of {pluralize(len(recipe.datasets), 'dataset')} published on loopback, read back by `datasets`"
    print_lines([*pool_lines(recipe, out_dir), published, *of_subsets, *format_summary(done, look)])


def pool_lines(recipe: NemotronRecipe, root: Path) -> Iterator[str]:
    """Yield how many rows of each dataset came in, stay and are in a pool, and the pools."""
    table = [("dataset", "rows", "stay", "in pools", "pools")]
    for section in recipe.datasets:
        name = dataset_key(section.dataset)
        of = [one for one in recipe.targets() if dataset_name(str(one.partition)) == name]
        rows, stay = (_ledgers(root, of, f"nemotron/{kind}") for kind in ("normalized_shards", "deduplicated"))
        pools = open_artifact(root / recipe.target("nemotron/candidate_pools", name).folder).manifest.identity.counts
        sizes = ", ".join(f"{pool} {count:,}" for pool, count in pools["pools"].items())
        table.append((name, f"{rows['in']:,}", f"{stay['out']:,}", f"{pools['documents']:,}", sizes))
    yield from aligned(table, numbers={1, 2, 3})


def scored_recipe(root: Path, published: NemotronRecipe, run: Run) -> NemotronRecipe:
    """A recipe of the data root that scores the pools which another one published, and chooses subsets of them."""
    write_toy_model(root / "models" / "made")
    write_toy_model(root / "models" / "other", seed=1)  # to be held against it
    hub, publish = run.require_hub("pools"), published.publish
    assert publish is not None
    repos = [str(publish.recipe_content(dataset_key(one.dataset))["repo"]) for one in published.datasets]
    content = {
        "system": "nemotron",
        "name": SCORED_NAME,
        "scoring": {"model": {"path": "models/made"}, "tokenizer": "o200k_harmony", "max_length": 2048, "rescored": 4},
        "subsets": {},
        "datasets": [pools_section(repo, None, hub) for repo in repos],
    }
    return write_new_recipe(NemotronRecipe, content, root, "nemotron smoke", True)[0]


def _subset_line(recipe: NemotronRecipe, root: Path) -> str:
    made = open_artifact(root / recipe.target("nemotron/training_subsets").folder)
    sizes = ", ".join(f"{name} {rows:,}" for name, rows in made.manifest.identity.counts["subsets"].items())
    return f"scored by a made model; training subsets: {sizes}; {made.folder}"


def _ledgers(root: Path, targets: Sequence[Target], kind: str) -> dict[str, int]:
    found = [open_artifact(root / one.folder).manifest.identity.ledger for one in targets if one.kind.name == kind]
    return {"in": sum(one.rows_in for one in found), "out": sum(one.out for one in found)}

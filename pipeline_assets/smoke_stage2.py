"""stage2 smoke: the shipped mixture, small, from a hub on loopback to verified token shards, in a folder of its own."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline_assets.commands.terminal import Workers, aligned, as_command, counted, log_to_stderr, tell
from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.recipe import read_yaml
from pipeline_assets.demo_library import HUB_FOLDER, write_recipe
from pipeline_assets.demo_mixture import write_mixture
from pipeline_assets.systems.registry import PROJECT_RECIPES
from pipeline_assets.systems.stage2_mixture import Stage2Recipe
from resources.loopback_hub import LoopbackHub

NAME = "mixture_made"
_DOCUMENTS = 2000  # of each source, at most


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Data root of what is made.")] = Path("out_stage2"),
    workers: Workers = 0,
) -> None:
    """Example: corpusmill stage2 smoke --out-dir out_stage2"""
    run = Run.of(out_dir, os.environ, workers=workers, replace=True)
    log_to_stderr()
    write_mixture(out_dir / HUB_FOLDER)
    with LoopbackHub(out_dir / HUB_FOLDER) as hub:
        os.environ.update(hub.variables())
        recipe = made_mixture(out_dir, hub.commits())
        built = sum(not outcome.was_current for outcome in run_targets(recipe, run))
    done = f"{counted(built, 'artifact')} built" if built else "all was there, nothing built"
    shards = out_dir / recipe.target("stage2/token_shards", "refinedweb").folder
    next_words = (
        *(("stage2", "verify", NAME, "--data", out_dir), ("stage2", "train-config", NAME, "--data", out_dir)),
        *(("trace", shards, "--token", 0), ("peek", shards, "--row", 0), ("ui", "--data", out_dir)),
    )
    commands = (f"  {as_command(*words)}" for words in next_words)
    tell([*mixture_lines(recipe, out_dir), "", f"{done}; to look closer:", *commands])


def made_mixture(root: Path, commits: Mapping[str, str]) -> Stage2Recipe:
    """The shipped mixture with filters, small and pinned to made datasets, in the data root's recipes; and segments."""
    content: dict[str, Any] = read_yaml(PROJECT_RECIPES / "refinedweb_mixture_filtered.yaml")
    content |= {"name": NAME, "shard_text_bytes": 1 << 17}
    for section in content["sources"]:
        section |= {"revision": commits[section["dataset"]], "amount": {"documents": _DOCUMENTS}}
        if section["source"] == "code":
            section["files"] = ["python/*.parquet"]
    content["tokenizer"] |= {"vocab_size": 2000, "sample_bytes": 400_000}
    content["shards"] |= {"seq_len": 512, "rows_per_shard": 64}
    halves = {"refinedweb": "0.5", "wikipedia_en": "0.5"}
    segments = [{"name": name, "tokens": 8192, "weights": halves} for name in ("first", "next")]
    content["segments"] = {"segments": segments}
    return Stage2Recipe.read(write_recipe(root, content))


def mixture_lines(recipe: Stage2Recipe, root: Path) -> list[str]:
    """What became of the documents of each source, and its shards."""
    assert recipe.shards is not None
    table: list[tuple[str, ...]] = [("source", "rows", "documents", "filtered", "tokens", "sequences")]
    for name in recipe.shards.sources:
        raw, left, shards = (
            open_artifact(root / recipe.target(f"stage2/{kind}", name).folder).manifest.identity
            for kind in ("raw_corpus", "filtered", "token_shards")
        )
        of_shards = (shards.counts["tokens"], shards.counts["sequences"])
        numbers = (raw.ledger.rows_in, raw.ledger.out, left.ledger.out, *of_shards)
        table.append((name, *(f"{number:,}" for number in numbers)))
    trained = open_artifact(root / recipe.target("stage2/tokenizer").folder).manifest.identity.decisions
    words = f"tokenizer {trained['model']}, sha256 {trained['sha256'][:16]}"
    return [*aligned(table, numbers={1, 2, 3, 4, 5}), words]

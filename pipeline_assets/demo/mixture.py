"""Smoke run of stage 2 on small generated datasets."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.commands.terminal import Workers, align, check_root, log_to_stderr, print_lines
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.demo.recipes import write_mixture_recipe
from pipeline_assets.demo.stage_a import format_summary
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.systems.stage2_mixture import Stage2Recipe


def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Data root for the output.")] = Path("out_stage2"),
    workers: Workers = 0,
) -> None:
    """Build a small version of the shipped mixture, offline.

    Example: corpusmill stage2 smoke --out-dir out_stage2
    """
    check_root(out_dir, "--out-dir")
    run = Run.from_settings(out_dir, os.environ, workers=workers, replace=True)
    log_to_stderr()
    write_inputs(out_dir, "stage2")
    with LoopbackHub(out_dir / HUB_FOLDER) as hub:
        os.environ.update(hub.client_environment())
        recipe = write_mixture_recipe(out_dir, hub.commits())
        built = sum(not outcome.was_current for outcome in run_targets(recipe.targets(), run))
    build_result = f"{pluralize(built, 'artifact')} built" if built else "all artifacts are up to date"
    shards, name = out_dir / recipe.target("stage2/token_shards", "refinedweb").folder, recipe.name
    commands: list[tuple[object, ...]] = [
        ("stage2", "verify", name, "--data", out_dir),
        ("stage2", "train-config", name, "--data", out_dir),
        ("trace", shards, "--token", 0),
        ("peek", shards, "--row", 0),
        ("ui", "--data", out_dir),
    ]
    print_lines([*mixture_lines(recipe, out_dir), *format_summary(build_result, commands)])


def mixture_lines(recipe: Stage2Recipe, root: Path) -> Iterator[str]:
    """Yield a table of documents and tokens by source, then the tokenizer's hash."""
    assert recipe.shards is not None
    table: list[tuple[str, ...]] = [("source", "rows", "documents", "filtered", "tokens", "sequences")]
    for name in recipe.shards.sources:
        targets = (recipe.target(f"stage2/{kind}", name) for kind in ("raw_corpus", "filtered", "token_shards"))
        raw, filtered, shards = (open_artifact(root / target.folder).manifest.identity for target in targets)
        sizes = (shards.counts["tokens"], shards.counts["sequences"])
        numbers = (raw.ledger.rows_in, raw.ledger.out, filtered.ledger.out, *sizes)
        table.append((name, *(f"{number:,}" for number in numbers)))
    trained = open_artifact(root / recipe.target("stage2/tokenizer").folder).manifest.identity.decisions
    yield from align(table, number_columns={1, 2, 3, 4, 5})
    yield f"tokenizer {trained['model']}, sha256 {trained['sha256'][:16]}"

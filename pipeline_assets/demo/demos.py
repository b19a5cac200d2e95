"""Demos of the systems, which build a recipe and rebuild one of its artifacts."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.commands.next_steps import next_steps
from pipeline_assets.corpus.training_set import SPLITS, split_budget
from pipeline_assets.demo import recipes
from pipeline_assets.demo.mixture import mixture_lines
from pipeline_assets.demo.nemotron import pool_lines
from pipeline_assets.demo.stage_a import step_lines
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import rebuild

REBUILD_RECORD_FILE = ".rebuilt"  # digests of artifacts that a rebuild reproduced
_SHORT_DIGEST_LENGTH = len("sha256:") + 12


def build_demo(
    system: str, root: Path, commits: Mapping[str, str], workers: int, with_next_steps: bool
) -> Iterator[str]:
    """Build and rebuild the demo of a system; yield failures, results and next steps."""
    write_recipe, rebuilt_target, lines = _DEMOS[system]
    # Only the sources of healing are large enough for workers.
    recipe, workers = write_recipe(root, commits), workers if system == "healing" else 0
    outcomes = list(run_targets(recipe.targets(), Run.from_settings(root, os.environ, workers=workers, replace=True)))
    checks = [check for outcome in outcomes for check in outcome.checks]
    yield from (f"{check.state} {check.name}: {check.because}" for check in checks if check.is_blocking_failure)
    build_result = f"all {len(outcomes)} artifacts are up to date"
    if built := sum(not outcome.was_current for outcome in outcomes):
        passed = sum(check.passed for check in checks)
        build_result = f"{pluralize(built, 'artifact')} built, {pluralize(passed, 'check')} passed"
        build_result += f", {pluralize(len(checks) - passed, 'warning')}" if passed < len(checks) else ""
    folder = root / recipe.target(*rebuilt_target).folder
    digest = open_artifact(folder).manifest.digest
    rebuild_result = _rebuild_once(root, folder, digest, 0 if workers else 1)
    yield f"{system:14} {build_result}; {rebuild_result}; {rebuilt_target[0]} {digest[:_SHORT_DIGEST_LENGTH]}"
    yield from (f"  {line}" for line in lines(recipe, root))
    if with_next_steps:
        yield from (f"  {line}" for line in next_steps(recipe.targets(), root))


def _rebuild_once(root: Path, folder: Path, digest: str, workers: int) -> str:
    """Rebuild an artifact and its inputs if no earlier run did; describe the result."""
    record = root / REBUILD_RECORD_FILE
    reproduced = record.read_text().splitlines() if record.exists() else []
    if digest in reproduced:
        return "rebuilt before"
    rebuilt = rebuild(folder, Run.from_settings(root, os.environ, workers=workers), SYSTEMS.kinds, True)
    if not rebuilt.is_identical:
        fix = "run `corpusmill rebuild` on it to see the differences"
        raise InputError("the rebuild differs from the artifact", folder, fix)
    durable.write_durably(record, "\n".join([*reproduced, digest]).encode())
    return f"rebuilt, {pluralize(workers, 'worker')}: all {len(rebuilt.outcomes)} identical"


def _megatron_split_lines(recipe: HealingRecipe, root: Path) -> Iterator[str]:
    tokens = open_artifact(root / recipe.megatron_dataset().folder).manifest.identity.counts["tokens"]
    budget, fraction = recipe.megatron.token_budget, recipe.megatron.valid_fraction
    targets = {split: split_budget(budget, fraction, split) for split in SPLITS}
    yield "; ".join(f"{split}: target {targets[split]:,} tokens, actual {tokens[split]:,}" for split in SPLITS)


def _pair_lines(recipe: ParallelRecipe, root: Path) -> Iterator[str]:
    counts = open_artifact(root / recipe.target("parallel_text/token_cache").folder).manifest.identity.counts
    splits = ", ".join(f"{split} {pairs:,}" for split, pairs in counts["pairs"].items())
    yield f"target {pluralize(recipe.sample.k, 'pair')}, actual: {splits}; {sum(counts['tokens'].values()):,} tokens"


_Demo = tuple[Callable[[Path, Mapping[str, str]], Any], tuple[str, ...], Callable[[Any, Path], Iterator[str]]]
# By system: writer of the recipe, the artifact to rebuild, and the lines to print.
_DEMOS: Mapping[str, _Demo] = {
    "healing": (recipes.write_healing_recipe, ("healing/megatron_dataset",), _megatron_split_lines),
    "stage_a": (recipes.write_stage_a_recipe, ("stage_a/report",), step_lines),
    "nemotron": (recipes.write_nemotron_recipe, ("nemotron/candidate_pools", "nemotron-agentic-v1"), pool_lines),
    "stage2": (recipes.write_mixture_recipe, ("stage2/token_shards", "c4_en"), mixture_lines),
    "parallel_text": (recipes.write_parallel_recipe, ("parallel_text/token_cache",), _pair_lines),
}

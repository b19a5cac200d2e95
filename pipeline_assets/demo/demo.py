"""The demo: a small made corpus of each system, built offline from a hub on loopback, shown, and built again."""

import importlib.util
import logging
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from pipeline_assets.build.run import Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.commands.terminal import (
    VERBOSE,
    Root,
    Workers,
    as_command,
    echo,
    log_to_stderr,
    pluralize,
    print_lines,
)
from pipeline_assets.corpus.sampling import SPLITS, split_budget
from pipeline_assets.demo.corpora import HUB_FOLDER, write_inputs
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.demo.mixture import mixture_lines
from pipeline_assets.demo.nemotron import pool_lines
from pipeline_assets.demo.recipes import made_healing, made_mixture, made_pairs, made_pools, made_stage_a
from pipeline_assets.demo.stage_a import step_lines
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.install_hints import install_hint
from pipeline_assets.systems.healing import HealingRecipe
from pipeline_assets.systems.parallel_text import ParallelRecipe
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.rebuild import rebuild

HUB_TOKEN = "hf_loopback"  # for reading: a hub that is written to has a token of its own
REBUILT = ".rebuilt"  # digests of what was shown to rebuild
System = Literal["healing", "stage_a", "nemotron", "stage2", "parallel_text"]
_NEEDS: dict[System, dict[str, str]] = {  # modules of optional parts, and their extras
    "stage2": {"py3langid": "languages", "sentencepiece": "tokenizers"},
    "parallel_text": {"sentencepiece": "tokenizers"},
}
_DIGEST_LETTERS = len("sha256:") + 12


def demo(
    data: Root = Path("data/demo"),
    only: Annotated[System | None, typer.Option(help="Only this system.")] = None,
    workers: Workers = 2,
) -> None:
    """Example: corpusmill demo --data data/demo"""
    Run.from_settings(data, os.environ)  # refuses what is set and can't be used
    log_to_stderr()
    if not os.environ.get(VERBOSE):
        logging.getLogger("corpusmill").setLevel(logging.WARNING)
    durable.make_folder(data)  # a place where nothing can be written is told at once
    systems: Sequence[System] = get_args(System)
    missing = {system: missing_extras(system) for system in systems}
    asked: Sequence[System] = [system for system in systems if not missing[system]] if only is None else [only]
    for system in asked:
        write_inputs(data, system)
    with LoopbackHub(data / HUB_FOLDER, writable="nemotron" in asked) as hub:
        os.environ.update({"HF_TOKEN": HUB_TOKEN} | hub.variables())
        commits = hub.commits()
        echo(f"{pluralize(len(commits), 'made dataset')} on a hub on loopback, in {data / HUB_FOLDER}")
        for system in asked:
            print_lines(_shown(system, data, commits, workers))
    for system in systems if only is None else ():
        for extra in missing[system]:
            echo(f"left out {system}, which needs the extra {extra}: {install_hint(extra)}")
    where = "" if data == Path("data/demo") else f" DATA={shlex.quote(str(data))}"
    echo(f"look at it:  make ui{where}   (or: {as_command('ui', '--data', data)})")


def missing_extras(system: System) -> list[str]:
    """List the extras that the demo of a system needs and this environment lacks."""
    needs = _NEEDS.get(system, {})
    return sorted({extra for module, extra in needs.items() if importlib.util.find_spec(module) is None})


def _shown(system: System, root: Path, commits: Mapping[str, str], workers: int) -> Iterator[str]:
    """Build the demo of a system, and again; yield what came out, and each check that failed.

    Only the sources of healing are worth the start of workers.
    """
    made, proven, lines = _DEMOS[system]
    recipe, workers = made(root, commits), workers if system == "healing" else 0
    outcomes = list(run_targets(recipe.targets(), Run.from_settings(root, os.environ, workers=workers, replace=True)))
    checks = [check for outcome in outcomes for check in outcome.checks]
    yield from (f"{check.word} {check.name}: {check.because}" for check in checks if check.is_blocking_failure)
    did = f"all {len(outcomes)} artifacts are current"
    if built := sum(not outcome.was_current for outcome in outcomes):
        passed = sum(check.passed for check in checks)
        did = f"{pluralize(built, 'artifact')} built, {pluralize(passed, 'check')} passed"
        did += f", {pluralize(len(checks) - passed, 'warning')}" if passed < len(checks) else ""
    folder = root / recipe.target(*proven).folder
    digest = open_artifact(folder).manifest.digest
    again = _rebuilt(root, folder, digest, 0 if workers else 1)
    yield f"{system:14} {did}; {again}; {proven[0]} {digest[:_DIGEST_LETTERS]}"
    yield from (f"  {line}" for line in lines(recipe, root))


def _rebuilt(root: Path, folder: Path, digest: str, workers: int) -> str:
    """Build an artifact and all upstream again, from manifests, pinned hub files and the sources; once for a digest.

    Raises:
        InputError: Other bytes came out.
    """
    shown = root / REBUILT
    before = shown.read_text().splitlines() if shown.exists() else []
    if digest in before:
        return "rebuilt before"
    done = rebuild(folder, Run.from_settings(root, os.environ, workers=workers), SYSTEMS.kinds, True)
    if not done.is_identical:
        fix = "type the command `corpusmill rebuild` to see why"
        raise InputError("the rebuild is not what was sealed", folder, fix)
    durable.write_durably(shown, "\n".join([*before, digest]).encode())
    return f"rebuilt, {pluralize(workers, 'worker')}: all {len(done.outcomes)} identical"


def _split_lines(recipe: HealingRecipe, root: Path) -> Iterator[str]:
    tokens = open_artifact(root / recipe.megatron_dataset().folder).manifest.identity.counts["tokens"]
    budget, fraction = recipe.megatron.token_budget, recipe.megatron.valid_fraction
    asked = {split: split_budget(budget, fraction, split) for split in SPLITS}
    yield "; ".join(f"{split}: {asked[split]:,} tokens asked, {tokens[split]:,} real" for split in SPLITS)


def _pair_lines(recipe: ParallelRecipe, root: Path) -> Iterator[str]:
    counts = open_artifact(root / recipe.target("parallel_text/token_cache").folder).manifest.identity.counts
    splits = ", ".join(f"{split} {pairs:,}" for split, pairs in counts["pairs"].items())
    yield f"{recipe.sample.k:,} pairs asked, real: {splits}; {sum(counts['tokens'].values()):,} tokens"


_Demo = tuple[Callable[[Path, Mapping[str, str]], Any], tuple[str, ...], Callable[[Any, Path], Iterator[str]]]
# Of a system: its recipe, the artifact that is built again, and its lines.
_DEMOS: Mapping[System, _Demo] = {
    "healing": (made_healing, ("healing/megatron_dataset",), _split_lines),
    "stage_a": (made_stage_a, ("stage_a/report",), step_lines),
    "nemotron": (made_pools, ("nemotron/candidate_pools", "nemotron-agentic-v1"), pool_lines),
    "stage2": (made_mixture, ("stage2/token_shards", "c4_en"), mixture_lines),
    "parallel_text": (made_pairs, ("parallel_text/token_cache",), _pair_lines),
}

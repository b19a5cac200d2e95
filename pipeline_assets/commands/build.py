"""run, demo, smoke, ui: commands that build, and show what was built."""

import difflib
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from pipeline_assets.commands.quantities import aligned, as_bytes
from pipeline_assets.commands.terminal import (
    PROJECT,
    AsJson,
    Root,
    Strict,
    Workers,
    as_typed,
    log_to_stderr,
    naming,
    resume_hint,
)
from pipeline_assets.corpus.spine.errors import InputError, UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.recipes.run import Run
    from pipeline_assets.smoke import Smoke

app = typer.Typer()


@app.command(epilog="Example: corpusmill run healing_text_v1 --partition valid --workers 2")
def run(
    recipe: Annotated[str, typer.Argument(help="Name or path of a recipe.")],
    partition: Annotated[str | None, typer.Option(help="Only this partition, such as train.")] = None,
    workers: Workers = 2,
    replace: Annotated[bool, typer.Option("--replace", help="Replace artifacts of another recipe.")] = False,
    strict: Strict = False,
    data: Root = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Build what a recipe asks for. Warnings of checks come last, again when nothing was to be built."""
    from pipeline_assets.commands.building import warning_last
    from pipeline_assets.corpus.recipes.run import Run
    from pipeline_assets.systems.registry import read_recipe, recipe_path

    settings = Run.of(data, os.environ, workers=workers, replace=replace)
    path = recipe_path(recipe, data)
    wanted = read_recipe(path)
    targets = wanted.targets()
    partitions = list(dict.fromkeys(target.partition for target in targets if target.partition is not None))
    if partition is not None and partition not in partitions:
        nearest = difflib.get_close_matches(partition, partitions, n=1)
        fix = f"did you mean {nearest[0]}?" if nearest else f"give one of {', '.join(partitions)}"
        raise UsageError(f"there is no partition {partition!r}", recipe, fix)
    asked = [target for target in targets if partition is None or target.partition in (None, partition)]
    built: set[str] = set()
    with warning_last(asked, data, strict):
        if not all(target.is_settled(data) for target in asked):
            built = _build(recipe, wanted, path, partition, len(asked), settings)
        _print_targets(asked, built, data, as_json)


def _build(
    name: str,
    recipe: Any,
    path: Path,
    partition: str | None,
    artifacts: int,
    settings: "Run",
) -> set[str]:
    """Runs what is missing and says what its checks found; the roles of what was built.

    Raises:
        InputError: which of several artifacts failed, after all that isn't made from them was built; else as
            `run_targets`.
    """
    from pipeline_assets.commands.building import check_line, some_failed
    from pipeline_assets.launch import run_targets

    log_to_stderr()
    options = [f"--partition {partition}"] if partition else []
    options += ["--replace"] if settings.replace else []
    built: set[str] = set()
    failures: dict[str, InputError] = {}
    with resume_hint(" ".join(["corpusmill run", name, *options, "--data", str(settings.root)])), naming(path):
        recipe.check_local_files(settings.root)
        for outcome in run_targets(recipe, settings, partition, goes_on=True):
            if outcome.failure is not None:
                outcome.failure.name_keys(path)
                failures[outcome.target.role] = outcome.failure
                typer.echo(f"FAILED {outcome.target.role}: {outcome.failure}", err=True)
            elif not outcome.was_current:
                built.add(outcome.target.role)
            for check in outcome.checks:
                typer.echo(check_line(outcome.target, check), err=True)
        if failures:
            raise some_failed(failures, f"{artifacts} artifacts", path, "what isn't made from them is built")
    return built


def _print_targets(targets: Any, built: set[str], root: Path, as_json: bool) -> None:
    from pipeline_assets.corpus.spine.artifact import read_manifest

    rows = []
    for target in targets:
        manifest = read_manifest(root / target.folder)
        state, _ = target.state(root)
        counted = manifest.identity.counts if manifest else {}
        rows.append(
            {
                "artifact": target.kind,
                "partition": target.partition,
                "state": state,
                "was_built": target.role in built and state == "current",
                "digest": manifest.digest if manifest else None,
                "checks": [msgspec.to_builtins(one) for one in target.results(root, manifest)] if manifest else [],
                "counts": {name: counted[name] for name in ("documents", "tokens") if name in counted},
                "folder": str(root / target.folder),
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        counts = ", ".join(f"{_number(count)} {name}" for name, count in row["counts"].items())
        word = "built" if row["was_built"] else row["state"]
        typer.echo(f"{word:8} {row['folder']}\n         {row['digest'] or 'not built'}  {counts}")


def _number(count: object) -> str:
    match count:
        case dict():
            return " + ".join(f"{value:,} {name}" for name, value in count.items())
        case int():
            return f"{count:,}"
    return str(count)


@app.command(epilog="Example: corpusmill demo --data data/demo")
def demo(
    data: Root = Path("data/demo"),
    only: Annotated[Literal["healing", "stage_a"] | None, typer.Option(help="Only this system.")] = None,
    workers: Workers = 2,
) -> None:
    """Build two small corpora, offline."""
    from pipeline_assets.corpus.recipes.run import check_settings
    from pipeline_assets.demo import SYSTEMS, run_demo

    check_settings(os.environ)
    log_to_stderr()
    with resume_hint(as_typed()):
        run_demo(data, workers, SYSTEMS if only is None else (only,))


@app.command(epilog="Example: corpusmill smoke --out-dir out")
def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Folder of what is made: new, empty or its own.")] = Path(
        "out"
    ),
    workers: Workers = 0,
) -> None:
    """Run stage A on five small sources, offline."""
    from pipeline_assets.corpus.recipes.run import check_settings
    from pipeline_assets.demo_stage_a import step_lines
    from pipeline_assets.smoke import run_smoke

    check_settings(os.environ)
    log_to_stderr()
    with resume_hint(as_typed()):
        done = run_smoke(out_dir, workers)
    for line in (*step_lines(done.recipe, done.root), "", *_where(done.root), "", *_what_next(done)):
        typer.echo(line)


def _where(root: Path) -> list[str]:
    from pipeline_assets.corpus.formats.memmap import INPUT_IDS, META
    from pipeline_assets.smoke import DECISIONS, DEDUPED, NORMALIZED, PACKED, REPORT

    names = (NORMALIZED, DEDUPED, DECISIONS, f"{PACKED}/{INPUT_IDS}", f"{PACKED}/{META}", REPORT)
    return aligned([(str(root / name), as_bytes(_bytes(root / name))) for name in names], numbers={1})


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def _what_next(done: "Smoke") -> Iterator[str]:
    from pipeline_assets.corpus.formats.memmap import open_packed

    folder, root = done.root / done.recipe.target("stage_a/packed").folder, done.root
    first = open_packed(folder).segments(0)[0].doc_id
    built = (
        f"{done.built} artifacts built, {done.checks} checks passed" if done.built else "all was there, nothing built"
    )
    yield f"{built}; to look closer:"
    for words in (
        ["verify", folder, "--upstream"],
        ["trace", folder, "--token", 0],
        ["peek", folder, "--row", 0],
        ["stage-a", "why", first, "--data", root],
        ["ui", "--data", root],
    ):
        yield f"  {shlex.join(['corpusmill', *map(str, words)])}"


@app.command(epilog="Example: corpusmill ui --data data/demo --port 3000")
def ui(
    data: Root = Path("data"),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the UI.")] = 3000,
) -> None:
    """Open the Dagster UI on a data root; Ctrl-C stops it."""
    from pipeline_assets.ui import serve_ui

    serve_ui(data, port, PROJECT)

"""smoke: all of stage A on five small sources, and where to look."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline_assets.commands.quantities import aligned, as_bytes
from pipeline_assets.commands.terminal import Workers, as_typed, going_on, log_to_stderr

if TYPE_CHECKING:
    from pipeline_assets.smoke import Smoke

app = typer.Typer()


@app.command(epilog="Example: corpusmill smoke --out-dir out")
def smoke(
    out_dir: Annotated[Path, typer.Option("--out-dir", help="Folder of what is made: new, empty or its own.")] = Path(
        "out"
    ),
    workers: Workers = 0,
) -> None:
    """Run stage A on five small sources, offline."""
    from pipeline_assets.corpus.spine.settings import check_settings
    from pipeline_assets.demo_stage_a import step_lines
    from pipeline_assets.smoke import run_smoke

    check_settings(os.environ)
    log_to_stderr()
    with going_on(as_typed()):
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

    packed = done.recipe.packed()
    assert packed is not None
    folder, root = done.root / packed.folder, done.root
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

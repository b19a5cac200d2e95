"""plan: what a recipe will fetch, hold and cost, told before it is built; afterwards, planned against real."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.plan_lines import plan_lines, warnings
from pipeline_assets.commands.terminal import (
    AsJson,
    Root,
    Workers,
    log_to_stderr,
    naming,
    resume_hint,
    writing_below,
)

if TYPE_CHECKING:
    from pipeline_assets.corpus.trust.plan import ArtifactPlan, RecipePlan

app = typer.Typer()


@app.command(epilog="Example: corpusmill plan healing_text_v1 --workers 2")
def plan(
    recipe: Annotated[str, typer.Argument(help="Name or path of a recipe.")],
    workers: Workers = 2,
    mbit: Annotated[
        float | None, typer.Option(min=0.01, help="Mbit a second of the network; else as in earlier fetches.")
    ] = None,
    data: Root = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Tell what building a recipe will take; of what is built, planned against real.

    Fetches the listing and footers alone. Exit status 1: it does not fit the disk or memory, or the corpus is too small
    for its budget.
    """
    from pipeline_assets.corpus.recipes.run import Run
    from pipeline_assets.corpus.spine.inventory import artifact_statuses
    from pipeline_assets.corpus.trust.plan import plan_recipe
    from pipeline_assets.systems.registry import KINDS, read_recipe, recipe_path

    log_to_stderr()
    path = recipe_path(recipe, data)
    wanted = read_recipe(path)
    run = Run.of(data.absolute(), os.environ, workers=workers)
    run.record.fetch_rate = None if mbit is None else mbit * 125_000
    with resume_hint(f"corpusmill plan {recipe} --data {data}"), writing_below(data), naming(path):
        wanted.check_local_files(run.root)
        planned = plan_recipe(artifact_statuses(run.root, wanted.targets()), KINDS, run)
    if as_json:
        report = {"recipe": recipe, "path": str(path), "data": str(data), "workers": workers}
        typer.echo(json.dumps(report | _plan_json(planned, data), indent=1))
    else:
        for line in plan_lines(planned, f"{recipe}  {path}", workers):
            typer.echo(line)
    is_possible = all(room.fits for room in planned.rooms) and all(budget.is_met for budget in planned.budgets)
    raise typer.Exit(0 if is_possible else 1)


def _plan_json(planned: "RecipePlan", root: Path) -> dict[str, Any]:
    return {
        "bytes_fetched_to_plan": planned.fetched_bytes,
        "bytes_to_fetch": planned.missing_bytes,
        "fetch_seconds": None if planned.fetch_seconds is None else vars(planned.fetch_seconds),
        "cpu_seconds": planned.seconds("cpu_seconds"),
        "build_seconds": planned.seconds("build_seconds"),
        "artifacts": [_artifact_json(one, root) for one in planned.artifacts],
        "budgets": [vars(budget) for budget in planned.budgets],
        "room": [vars(room) | {"fits": room.fits} for room in planned.rooms],
        "warnings": warnings(planned),
    }


def _artifact_json(one: "ArtifactPlan", root: Path) -> dict[str, Any]:
    from pipeline_assets.corpus.trust.figures import outcomes

    status = one.status
    built = outcomes(status.manifest) if status.manifest is not None and status.is_there else []
    return {
        "artifact": status.target.kind,
        "partition": status.target.partition,
        "folder": str(root / status.target.folder),
        "state": status.condition,
        "reason": status.reason,
        "needs_replace": one.needs_replace,
        "sample": None if one.sample is None else vars(one.sample),
        "planned": {name: vars(figure) for name, figure in one.figures.items()},
        "outcome": [asdict(outcome) for outcome in built],
    }

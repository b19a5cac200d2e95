"""plan: what a recipe will fetch, hold and cost, told before it is built; afterwards, planned against real."""

import functools
import json
import os
from dataclasses import asdict, replace
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
    from pipeline_assets.corpus.planning.estimate import Estimate
    from pipeline_assets.corpus.planning.recipe_plan import RecipePlan, TargetPlan
    from pipeline_assets.corpus.planning.room import Room
    from pipeline_assets.corpus.planning.track_record import TrackRecord
    from pipeline_assets.corpus.recipes.run import Run

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
    from pipeline_assets.corpus.planning.recipe_plan import PlanSettings
    from pipeline_assets.corpus.recipes.planners import plan_recipe
    from pipeline_assets.corpus.recipes.run import Run
    from pipeline_assets.corpus.spine.inventory import holdings
    from pipeline_assets.systems.registry import read_recipe, recipe_path

    log_to_stderr()
    path = recipe_path(recipe, data)
    wanted = read_recipe(path)
    run = Run.of(data.absolute(), os.environ, workers=workers)
    held, hub = holdings(run.root, wanted.targets()), run.hub_for("a recipe")
    with resume_hint(f"corpusmill plan {recipe} --data {data}"), writing_below(data), naming(path):
        is_work_left = any(holding.sealed != "current" for holding in held)
        record = functools.cache(lambda: _record(run, mbit, is_work_left))
        settings = PlanSettings(record, run.engine, run.fetch_threads, run.root)
        planned = plan_recipe(wanted, held, hub, settings)
    rooms = planned.rooms(run.root, hub.cache)
    if as_json:
        report = {"recipe": recipe, "path": str(path), "data": str(data), "workers": workers}
        typer.echo(json.dumps(report | _plan_json(planned, rooms, data), indent=1))
    else:
        for line in plan_lines(planned, rooms, f"{recipe}  {path}", workers):
            typer.echo(line)
    is_possible = all(room.verdict != "does not fit" for room in rooms) and all(b.is_met for b in planned.budgets)
    raise typer.Exit(0 if is_possible else 1)


def _record(run: "Run", mbit: float | None, is_work_left: bool) -> "TrackRecord":
    """What earlier builds showed; where they don't tell how fast this machine is, it is measured."""
    from pipeline_assets.corpus.planning.calibration import calibrate
    from pipeline_assets.corpus.planning.track_record import keep_calibration, read_track_record

    record = read_track_record(run.root)
    if mbit is not None:
        record = replace(record, stated_fetch_rate=mbit * 125_000)
    if is_work_left and record.built_rates() is None:
        run.root.mkdir(parents=True, exist_ok=True)
        rates = calibrate(run.root, run.zstd_level)
        if rates is not None:
            keep_calibration(run.root, rates)
            record = replace(record, calibration=rates)
    return record


def _plan_json(planned: "RecipePlan", rooms: list["Room"], root: Path) -> dict[str, Any]:
    return {
        "bytes_fetched_to_plan": planned.fetched_bytes,
        "bytes_to_fetch": planned.missing_bytes,
        "fetch_seconds": _estimate_json(planned.fetch_seconds),
        "seconds": _estimate_json(planned.seconds),
        "sample": None if planned.sample is None else asdict(planned.sample),
        "artifacts": [_target_json(target, root) for target in planned.targets],
        "budgets": [asdict(budget) for budget in planned.budgets],
        "room": [asdict(room) | {"verdict": room.verdict} for room in rooms],
        "warnings": warnings(planned, rooms),
    }


def _target_json(target: "TargetPlan", root: Path) -> dict[str, Any]:
    from pipeline_assets.corpus.planning.outcome import outcomes

    holding = target.holding
    built = outcomes(holding.manifest) if holding.manifest is not None and target.is_current else []
    return {
        "artifact": holding.target.kind,
        "partition": holding.target.partition,
        "folder": str(root / holding.target.folder),
        "state": holding.condition,
        "reason": holding.reason,
        "needs_replace": target.needs_replace,
        "planned": {name: figure.to_json() for name, figure in target.figures.items()},
        "outcome": [{"figure": one.figure, "planned": _estimate_json(one.planned), "real": one.real} for one in built],
    }


def _estimate_json(estimate: "Estimate | None") -> dict[str, float | str] | None:
    return None if estimate is None else estimate.to_json()

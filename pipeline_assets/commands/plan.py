"""The command `plan`, which predicts the bytes and rows of a recipe's build.

For built artifacts, planned and real numbers are compared. Lines are grouped by kind to fit many artifacts on a screen.
"""

import os
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline_assets.build.figures import FigureOutcome, figure_outcomes
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.run import Run
from pipeline_assets.commands import terminal
from pipeline_assets.commands.inputs import open_interactive_hub
from pipeline_assets.corpus.packing.mixture_estimate import MixtureEstimate
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.plan import ArtifactPlan, RecipePlan, limit_warnings, plan_recipe
from resources.launchers import remote_launcher_factory

_INDENT, _LINE_WIDTH, _MAX_LISTED = "  ", 120, 2
_UNITS_BY_FIGURE = {"bytes_fetched": "to fetch", "bytes_read": "of files", "rows": "rows read", "tokens": "tokens"}


def plan(recipe: terminal.RecipeName, data: terminal.Root = Path("data"), as_json: terminal.AsJson = False) -> bool:
    """Predict what a recipe's build fetches, reads and writes.

    Fetch only file listings, Parquet footers and dataset cards. Exit status 1: the build does not fit on the disk.

    Example: corpusmill plan healing_text_v1
    """
    from pipeline_assets.systems.early_checks import check_scorer  # loads what `--help` does not need

    terminal.check_root(data)
    terminal.log_to_stderr()
    path = recipe_path(recipe, data)
    root = data.absolute()
    run = Run.from_settings(root, os.environ, hub=open_interactive_hub(root, os.environ))
    parsed = SYSTEMS.read_recipe(path, run.root)
    terminal.print_lines(parsed.warnings(), err=True)
    with terminal.explain_recipe_keys(path):
        parsed.check_prerequisites(run.root)
        if remote_launcher_factory(os.environ) is None:
            try:
                check_scorer(parsed.targets(), run.root)
            except UsageError as error:  # `run` refuses it here, but another machine may run it
                terminal.print_lines([f"WARNING {error}"], err=True)
        planned = plan_recipe(artifact_statuses(run.root, parsed.targets()), run)
    content = {"recipe": recipe, "path": path, "data": data} | _plan_json(planned, data) if as_json else {}
    terminal.print_answer(as_json, content, _plan_lines(planned, f"{recipe}  {path}"))
    return all(check.fits for check in planned.disk_checks)


def _plan_json(recipe_plan: RecipePlan, root: Path) -> dict[str, Any]:
    return {
        "bytes_fetched_to_plan": recipe_plan.bytes_fetched_to_plan,
        "bytes_to_fetch": recipe_plan.bytes_to_fetch,
        "artifacts": [
            {
                "artifact": entry.status.target.kind.name,
                "partition": entry.status.target.partition,
                "folder": root / entry.status.target.folder,
                "state": entry.status.display_state,
                "reason": entry.status.reason,
                "needs_replace": entry.needs_replace,
                "sample": entry.sample,
                "planned": entry.figures,
                "disk_bytes": entry.disk_bytes,
                "outcome": _figure_outcomes(entry),
            }
            for entry in recipe_plan.artifacts
        ],
        "mixture": None if recipe_plan.mixture is None else asdict(recipe_plan.mixture),
        "kept_work_bytes": recipe_plan.kept_bytes,
        "room": [vars(check) | {"fits": check.fits} for check in recipe_plan.disk_checks],
        "warnings": [*_warning_lines(recipe_plan)],
    }


def _plan_lines(recipe_plan: RecipePlan, title: str) -> Iterator[str]:
    """Yield the title, the lines of each kind, the mixture, totals and warnings."""
    yield title
    if fetched := recipe_plan.bytes_fetched_to_plan:
        yield f"planning fetched {terminal.format_bytes(fetched)} to the cache: listing and footers"
    by_kind: dict[str, list[ArtifactPlan]] = {}
    for entry in recipe_plan.artifacts:
        by_kind.setdefault(entry.status.target.kind.name, []).append(entry)
    for kind, artifacts in by_kind.items():
        yield from _kind_lines(kind, artifacts)
    if recipe_plan.mixture is not None:
        yield "mixture, estimated before filters and deduplication"
        for source in recipe_plan.mixture.sources:
            times = f" x {source.max_epochs} epochs" if source.max_epochs != "1" else ""
            needed = "" if source.needed is None else f", {_format_rounded(source.needed)} needed"
            yield f"{_INDENT}{source.source}: about {_format_rounded(source.tokens)} tokens{times}{needed}"
        rows = recipe_plan.mixture.possible_rows
        few = {0: "less than one row is", 1: "about 1 row is"}
        yield f"{_INDENT}{few.get(rows, f'about {_format_rounded(rows)} rows are')} possible"
    if recipe_plan.artifacts_to_build:
        yield "total"
        yield f"{_INDENT}to fetch: {pluralize(recipe_plan.bytes_to_fetch, 'byte')}"
        on_disk = sum(entry.disk_bytes or 0 for entry in recipe_plan.artifacts)
        yield f"{_INDENT}on disk: about {terminal.format_bytes(on_disk)}, if every document is kept"
        if recipe_plan.kept_bytes:
            yield f"{_INDENT}kept work: about {terminal.format_bytes(recipe_plan.kept_bytes)} more on disk"
        for check in recipe_plan.disk_checks:
            fits = "" if check.fits else ": too little"
            needed = f"{terminal.format_bytes(check.needed)} needed by known figures, " if check.needed else ""
            yield f"{_INDENT}{check.folder}: {needed}{terminal.format_bytes(check.free)} free{fits}"
    yield from (f"WARNING {warning}" for warning in _warning_lines(recipe_plan))


def _format_rounded(number: int) -> str:
    """Format a number with two significant digits."""
    return f"{float(f'{number:.2g}'):,.0f}"


def _shortage_warnings(mixture: MixtureEstimate) -> Iterator[str]:
    rows = mixture.possible_rows
    fewer = f"request about {_format_rounded(rows)} row{'s' * (rows != 1)}, " if rows else "lower seq_len, "
    if not all(source.missing_tokens for source in mixture.sources):
        fewer += "lower its weight, "
    for source in mixture.sources:
        if source.missing_tokens:
            short = f"{source.source} falls short by about {_format_rounded(source.missing_tokens)} tokens"
            yield f"{short}; {fewer}or raise its max_epochs"


def _warning_lines(recipe_plan: RecipePlan) -> Iterator[str]:
    yield from limit_warnings(recipe_plan)
    yield from _shortage_warnings(recipe_plan.mixture) if recipe_plan.mixture is not None else ()
    for name, tokens in recipe_plan.missing_segment_tokens.items():
        short = f"{name} has about {_format_rounded(tokens)} tokens fewer than the segments need"
        yield f"{short}; request fewer tokens, or give {name} less weight"
    for check in (check for check in recipe_plan.disk_checks if not check.fits):
        needed, free = terminal.format_bytes(check.needed), terminal.format_bytes(check.free)
        yield f"{check.folder}: needs {needed}, but only {free} are free; free some, or set another --data"


def _kind_lines(kind_name: str, artifact_plans: Sequence[ArtifactPlan]) -> Iterator[str]:
    """Yield a kind's lines: counts by state, the first artifacts, and totals."""
    states = Counter(entry.status.display_state for entry in artifact_plans)
    yield f"{kind_name}: " + ", ".join(f"{count:,} {state}" for state, count in states.items())
    unbuilt = [entry for entry in artifact_plans if not entry.status.matches_recipe]
    for number, entry in enumerate((unbuilt or artifact_plans)[:_MAX_LISTED], 1):
        status = entry.status
        reason = f"  ({status.reason})" if status.reason and status.sealed_state != "missing" else ""
        more = f", and {len(unbuilt) - _MAX_LISTED:,} more to build" if number == _MAX_LISTED < len(unbuilt) else ""
        yield f"{_INDENT}{status.display_state}  {status.target.folder}{reason}{more}"
    lines = (entry.status.target.kind.planner.describe_limits(entry.status.target.recipe) for entry in unbuilt)
    yield from (f"{_INDENT}{line}" for line in dict.fromkeys(lines) if line)
    if any(entry.needs_replace for entry in unbuilt):
        yield f"{_INDENT}`run` needs --replace, or a new name in the recipe; until the seal, both versions are on disk"
    if any(entry.is_kept_if_equal for entry in unbuilt):
        yield f"{_INDENT}`run` keeps those whose inputs are rebuilt with equal content"
    for entry in unbuilt[:_MAX_LISTED]:
        if entry.sample is not None:
            files = f"{entry.sample.files:,} of {pluralize(entry.sample.files_listed, 'file')}"
            groups, rows = entry.sample.row_groups, pluralize(entry.sample.rows, "row")
            source = f"{entry.status.target.partition} " * (len(unbuilt) > 1)
            yield f"{_INDENT}{source}reads {files}, {pluralize(groups, 'row group')}, {rows}"
    if unbuilt:
        yield from _wrap(_format_planned_figures(unbuilt))
    disk_bytes = [entry.disk_bytes for entry in unbuilt if entry.disk_bytes is not None]
    if disk_bytes:
        on_disk, basis = terminal.format_bytes(sum(disk_bytes)), "estimate" if any(disk_bytes) else "links to the input"
        yield f"{_INDENT}{on_disk} on disk ({basis})"
    yield from _wrap(_format_real_figures([outcome for entry in artifact_plans for outcome in _figure_outcomes(entry)]))


def _figure_outcomes(artifact_plan: ArtifactPlan) -> Sequence[FigureOutcome]:
    manifest = artifact_plan.status.manifest
    return figure_outcomes(manifest) if artifact_plan.status.matches_recipe and manifest is not None else []


def _format_planned_figures(unbuilt: Sequence[ArtifactPlan]) -> str:
    """Format planned totals, grouped by the basis of their forecast: `TOTALS (BASIS)`."""
    by_basis: dict[str, list[str]] = {}
    for name in _UNITS_BY_FIGURE:
        figures = [entry.figures[name] for entry in unbuilt if name in entry.figures]
        if figures:
            basis = " or ".join(dict.fromkeys(figure.basis for figure in figures))
            by_basis.setdefault(basis, []).append(_format_figure(name, sum(figure.value for figure in figures)))
    return "; ".join(f"{', '.join(totals)} ({basis})" for basis, totals in by_basis.items())


def _format_real_figures(figures: Sequence[FigureOutcome]) -> str:
    """Format real totals, each with the deviation of the planned total in brackets.

    A figure is omitted from the totals if it has no planned value, or if its real value is 0 or None.
    """
    totals = []
    for name in _UNITS_BY_FIGURE:
        pairs = [
            (figure.planned.value, figure.real)
            for figure in figures
            if figure.figure == name and figure.planned and figure.real
        ]
        if pairs:
            planned, real = map(sum, zip(*pairs, strict=True))
            verdict = "as planned" if planned == real else f"planned {100 * (planned / real - 1):+.1f} %"
            totals.append(f"{_format_figure(name, real)} ({verdict})")
    return ", ".join(totals)


def _format_figure(name: str, value: float) -> str:
    if name == "bytes_fetched":
        return f"{value:,.0f} bytes {_UNITS_BY_FIGURE[name]}"
    return f"{terminal.format_bytes(value) if 'bytes' in name else f'{value:,.0f}'} {_UNITS_BY_FIGURE[name]}"


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, _LINE_WIDTH, initial_indent=_INDENT, subsequent_indent=2 * _INDENT)

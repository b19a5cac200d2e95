"""plan: what a recipe will fetch, read and write, told before it is built; afterwards, planned against real.

People are told kind by kind, on one screen for any number of artifacts.
"""

import os
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline_assets.build.figures import FigureOutcome, outcomes
from pipeline_assets.build.inventory import artifact_statuses
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.run import Run
from pipeline_assets.commands import terminal
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.plan import ArtifactPlan, RecipePlan, plan_recipe

_GAP, _WIDTH, _SHOWN = "  ", 120, 2
_WORDS = {"bytes_fetched": "to fetch", "bytes_read": "of files", "rows": "rows read", "tokens": "tokens"}


def plan(
    recipe: terminal.RecipeName,
    data: terminal.Root = Path("data"),
    as_json: terminal.AsJson = False,
) -> bool:
    """Fetches the listing and footers alone. Exit status 1: it does not fit the disk.

    Example: corpusmill plan healing_text_v1
    """
    terminal.log_to_stderr()
    path = recipe_path(recipe, data)
    run = Run.from_settings(data.absolute(), os.environ)
    wanted = SYSTEMS.read_recipe(path, run.root)
    terminal.print_lines(wanted.warnings(), err=True)
    with terminal.naming(path):
        wanted.check_local_files(run.root)
        planned = plan_recipe(artifact_statuses(run.root, wanted.targets()), run)
    told = {"recipe": recipe, "path": path, "data": data} | _plan_json(planned, data) if as_json else {}
    terminal.answer(as_json, told, _plan_lines(planned, f"{recipe}  {path}"))
    return all(room.fits for room in planned.rooms)


def _plan_json(planned: RecipePlan, root: Path) -> dict[str, Any]:
    return {
        "bytes_fetched_to_plan": planned.fetched_bytes,
        "bytes_to_fetch": planned.missing_bytes,
        "artifacts": [
            {
                "artifact": one.status.target.kind.name,
                "partition": one.status.target.partition,
                "folder": root / one.status.target.folder,
                "state": one.status.condition,
                "reason": one.status.reason,
                "needs_replace": one.needs_replace,
                "sample": one.sample,
                "planned": one.figures,
                "outcome": _built_line(one),
            }
            for one in planned.artifacts
        ],
        "room": [vars(room) | {"fits": room.fits} for room in planned.rooms],
        "warnings": _warnings(planned),
    }


def _plan_lines(plan: RecipePlan, title: str) -> Iterator[str]:
    """Kind by kind, then what all of them need, and what speaks against it."""
    yield title
    if plan.fetched_bytes:
        yield f"planning fetched {terminal.as_bytes(plan.fetched_bytes)}: listing and footers, which stay in the cache"
    by_kind: dict[str, list[ArtifactPlan]] = {}
    for one in plan.artifacts:
        by_kind.setdefault(one.status.target.kind.name, []).append(one)
    for kind, artifacts in by_kind.items():
        yield from _kind_lines(kind, artifacts)
    if plan.to_build:
        yield "in all"
        yield f"{_GAP}to fetch: {plan.missing_bytes:,} bytes"
        for room in plan.rooms:
            fits = "" if room.fits else ": it does not fit"
            free = f"{terminal.as_bytes(room.free)} are free"
            yield f"{_GAP}{room.where}: {terminal.as_bytes(room.needed)} as far as it is known, {free}{fits}"
    yield from (f"WARNING {warning}" for warning in _warnings(plan))


def _warnings(plan: RecipePlan) -> list[str]:
    return [
        f"{room.where}: needs {terminal.as_bytes(room.needed)} more, {terminal.as_bytes(room.free)} are free: "
        "it does not fit; free some, or give another --data"
        for room in plan.rooms
        if not room.fits
    ]


def _kind_lines(kind: str, artifacts: Sequence[ArtifactPlan]) -> Iterator[str]:
    """How many there are in which state, the first of them, and the figures of all."""
    states = Counter(one.status.condition for one in artifacts)
    yield f"{kind}: " + ", ".join(f"{count:,} {state}" for state, count in states.items())
    waiting = [one for one in artifacts if not one.status.matches_recipe]
    for number, one in enumerate((waiting or artifacts)[:_SHOWN], 1):
        status = one.status
        reason = f"  ({status.reason})" if status.reason and status.sealed != "missing" else ""
        more = f", and {len(waiting) - _SHOWN:,} more to build" if number == _SHOWN < len(waiting) else ""
        yield f"{_GAP}{status.condition}  {status.target.folder}{reason}{more}"
    if any(one.needs_replace for one in waiting):
        yield f"{_GAP}`run` needs --replace, or a new name in the recipe; until it is sealed, both versions lie there"
    for one in waiting[:_SHOWN]:
        if one.sample is not None:
            part = one.sample
            words = f"{part.files:,} of {part.files_listed:,} files, {part.row_groups:,} row groups, {part.rows:,} rows"
            yield f"{_GAP}{f'{one.status.target.partition} ' * (len(waiting) > 1)}reads {words}"
    if waiting:
        yield from _wrapped(_planned_words(waiting))
    yield from _wrapped(_real_words([one for plan in artifacts for one in _built_line(plan)]))


def _built_line(plan: ArtifactPlan) -> Sequence[FigureOutcome]:
    manifest = plan.status.manifest
    return outcomes(manifest) if plan.status.matches_recipe and manifest is not None else []


def _planned_words(waiting: Sequence[ArtifactPlan]) -> str:
    """What all of them will take and give; in brackets, what the figures before them rest on."""
    by_basis: dict[str, list[str]] = {}
    for name in _WORDS:
        found = [one.figures[name] for one in waiting if name in one.figures]
        if found:
            basis = " or ".join(dict.fromkeys(one.basis for one in found))
            by_basis.setdefault(basis, []).append(_figure(name, sum(one.value for one in found)))
    return "; ".join(f"{', '.join(words)} ({basis})" for basis, words in by_basis.items())


def _real_words(found: Sequence[FigureOutcome]) -> str:
    """What all of them came to, beside what was planned; nothing where nothing was planned."""
    words = []
    for name in _WORDS:
        both = [(one.planned.value, one.real) for one in found if one.figure == name and one.planned and one.real]
        if both:
            planned, real = map(sum, zip(*both, strict=True))
            verdict = "as planned" if planned == real else f"planned {100 * (planned / real - 1):+.1f} %"
            words.append(f"{_figure(name, real)} ({verdict})")
    return ", ".join(words)


def _figure(name: str, value: float) -> str:
    if name == "bytes_fetched":
        return f"{value:,.0f} bytes {_WORDS[name]}"
    return f"{terminal.as_bytes(value) if 'bytes' in name else f'{value:,.0f}'} {_WORDS[name]}"


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=_GAP, subsequent_indent=2 * _GAP)

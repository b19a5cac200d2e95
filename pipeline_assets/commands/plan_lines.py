"""A plan as people read it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipeline_assets.commands.quantities import (
    aligned,
    as_bytes,
    as_count,
    as_exact_bytes,
    as_range,
    as_seconds,
    form_of,
)

if TYPE_CHECKING:
    from pipeline_assets.corpus.planning.estimate import Estimate
    from pipeline_assets.corpus.planning.outcome import Outcome
    from pipeline_assets.corpus.planning.recipe_plan import Budget, RecipePlan, Sample, TargetPlan
    from pipeline_assets.corpus.planning.room import Room

_GAP = "  "
_TITLES = {
    "bytes_fetched": "to fetch",
    "rows": "rows read",
    "documents": "documents",
    "text_bytes": "text",
    "tokens": "tokens",
    "bytes": "on disk",
    "peak_disk_bytes": "peak disk",
    "peak_memory_bytes": "peak memory",
    "fetch_seconds": "fetching",
    "build_seconds": "building",
}
_UNKNOWN_FETCHING = ("fetching", "unknown", "", "nothing was fetched here yet; --mbit says how fast the network is")


def plan_lines(plan: "RecipePlan", rooms: Sequence["Room"], title: str, workers: int) -> Iterator[str]:
    """Artifact by artifact, then what all of them need, the sample, and what speaks against it."""
    yield title
    if plan.sample is not None:
        yield f"planning fetched {as_bytes(plan.fetched_bytes)}: listing and footers, which stay in the cache"
    for target in plan.targets:
        yield ""
        yield from _target_lines(target)
    if plan.to_build:
        yield ""
        yield from _total_lines(plan, rooms, workers)
    if plan.sample is not None:
        yield ""
        yield from _sample_lines(plan.sample)
    for warning in warnings(plan, rooms):
        yield f"WARNING {warning}"


def warnings(plan: "RecipePlan", rooms: Sequence["Room"]) -> list[str]:
    """What speaks against building it, and what helps."""
    tight = [
        f"{room.where}: needs {_words(room.needed, 'bytes')} more, {as_bytes(room.free or 0)} are free: "
        f"it {room.verdict}; {room.fix}"
        for room in rooms
        if room.verdict != "fits"
    ]
    short = [
        f"{budget.name}: the corpus has {_words(budget.available, 'tokens')} of {budget.tokens:,} tokens: "
        f"{budget.outlook}; {budget.fix}"
        for budget in plan.budgets
        if not budget.is_met
    ]
    return tight + short


def _target_lines(target: "TargetPlan") -> Iterator[str]:
    from pipeline_assets.corpus.planning.outcome import outcomes

    holding = target.holding
    reason = f"  ({holding.reason})" if holding.reason and holding.sealed != "missing" else ""
    yield f"{holding.condition}  {holding.target.folder}{reason}"
    if target.needs_replace:
        yield f"{_GAP}`run` needs --replace, or a new name in the recipe; until it is sealed, both versions lie there"
    if target.is_current and holding.manifest is not None:
        yield from _outcome_lines(outcomes(holding.manifest))
        return
    rows = []
    for name, title in _TITLES.items():
        if name in target.figures:
            rows.append((title, *as_range(target.figures[name], form_of(name)), target.figures[name].basis))
        elif name == "fetch_seconds" and "bytes_fetched" in target.figures:
            rows.append(_UNKNOWN_FETCHING)
    yield from (f"{_GAP}{line}" for line in aligned(rows, numbers={1}))


def _outcome_lines(found: Sequence["Outcome"]) -> Iterator[str]:
    """Planned and real, side by side; nothing where nothing was planned."""
    if not any(one.planned for one in found):
        return
    rows = [("", "planned", "", "real", "")]
    for one in found:
        form = form_of(one.figure)
        likely, span = as_range(one.planned, form) if one.planned else ("", "")
        rows.append((_TITLES[one.figure], likely, span, "" if one.real is None else form(one.real), _verdict(one)))
    yield from (f"{_GAP}{line}" for line in aligned(rows, numbers={1, 3}))


def _verdict(one: "Outcome") -> str:
    """How far off the plan was; empty where it can't be told."""
    if one.planned is None or one.real is None or not one.real:
        return ""
    off = 100 * (one.planned.likely / one.real - 1)
    return "as planned" if one.planned.likely == one.real else f"planned {off:+.1f} %"


def _total_lines(plan: "RecipePlan", rooms: Sequence["Room"], workers: int) -> Iterator[str]:
    yield f"in all, with {workers} workers"
    rows = [("to fetch", as_exact_bytes(plan.missing_bytes), "", "")]
    if plan.fetch_seconds is None:
        rows.append(_UNKNOWN_FETCHING)
    elif plan.missing_bytes:
        rows.append(("fetching", *as_range(plan.fetch_seconds, as_seconds), plan.fetch_seconds.basis))
    if plan.seconds is not None:
        words = f"{plan.seconds.basis}; the command's start and checks with it"
        rows.append(("building", *as_range(plan.seconds, as_seconds), words))
    for room in rooms:
        free = "" if room.free is None else f"{as_bytes(room.free)} are free: {room.verdict}"
        kept = "" if room.kept is None else f"; {_kept_words(room.kept.likely)} in {room.where}"
        rows.append(("memory" if room.kept is None else "disk", *as_range(room.needed, as_bytes), free + kept))
    rows += [_budget_row(budget) for budget in plan.budgets]
    yield from (f"{_GAP}{line}" for line in aligned(rows, numbers={1}))


def _kept_words(kept: float) -> str:
    """What of the disk is taken for good."""
    return f"{as_bytes(kept)} stay" if kept >= 0 else f"{as_bytes(-kept)} less than now stay"


def _budget_row(budget: "Budget") -> tuple[str, str, str, str]:
    likely, span = as_range(budget.available, as_count)
    share = f", {budget.available.likely / budget.tokens:.2g} times as many" if budget.tokens else ""
    return budget.name, likely, span, f"tokens for a budget of {budget.tokens:,}{share}: {budget.outlook}"


def _sample_lines(sample: "Sample") -> Iterator[str]:
    yield (
        f"reads {sample.files:,} of {sample.files_listed:,} files, {sample.row_groups:,} row groups of the "
        f"{sample.row_groups_seen:,} in files looked at, {sample.rows:,} rows"
    )
    rows = [
        (dump.name, f"{dump.row_groups:,} row groups", f"{dump.rows:,} rows", f"{100 * dump.rows / sample.rows:.1f} %")
        for dump in sample.dumps
    ]
    yield from (f"{_GAP}{line}" for line in aligned(rows, numbers={1, 2, 3}))


def _words(estimate: "Estimate", figure: str) -> str:
    likely, span = as_range(estimate, form_of(figure))
    return f"{likely} ({span})" if span else likely

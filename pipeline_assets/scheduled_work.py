"""Work of scheduled runs: `repin` builds a version, `verify` reads a sample.

Their run pages show the events.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import dagster as dg
from dagster._core.storage.tags import SCHEDULED_EXECUTION_TIME_TAG
from dagster._time import get_timezone

from pipeline_assets.corpus.recipes.drive import run_targets
from pipeline_assets.corpus.recipes.files import Period, forget_versions, version_of
from pipeline_assets.corpus.recipes.kind import FILES
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine.artifact import CheckResult, open_artifact, sealed_manifest
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.trust.result import Sample, Scope
from pipeline_assets.corpus.trust.verify import hold, look_at_chain
from pipeline_assets.events import SAMPLE, Shown, evaluations, materialization, newest_shown, shown_targets
from pipeline_assets.systems.registry import KINDS, read_recipe, recipe_of_folders, recipe_path, recipes_of

Event = dg.AssetMaterialization | dg.AssetCheckEvaluation


class Section(Protocol):
    """Keys of a schedule that its work reads."""

    @property
    def recipe(self) -> str: ...

    @property
    def timezone(self) -> str: ...

    @property
    def sample(self) -> str: ...

    @property
    def period(self) -> Period: ...


Act = Callable[[dg.OpExecutionContext, Section, int | None, Run], Iterator[Event]]
"""Do the work of a schedule; the third argument is the number of versions that keep their artifacts, None for all."""


def verify_sample(context: dg.OpExecutionContext, section: Section, keep: int | None, run: Run) -> Iterator[Event]:
    """Read a sample of every sealed artifact of the recipe.

    Yields a check of the files for each asset.

    Raises:
        InputError: a file differs from its manifest.
    """
    moment = due_at(context, section)
    sample, findings = Sample.parse(section.sample, moment.date().isoformat()), []
    recipe = read_recipe(recipe_path(section.recipe, run.root))
    results: dict[dg.AssetKey, dict[str | None, tuple[CheckResult, ...]]] = {}
    kinds: dict[dg.AssetKey, str] = {}
    for target, shown in _places(recipe, run.root):
        if not target.is_sealed(run.root):
            context.log.info(f"{target.name}: {target.state(run.root)[0]}, not read")
            continue
        scope = Scope(None, sample, False, max(run.settings.workers, 1), run.settings.log_every_s)
        found = look_at_chain(run.root / target.folder, scope)
        hold(found)
        context.log.info(f"{target.name}: {len(found.findings)} findings")
        findings += found.findings
        because = found.findings[0].what if found.findings else f"a sample of {section.sample} is as sealed"
        result = CheckResult(FILES.name, not found.findings, FILES.is_blocking, because, {SAMPLE: section.sample})
        results.setdefault(shown.key, {})[shown.partition] = (result,)
        kinds[shown.key] = target.kind
    for key, of_asset in results.items():
        yield from evaluations(key, KINDS[kinds[key]], of_asset)
    if findings:
        first = findings[0]
        what = f"{len(findings)} of the files that were read are not as sealed, the first: {first.what}"
        raise InputError(what, first.where, "see `corpusmill verify`")


def repin(context: dg.OpExecutionContext, section: Section, keep: int | None, run: Run) -> Iterator[Event]:
    """Build the recipe's version of the run's date.

    Yields the materialization and the checks of each artifact.

    Raises:
        InputError: the head of a dataset is unknown, or an artifact failed; all others are built before.
    """
    hub = run.hub_for("the heads")
    version = version_of(section.recipe, run.root, hub, due_at(context, section), section.period)
    context.log.info("%s: %s", version.path, "; ".join(version.moved) or "no head moved: nothing is written")
    recipe = read_recipe(version.path)
    before = None if version.before is None else read_recipe(version.before)
    places = {target.role: shown for target, shown in _places(recipe, run.root)}
    newest = functools.cache(functools.partial(newest_shown, context.instance))
    failures = [f"{dataset}: {error}" for dataset, error in version.unreachable.items()]
    for outcome in run_targets(recipe.targets(), replace(run, earlier=before), goes_on=True):
        target, shown = outcome.target, places[outcome.target.role]
        known = newest(shown.key).get(shown.partition) if outcome.was_current else None
        yield from _events(target, shown, context.instance, run.root, known)
        if outcome.failure is not None:
            failures.append(f"{target.role}: {outcome.failure}")
        else:
            context.log.info("%s: %s", target.role, _change(target, before, run.root))
    if failures:
        what = f"{len(failures)} of its sources or artifacts failed, the others are built: {'; '.join(failures)}"
        raise InputError(what, version.path, "mend these, then run the schedule's job again: it goes on")
    if keep is not None:
        forget_versions(section.recipe, run.root, keep, context.log.info)


def _places(recipe: Recipe, root: Path) -> list[tuple[Target, Shown]]:
    """List the artifacts of a recipe with their assets.

    Recipes are reread, since one may be new.
    """
    return shown_targets(recipe, root, recipe_of_folders(recipes_of(root)[0], root))


def _events(
    target: Target, shown: Shown, instance: dg.DagsterInstance, root: Path, known: tuple[str, str] | None
) -> Iterator[Event]:
    """Yield the materialization of a sealed artifact and its checks.

    Yields nothing for content that is known.
    """
    if not target.is_sealed(root):
        return
    artifact = open_artifact(root / target.folder)
    if known != (artifact.manifest.digest, shown.code):
        yield materialization(artifact, shown, instance)
        results = target.results(root, artifact.manifest)
        yield from evaluations(shown.key, KINDS[target.kind], {shown.partition: results})


def _change(target: Target, before: Recipe | None, root: Path) -> str:
    """Return an artifact's digest, and how its counts differ from the version before."""
    made = open_artifact(root / target.folder).manifest
    old = None
    if before is not None:
        with contextlib.suppress(LookupError, InputError):
            old = sealed_manifest(root / before.target(target.kind, target.partition).folder)
    if old is None or old.digest == made.digest:
        return made.digest + " as before" * (old is not None)
    counts, were = made.identity.counts, old.identity.counts
    changed = (name for name in ("documents", "tokens", "sequences") if isinstance(counts.get(name), int))
    return ", ".join([made.digest, *(f"{name} {were.get(name)} → {counts[name]}" for name in changed)])


def due_at(context: dg.OpExecutionContext, section: Section) -> datetime:
    """Return the time at which the run was due, in the schedule's time zone.

    Without a schedule that started the run, it is the current time.
    """
    due = context.run.tags.get(SCHEDULED_EXECUTION_TIME_TAG)  # UTC, whatever the schedule's zone
    return (datetime.fromisoformat(due) if due else datetime.now(UTC)).astimezone(get_timezone(section.timezone))

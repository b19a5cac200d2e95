"""Dagster jobs that build, repin or verify a recipe."""

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg

from pipeline_assets import events
from pipeline_assets.assets import dagster_name, raise_dagster_failures
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_paths import recipe_names_by_folder, recipe_path
from pipeline_assets.build.recipe_versions import (
    Period,
    delete_old_artifacts,
    find_or_write_version,
    list_versions,
    raise_if_in_future,
)
from pipeline_assets.build.run import FolderFinder, Run
from pipeline_assets.build.run_targets import run_targets
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.compat import SCHEDULED_TIME_TAG
from pipeline_assets.events import AssetView, Event
from pipeline_assets.spine.artifact import CheckResult, open_artifact
from pipeline_assets.spine.errors import InputError, RetryableError, combine_errors
from pipeline_assets.spine.lineage import Finding
from pipeline_assets.spine.replacement import ReplacedError
from pipeline_assets.spine.sealed_folder import require_manifest
from pipeline_assets.systems.early_checks import check_before_build
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.result import FileSample, VerificationScope
from pipeline_assets.trust.verify import read_and_check, scan_chain
from resources.store import Hub, Launcher, Store, Tokenizer

RECIPE_TAG = "corpusmill/recipe"
"""Tag of the jobs of a recipe, and of their runs."""

JobWork = Callable[[dg.OpExecutionContext, Store, Run], Iterator[Event]]
"""Work of a job, which yields events of artifacts."""


def build_job(name: str, description: str, recipe_name: str, root: Path, work: JobWork) -> dg.JobDefinition:
    """Return a job with a single step, which runs `work` for a recipe."""

    @dg.op(name=f"{name}__step", description=description, out={}, pool=Kind.dagster_pool)
    def step(
        context: dg.OpExecutionContext, store: Store, hub: Hub, tokenizer: Tokenizer, launcher: Launcher
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        with raise_dagster_failures(root, context.retry_number):
            yield from work(context, store, store.make_run(root, hub.files(root), tokenizer, launcher))

    @dg.job(name=name, description=description, tags={RECIPE_TAG: recipe_name})
    def job() -> None:
        step()

    return job


def recipe_job(recipe: Recipe, root: Path) -> dg.JobDefinition:
    """Return the job that builds all artifacts of a recipe, in all partitions."""
    description = f"Builds every artifact of {recipe.name} that is not up to date"
    work = functools.partial(build_all, recipe=recipe)
    return build_job(dagster_name(recipe.name), description, recipe.name, root, work)


def invalid_recipe_job(recipe_name: str, error: InputError, root: Path) -> dg.JobDefinition:
    """Return the job of an invalid or missing recipe, which fails with the error.

    Without this job, the recipe's schedules would be omitted, and the UI would not show the error.
    """

    def fail(context: dg.OpExecutionContext, store: Store, run: Run) -> Iterator[Event]:
        raise error

    what = f"Fails, because {recipe_name} is not a valid recipe"
    return build_job(dagster_name(recipe_name), what, recipe_name, root, fail)


def build_all(context: dg.OpExecutionContext, store: Store, run: Run, recipe: Recipe) -> Iterator[Event]:
    """Build a recipe's artifacts that are not up to date; yield events the UI lacks.

    A RetryableError other than DeniedError is raised immediately. After any other failure, the artifacts that do not
    depend on the failed artifact are still built. Then the first failure is raised, with the other failures attached.
    """
    if failures := (yield from _build_recipe(context, run, recipe)):
        raise combine_errors(failures)


def repin(
    context: dg.OpExecutionContext, store: Store, run: Run, recipe_name: str, timezone: str, period: Period
) -> Iterator[Event]:
    """Build the recipe version of the run's date, or the newest if no input changed.

    Yield events that the UI lacks. Raise failures as `build_all` does, and UsageError if the newest version has a date
    in the future. If hub heads cannot be read, raise the errors after the build. If nothing failed, keep only the
    artifacts of the newest `store.keep_versions` versions; None keeps all.
    """
    moment = scheduled_time(context, timezone)
    # The run of an earlier tick may be repeated today.
    raise_if_in_future(recipe_name, run.root, max(moment, datetime.now(UTC)))
    hub = run.require_hub("the heads")
    version = find_or_write_version(recipe_name, run.root, SYSTEMS, hub, moment, period)
    context.log.info("%s: %s", version.path, "; ".join(version.changes) or "no recipe written")
    before = None if version.previous_path is None else SYSTEMS.read_recipe(version.previous_path).folder
    run = replace(run, find_previous_folder=before, keep_work=run.keep_work is not False)
    built = yield from _build_recipe(context, run, SYSTEMS.read_recipe(version.path))
    if failures := [*version.head_errors, *built]:
        raise combine_errors(failures)
    if store.keep_versions is not None:
        delete_old_artifacts(recipe_name, run.root, SYSTEMS, store.keep_versions, context.log.info)


def _build_recipe(context: dg.OpExecutionContext, run: Run, recipe: Recipe) -> Generator[Event, None, list[InputError]]:
    """Build all artifacts, yield events that the UI lacks, and return the failures.

    Failures that `run_targets` raises in spite of `keep_going` are raised, not returned.
    """
    check_before_build(recipe, recipe.targets(), run)
    views = events.asset_views(recipe, run.root, recipe_names_by_folder(SYSTEMS.load_recipes(run.root)[0], run.root))
    remaining = {target.role: (target, view) for target, view in views}
    failures: list[InputError] = []
    newest = functools.cache(functools.partial(events.newest_versions, context.instance))
    states = dict[int, str]()  # targets follow their inputs, whose states no longer change
    try:
        for outcome in run_targets(recipe.targets(), run, keep_going=True):
            target, view = remaining.pop(outcome.target.role)
            yield from _new_events(context, target, view, newest, run.root, states, was_built=not outcome.was_current)
            if outcome.failure is not None:
                context.log.error("FAILED %s: %s", target.role, outcome.failure)
                failures.append(outcome.failure)
            else:
                context.log.info("%s: %s", target.role, _describe_change(target, run.find_previous_folder, run.root))
    except InputError:  # the last artifact failed; if only its check failed, it is sealed
        for target, view in remaining.values():
            yield from _new_events(context, target, view, newest, run.root, states)
        raise
    return failures


def _new_events(
    context: dg.OpExecutionContext,
    target: Target,
    view: AssetView,
    find_newest_versions: Callable[[dg.AssetKey], Mapping[str | None, tuple[str, str]]],
    root: Path,
    state_by_id: dict[int, str],
    was_built: bool = False,
) -> Iterator[Event]:
    """Yield an artifact's events that the UI lacks.

    Nothing is yielded if the artifact is missing, damaged or stale. If a check failed, the results of all checks are
    always yielded.
    """
    if events.find_state(target, root, state_by_id) in ("current", "failed"):
        artifact = open_artifact(root / target.folder)
        version = (artifact.manifest.digest, view.code_version)
        is_new = was_built or find_newest_versions(view.key).get(view.partition) != version
        results = target.check_results(root, artifact.manifest)
        if is_new:
            yield events.materialization(artifact, view, context.instance, was_current=not was_built)
        if is_new or not all(result.passed for result in results):
            yield from events.check_evaluations(view.key, target.kind, {view.partition: results})


def verify_sample(
    context: dg.OpExecutionContext, store: Store, run: Run, recipe_name: str, timezone: str, sample: str
) -> Iterator[Event]:
    """Verify a sample of the sealed files of a recipe and its versions.

    Yield a check result for each asset with artifacts to read. Artifacts that are stale, or that a removal of
    old versions deletes during the run, are not read. If a file is missing or differs from its manifest, raise
    InputError after all checks; otherwise, raise the first error of an artifact that could not be verified.
    """
    share = FileSample.parse(sample, scheduled_time(context, timezone).date().isoformat())
    findings, errors = list[Finding](), list[RetryableError]()
    results: dict[dg.AssetKey, dict[str | None, tuple[CheckResult, ...]]] = {}
    kinds: dict[dg.AssetKey, Kind] = {}
    recipes, names = SYSTEMS.load_recipes(run.root)[0], {path.stem for path in list_versions(recipe_name, run.root)}
    versions = [other for other in recipes if other.name in names]
    by_folder = recipe_names_by_folder(recipes, run.root)
    verified = (SYSTEMS.read_recipe(recipe_path(recipe_name, run.root)), *versions)
    for target, view in (view for recipe in verified for view in events.asset_views(recipe, run.root, by_folder)):
        scope = VerificationScope(None, share, False, run.settings.workers, run.settings.log_every_s)
        try:
            verification = _verify_in_place(target, run.root, scope)
        except RetryableError as error:  # the results of the other artifacts count in spite of it
            context.log.error(f"{target.role}: {error}")
            errors.append(error)
            continue
        if verification is None:
            context.log.info(f"{target.role}: {target.state(run.root)[0]}, not read")
            continue
        new_findings, percent_read = verification
        context.log.info(f"{target.role}: {len(new_findings)} findings")
        findings += new_findings
        intact = f"a sample of {sample} matches the manifest; {percent_read:.1f} % of the bytes were read"
        because = new_findings[0].what if new_findings else intact
        numbers: dict[str, int | float | str] = {events.SAMPLE_KEY: sample}
        result = CheckResult(FILES_CHECK.name, not new_findings, FILES_CHECK.is_blocking, because, numbers)
        results.setdefault(view.key, {})[view.partition] = (result,)
        kinds[view.key] = target.kind
    for key, asset_results in results.items():
        yield from events.check_evaluations(key, kinds[key], asset_results)
    if findings:
        first = findings[0]
        what = f"{len(findings)} differences from the manifests, the first: {first.what}"
        raise InputError(what, first.where, "run `corpusmill verify` to list them all")
    if errors:
        raise errors[0]


def _verify_in_place(target: Target, root: Path, scope: VerificationScope) -> tuple[list[Finding], float] | None:
    """Verify an artifact; None if it is missing or stale."""
    if target.state(root)[0] in ("missing", "stale"):
        return None
    try:
        findings, percent_read = _verify(root / target.folder, scope)
    except ReplacedError:  # by another builder: verify the new artifact
        return _verify_in_place(target, root, scope)
    is_removed = bool(findings) and target.state(root)[0] == "missing"
    return None if is_removed else (findings, percent_read)


def _verify(folder: Path, scope: VerificationScope) -> tuple[list[Finding], float]:
    """Verify an artifact; return its findings and the percentage of bytes read."""
    try:
        verification = scan_chain(folder, scope, SYSTEMS.label_names)
        read_and_check(verification)
    except RetryableError:
        raise
    except InputError as error:
        return [Finding(Path(error.where), error.what, "")], 0.0
    return verification.findings, verification.percent_read


def _describe_change(target: Target, find_previous_folder: FolderFinder | None, root: Path) -> str:
    """Format an artifact's digest, and changes of counts since an earlier version."""
    manifest = open_artifact(root / target.folder).manifest
    old = None
    if find_previous_folder is not None:
        with contextlib.suppress(LookupError, InputError):
            old = require_manifest(root / find_previous_folder(target.role))
    if old is None or old.digest == manifest.digest:
        return manifest.digest + ", unchanged" * (old is not None)
    counts, old_counts = manifest.identity.counts, old.identity.counts
    names = (name for name in ("documents", "tokens", "sequences") if isinstance(counts.get(name), int))
    return ", ".join([manifest.digest, *(f"{name} {old_counts.get(name)} → {counts[name]}" for name in names)])


def scheduled_time(context: dg.OpExecutionContext, timezone: str) -> datetime:
    """Return a run's scheduled time, else the current time; both are in `timezone`."""
    due = context.run.tags.get(SCHEDULED_TIME_TAG)  # UTC, whatever the schedule's zone
    return (datetime.fromisoformat(due) if due else datetime.now(UTC)).astimezone(ZoneInfo(timezone))

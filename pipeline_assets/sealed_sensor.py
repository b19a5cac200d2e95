"""The sensor that reports artifacts built without Dagster.

Such artifacts were built by a command or on another machine. To a new Dagster instance, the sensor reports the current
version and check results of each artifact. An up-to-date artifact whose last run failed is reported again, so that the
UI does not show it as failed. A removed or damaged artifact of a recipe is shown as stale, except removed artifacts of
dated recipe versions.
"""

import contextlib
import graphlib
import hashlib
import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import dagster as dg

from pipeline_assets import events
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.recipe_paths import recipe_names_by_folder
from pipeline_assets.build.removal_state import read_removals
from pipeline_assets.build.target import Target
from pipeline_assets.compat import PARTITION_TAG
from pipeline_assets.events import AssetView
from pipeline_assets.sensor_cursor import read_cursor
from pipeline_assets.spine.artifact import CheckResult, check_record_path, open_artifact, read_check_results, size_error
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import MANIFEST_FILE
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.versions import parse_version, shown_asset_key

_INTERVAL_S = 15
_POLLING_SHARE = 0.05
_MAX_FAILED_RUNS = 1000
_MAX_TICK_S = 30.0  # Dagster ends a sensor after 60 s; the next tick continues


def sealed_artifacts_sensor(recipes: Sequence[Recipe], root: Path) -> dg.SensorDefinition:
    """Return the sensor that reports sealed artifacts of a data root."""
    requested, names = _requested_targets(recipes, root), [recipe.name for recipe in recipes]
    paused_until = 0.0  # scans of a large root take at most a twentieth of the time

    @dg.sensor(
        name="sealed_artifacts",
        description=f"Reports artifacts that were built in {root} without Dagster, with their check results",
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sealed_artifacts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        nonlocal paused_until
        if (began := time.monotonic()) < paused_until:
            return dg.SkipReason("pausing, because the last scan was slow")
        assets = _list_assets(requested, root, names)
        fingerprint = _fingerprint(assets, root, _latest_failed_runs(context.instance, 1))
        reported_fingerprint, reported_count = read_cursor(context.cursor, tuple[str, int], ("", 0))
        is_wiped = _count_materialized(assets, context.instance) < reported_count
        paused_until = began + (time.monotonic() - began) / _POLLING_SHARE
        if fingerprint == reported_fingerprint and not is_wiped:
            return dg.SkipReason("nothing was built since the last scan")
        reported = _report_events(assets, root, context.instance)
        if reported is None:
            return dg.SkipReason("too many events for one tick; the next one continues")
        context.update_cursor(json.dumps([fingerprint, _count_materialized(assets, context.instance)]))
        return dg.SkipReason(f"events reported: {reported}")

    return sealed_artifacts


def report_sealed_artifacts(recipes: Sequence[Recipe], root: Path, instance: dg.DagsterInstance) -> None:
    """Report artifacts and checks that the instance lacks; stop after 30 seconds."""
    names = [recipe.name for recipe in recipes]
    _report_events(_list_assets(_requested_targets(recipes, root), root, names), root, instance)


@dataclass(frozen=True)
class _TrackedAsset:
    """Sealed or missing artifact, with the asset that shows it.

    `target` is None if no recipe requests the artifact. `digest` is empty if the artifact is missing. `is_changed` is
    True for changes that the digest does not show: local input files changed, or a file of the artifact is missing or
    has another size.
    """

    folder: Path
    kind_name: str
    digest: str
    view: AssetView
    target: Target | None = None
    is_changed: bool = False


_RequestedTargets = Mapping[tuple[Path, str], Sequence[tuple[Target, AssetView]]]
"""Targets that recipes request, by folder and name of the kind."""


def _requested_targets(recipes: Sequence[Recipe], root: Path) -> _RequestedTargets:
    recipe_by_folder = recipe_names_by_folder(recipes, root)
    requested: dict[tuple[Path, str], list[tuple[Target, AssetView]]] = {}
    for recipe in recipes:
        for target, view in events.asset_views(recipe, root, recipe_by_folder):
            requested.setdefault((root / target.folder, target.kind.name), []).append((target, view))
    return requested


def _list_assets(requested: _RequestedTargets, root: Path, recipe_names: Collection[str]) -> list[_TrackedAsset]:
    """List sealed artifacts, upstream first, then missing artifacts.

    An artifact is listed once for each recipe that requests it, or once if no recipe does. Missing artifacts of
    dated recipe versions are omitted, because retention removes them.
    """
    lineage = Lineage(root)
    manifests = lineage.manifests.values()
    upstream = {item.digest: [entry["digest"] for entry in item.identity.upstream] for item in manifests}
    ranks = {digest: rank for rank, digest in enumerate(graphlib.TopologicalSorter(upstream).static_order())}
    artifacts = []
    for folder, manifest in sorted(lineage.manifests.items(), key=lambda item: ranks[item[1].digest]):
        kind, digest = manifest.kind, manifest.digest
        is_damaged = any(size_error(folder, file) for file in manifest.storage)
        for target, view in requested.get((folder, kind), ()):
            is_changed = is_damaged or (target.external_inputs is not None and target.state(root)[0] == "stale")
            artifacts.append(_TrackedAsset(folder, kind, digest, view, target, is_changed))
        if (folder, kind) not in requested and kind in SYSTEMS.kinds:
            name, _, source = manifest.name.partition("/")
            version, key = parse_version(name, recipe_names), shown_asset_key(kind, name, recipe_names)
            partition = (source or None) if version is None else version.partition(source or None)
            view = AssetView(key, partition, str(SYSTEMS.kinds[kind].stage.version), version=version)
            artifacts.append(_TrackedAsset(folder, kind, digest, view, None, is_damaged))
    for (folder, kind), targets in requested.items():
        if folder not in lineage.manifests:
            # Retention removes the artifacts of old versions, and no run is to build them again.
            artifacts += [_TrackedAsset(folder, kind, "", view, target) for target, view in targets if not view.version]
    return artifacts


def _fingerprint(assets: Sequence[_TrackedAsset], root: Path, failed_runs: Sequence[dg.RunRecord]) -> str:
    """Hash everything on which events depend, such as digests and times of builds."""
    lines = [read_removals(root).positions[-1], *(record.dagster_run.run_id for record in failed_runs)]
    for entry in assets:
        view = entry.view
        asset = (view.key.to_user_string(), view.partition, view.code_version)
        times = [_modified_at_ns(path) for path in (entry.folder / MANIFEST_FILE, check_record_path(entry.folder))]
        values = (*asset, entry.digest, entry.is_changed, *times)
        lines.append(" ".join(map(str, values)))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _count_materialized(assets: Sequence[_TrackedAsset], instance: dg.DagsterInstance) -> int:
    """Count assets and partitions with events; users may wipe events or delete runs."""
    keys = {entry.view.key for entry in assets}.intersection(instance.all_asset_keys())
    return sum(len(events.newest_storage_ids(instance, key)) for key in keys)


def _modified_at_ns(path: Path) -> int:
    """Return the time of a file's last change; 0 without the file."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime_ns
    return 0


def _report_events(assets: Sequence[_TrackedAsset], root: Path, instance: dg.DagsterInstance) -> int | None:
    """Report new events and return their number; None if the time of a tick ran out."""
    deadline, count = time.monotonic() + _MAX_TICK_S, 0
    materializations = _new_materializations(assets, root, instance)
    new_events: Iterator[events.Event] = itertools.chain(materializations, _new_check_results(assets, instance))
    for event in new_events:
        if time.monotonic() > deadline:
            return None
        instance.report_runless_asset_event(event)
        count += 1
    return count


def _new_materializations(
    assets: Sequence[_TrackedAsset], root: Path, instance: dg.DagsterInstance
) -> Iterator[dg.AssetMaterialization]:
    """Yield materializations that correct what Dagster shows of artifacts.

    An artifact gets one if its digest or staleness changed, or if it is up to date but the UI shows it as failed. A
    removed or damaged artifact gets one if the UI shows it as up to date.
    """
    known_keys = {entry.view.key for entry in assets}.intersection(instance.all_asset_keys())
    newest = defaultdict(dict, {key: events.newest_storage_ids(instance, key) for key in known_keys})
    reported = {key: events.newest_tags(instance, key, newest[key]) for key in known_keys}
    failed_at: dict[tuple[dg.AssetKey, str | None], float] = {}
    for failure in reversed(_latest_failed_runs(instance, _MAX_FAILED_RUNS)):
        run, ended = failure.dagster_run, failure.end_time or 0.0
        failed_at |= {(key, run.tags.get(PARTITION_TAG)): ended for key in run.asset_selection or ()}
    states = dict[int, str]()
    for entry in assets:
        view, state = entry.view, "current" if entry.target is None else events.find_state(entry.target, root, states)
        tags = reported.get(view.key, {}).get(view.partition, {})
        digest, code_version = events.find_versions(tags)
        stale = events.stale_event(view, state, digest) if digest and code_version != events.OUTDATED else None
        is_stale, event = state == "stale", stale if state in ("missing", "damaged", "stale") else None
        if state not in ("missing", "damaged"):
            is_known = digest == entry.digest and is_stale == (code_version != view.code_version)
            is_known = is_known and (is_stale or not events.has_lost_input(view, tags, newest, instance))
            ended = failed_at.get((view.key, view.partition), 0.0)
            if is_known and not (ended and not is_stale and _looks_failed(entry, ended, root, instance)):
                continue
            view = replace(view, code_version=events.OUTDATED) if is_stale else view
            with contextlib.suppress(InputError):  # the manifest of a member is damaged
                event = events.materialization(open_artifact(entry.folder), view, instance)
        if event is not None:
            newest[view.key][view.partition] = sys.maxsize  # newer than every stored event
            yield event


def _new_check_results(
    assets: Sequence[_TrackedAsset], instance: dg.DagsterInstance
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield check results that the UI lacks or shows as outdated.

    A failure that a scheduled verification found stands until the artifact is built again.
    """
    kinds = {entry.view.key: SYSTEMS.kinds[entry.kind_name] for entry in assets}
    results: dict[dg.AssetKey, dict[str | None, Sequence[CheckResult]]] = {key: {} for key in kinds}
    built_at = dict.fromkeys(kinds, 0.0)
    # An asset has all versions of a recipe's artifact; its checks are those of the newest one.
    views = [entry.view for entry in assets]
    newest_dates = dict(sorted((view.key, view.version.date) for view in views if view.version))
    for entry, view in zip(assets, views, strict=True):
        if view.version is None or view.version.date == newest_dates[view.key]:
            results[view.key][view.partition] = read_check_results(entry.folder, entry.digest) or ()
            built_at[view.key] = max(built_at[view.key], _modified_at_ns(entry.folder / MANIFEST_FILE) / 1e9)
    for key, kind in kinds.items():
        checks = [dg.AssetCheckKey(key, check.name) for check in kind.checks]
        known = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
        newest = instance.get_latest_materialization_event(key)
        stored = {event.asset_check_key: event for event in events.check_evaluations(key, kind, results[key])}
        for check in checks:
            record = known.get(check)
            earlier, last = (None, None) if record is None else (record.event, record.evaluation)
            if not isinstance(last, dg.AssetCheckEvaluation):  # never reported, or only planned by a run that failed
                last = None
            # The UI ignores results that are older than the newest materialization.
            is_older = newest is not None and (earlier is None or earlier.timestamp < newest.timestamp)
            if last is not None and _failed_verification(last) and earlier and earlier.timestamp > built_at[key]:
                if is_older:
                    yield last
            elif (event := stored.get(check)) and (is_older or _differs(last, event)):
                yield event


def _latest_failed_runs(instance: dg.DagsterInstance, limit: int) -> Sequence[dg.RunRecord]:
    failures = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])
    return instance.get_run_records(failures, limit=limit, order_by="update_timestamp")


def _looks_failed(asset: _TrackedAsset, failed_at: float, root: Path, instance: dg.DagsterInstance) -> bool:
    """Check whether the UI shows an up-to-date artifact as failed.

    The UI does so if the artifact's last materialization is older than `failed_at`, the time of a failed run.
    """
    partitions = None if asset.view.partition is None else [asset.view.partition]
    chosen = dg.AssetRecordsFilter(asset.view.key, asset_partitions=partitions)
    is_current = asset.target is not None and asset.target.state(root)[0] == "current"
    newest = instance.fetch_materializations(chosen, limit=1).records
    return is_current and all(event.timestamp < failed_at for event in newest)


def _failed_verification(evaluation: dg.AssetCheckEvaluation) -> bool:
    """Check whether a scheduled verification found damage in a sample of the files."""
    keys = {name.rpartition("_")[2] for name in evaluation.metadata}
    return not evaluation.passed and events.SAMPLE_KEY in keys


def _differs(last: dg.AssetCheckEvaluation | None, event: dg.AssetCheckEvaluation) -> bool:
    """Check whether a result is unreported or differs from its last report."""
    reported = None if last is None else (last.passed, last.severity, last.description)
    return reported != (event.passed, event.severity, event.description)

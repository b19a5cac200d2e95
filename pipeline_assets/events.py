"""Dagster events of artifacts and checks, reported by a sensor.

The sensor reports artifacts that a command or another machine built without Dagster. It also fills a new instance after
a loss, with the newest content of each artifact and the results of its checks.
"""

import contextlib
import graphlib
import hashlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg

from pipeline_assets.build.kind import Kind
from pipeline_assets.build.recipe import Recipe, recipe_of_folders
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.pages import plain
from pipeline_assets.external import external_sources
from pipeline_assets.spine.artifact import Artifact, CheckResult, check_record_path, open_artifact, read_check_results
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.versions import Version, version_folder
from resources.artifact_metadata import artifact_metadata

RecipeOf = Mapping[str, str]  # names of recipes by the folders, below the data root, of the artifacts they ask for
_DATA_VERSION, _CODE_VERSION = "dagster/data_version", "dagster/code_version"
COMMAND = "corpusmill/command"  # all that one command built has the same
SAMPLE = "sample"  # in the metadata of a check that read the files after the build
_RECORDS_AT_ONCE = 500
_NO_VERSION, _NO_EVENT = "INITIAL", "NULL"  # as a Dagster run has it of an input that was never materialised
_MAX_REPORTED = 50  # partitions of an asset, in what a check says of them
_OUTDATED = "not as asked"  # no code version: what has it is stale
_EVERY_S = 15
_POLLING_SHARE = 0.05
_AT_MOST_S = 30.0  # Dagster ends a sensor after 60; the next tick goes on


def upstream_keys(
    target: Target, recipe: str, recipe_of: RecipeOf, names: Collection[str]
) -> dict[dg.AssetKey, list[Target]]:
    """Return the inputs of an artifact by asset, if a recipe requests them."""
    keys: dict[dg.AssetKey, list[Target]] = {}
    for upstream in target.upstream:
        asked_by = recipe_of.get(str(upstream.folder)) if upstream.is_external else recipe
        if asked_by is not None:
            keys.setdefault(version_folder(upstream.kind.name, None, asked_by, names).key, []).append(upstream)
    return keys


def code_version(kind: Kind, targets: Sequence[Target], sources: Iterable[dg.AssetKey]) -> str:
    """Return the code version of an asset: its stage version and a hash.

    The hash covers recipe values and the keys of external inputs (`sources`). After an edit of the recipe, Dagster
    calls the asset stale, and partitions that are still up to date are reported with the new version.
    """
    asked = sorted([target.partition or "", canonical_sha256(target.user_prompt())] for target in targets)
    nodes = sorted(key.to_user_string() for key in sources)  # an edge more or less is stale to Dagster
    return f"{kind.stage.version}-{canonical_sha256([asked, nodes]).removeprefix('sha256:')[:12]}"


@dataclass(frozen=True)
class AssetView:
    """Asset, partition and code version that the UI shows for an artifact.

    Attributes:
        key: key of the asset.
        code: code version of the asset, see `code_version`; another text if the artifact is stale.
        upstream: inputs by asset; external inputs have no targets.
        version: version of the recipe; None if the recipe is not a version of another one.
    """

    key: dg.AssetKey
    partition: str | None
    code: str
    upstream: Mapping[dg.AssetKey, Sequence[Target]] = field(default_factory=dict)
    version: Version | None = None


def by_kind(recipe: Recipe) -> dict[str, list[Target]]:
    """Group the targets of a recipe by kind, upstream first; each kind is an asset."""
    targets: dict[str, list[Target]] = {}
    for target in recipe.targets():
        targets.setdefault(target.kind.name, []).append(target)
    return targets


def asset_views(recipe: Recipe, root: Path, recipe_of: RecipeOf) -> list[tuple[Target, AssetView]]:
    """Return the targets of a recipe, upstream first, each with its `AssetView`."""
    made = by_kind(recipe)
    sources = {kind: external_sources(targets, root) for kind, targets in made.items()}
    codes = {kind: code_version(targets[0].kind, targets, sources[kind]) for kind, targets in made.items()}
    names = frozenset(recipe_of.values())

    def shown(target: Target) -> AssetView:
        key, partition, version = version_folder(target.kind.name, target.partition, recipe.name, names)
        upstream = upstream_keys(target, recipe.name, recipe_of, names)
        if version is not None:
            return AssetView(key, partition, str(target.stage.version), upstream, version)
        read: dict[dg.AssetKey, list[Target]] = {key: [] for key in sources[target.kind.name]}
        return AssetView(key, partition, codes[target.kind.name], upstream | read)

    return [(target, shown(target)) for target in recipe.targets()]


def materialization(
    artifact: Artifact, shown: AssetView, instance: dg.DagsterInstance, was_current: bool = False
) -> dg.AssetMaterialization:
    """Return the event of an artifact that no Dagster run of its asset built.

    Its tags (content, code version and inputs) are those of a run, so that Dagster's staleness is correct.

    Args:
        was_current: whether the artifact was up to date, so that nothing was built.
    """
    manifest = artifact.manifest
    if shown.version is not None:
        shown.version.add_to(instance)
    digests = {entry["name"]: entry["digest"] for entry in manifest.identity.upstream}
    tags = {
        _DATA_VERSION: manifest.digest,
        "dagster/data_version_is_user_provided": "true",
        _CODE_VERSION: shown.code,
        **({COMMAND: command["id"]} if (command := manifest.provenance.get("command")) else {}),
    }
    for above, targets in shown.upstream.items():
        if not targets:  # of a source no version is told: its asset's own partition lists its files, each by its hash
            tags[f"dagster/input_data_version/{above.to_user_string()}"] = _NO_VERSION
            tags[f"dagster/input_event_pointer/{above.to_user_string()}"] = _NO_EVENT
            continue
        newest, digest = instance.fetch_materializations(above, limit=1).records, digests.get(targets[-1].role)
        if newest and digest is not None:
            tags[f"dagster/input_data_version/{above.to_user_string()}"] = digest
            tags[f"dagster/input_event_pointer/{above.to_user_string()}"] = str(newest[0].storage_id)
    metadata = artifact_metadata(artifact, SYSTEMS.kinds, was_current)
    return dg.AssetMaterialization(shown.key, partition=shown.partition, metadata=metadata, tags=tags)


def newest_shown(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str | None, tuple[str, str]]:
    """The newest content of an asset that the instance knows of, and by which code, by partition."""
    latest = instance.event_log_storage.get_latest_storage_id_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION
    )
    events, stored = [instance.get_latest_materialization_event(key)], list(latest.values())
    for start in range(0, len(stored), _RECORDS_AT_ONCE):
        ids = stored[start : start + _RECORDS_AT_ONCE]
        wanted = dg.AssetRecordsFilter(asset_key=key, storage_ids=ids)
        events += [record.event_log_entry for record in instance.fetch_materializations(wanted, limit=len(ids)).records]
    newest: dict[str | None, tuple[str, str]] = {}
    for event in events:
        said = event.asset_materialization if event is not None else None
        if said is not None:
            tags = said.tags or {}
            newest.setdefault(said.partition, (tags.get(_DATA_VERSION, ""), tags.get(_CODE_VERSION, "")))
    return newest


def describe_results(results: Mapping[str | None, CheckResult]) -> dict[str, Any]:
    """Return the arguments of a Dagster check event from results by partition.

    All must pass; failed results come first in the description.
    """
    told = sorted(results, key=lambda partition: results[partition].passed)
    failed = [results[partition] for partition in told if not results[partition].passed]
    is_error = any(result.blocking for result in failed or results.values())
    words = [f"{name}: {results[name].because}" if name else results[name].because for name in told[:_MAX_REPORTED]]
    more = [f"{len(told) - _MAX_REPORTED:,} more"] if len(told) > _MAX_REPORTED else []
    return {
        "passed": not failed,
        "severity": dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        "description": plain("; ".join([*words, *more])),
        "metadata": {
            number if len(told) == 1 else f"{name}_{number}": value
            for name in told[:_MAX_REPORTED]
            for number, value in results[name].numbers.items()
        },
    }


def evaluations(
    key: dg.AssetKey, kind: Kind, results: Mapping[str | None, Sequence[CheckResult]]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield an evaluation for each check of a kind that has results, by partition."""
    for check in kind.checks:
        asked = {name: one for name, of_all in results.items() for one in of_all if one.name == check.name}
        if asked:
            yield dg.AssetCheckEvaluation(
                asset_key=key, check_name=check.name, blocking=check.is_blocking, **describe_results(asked)
            )


def build_sensor(recipes: Sequence[Recipe], root: Path) -> dg.SensorDefinition:
    """Return the sensor of a data root; it reads manifests, and lists source files."""
    asked, names = _requested_targets(recipes, root), [recipe.name for recipe in recipes]
    rests_until = 0.0  # looks at a large root take a twentieth of the time, no more

    @dg.sensor(
        name="sealed_artifacts",
        description=f"Shows what was built in {root} outside of Dagster, and what its checks said",
        minimum_interval_seconds=_EVERY_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sealed_artifacts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        nonlocal rests_until
        if (began := time.monotonic()) < rests_until:
            return dg.SkipReason("the last look took long: there is a rest between two")
        there = _sealed(asked, root, names)
        seen = _fingerprint(there)
        rests_until = began + (time.monotonic() - began) / _POLLING_SHARE
        if seen == context.cursor:
            return dg.SkipReason("nothing was built since the last look")
        reported = _report(there, root, context.instance)
        if reported is None:
            return dg.SkipReason("there is more to report than fits into a look: the next one goes on")
        context.update_cursor(seen)
        return dg.SkipReason(f"events reported: {reported}")

    return sealed_artifacts


def report_sealed(recipes: Sequence[Recipe], root: Path, instance: dg.DagsterInstance) -> None:
    """Report artifacts and checks that are new to the instance, for up to 30 seconds."""
    _report(_sealed(_requested_targets(recipes, root), root, [recipe.name for recipe in recipes]), root, instance)


@dataclass(frozen=True)
class _Sealed:
    """Sealed artifact and the asset that shows it; no target if no recipe requests it."""

    folder: Path
    kind: str
    digest: str
    shown: AssetView
    target: Target | None = None
    is_outdated: bool = False


_Requested = Mapping[tuple[Path, str], Sequence[tuple[Target, AssetView]]]
"""Targets that recipes request, by folder and kind."""


def _requested_targets(recipes: Sequence[Recipe], root: Path) -> _Requested:
    recipe_of = recipe_of_folders(recipes, root)
    asked: dict[tuple[Path, str], list[tuple[Target, AssetView]]] = {}
    for recipe in recipes:
        for target, shown in asset_views(recipe, root, recipe_of):
            asked.setdefault((root / target.folder, target.kind.name), []).append((target, shown))
    return asked


def _sealed(asked: _Requested, root: Path, names: Collection[str]) -> list[_Sealed]:
    """List the artifacts in a data root, upstream first, once per requesting recipe."""
    lineage = Lineage(root)
    made_from = {one.digest: [entry["digest"] for entry in one.identity.upstream] for one in lineage.sealed.values()}
    ranks = {digest: rank for rank, digest in enumerate(graphlib.TopologicalSorter(made_from).static_order())}
    found = []
    for folder, one in sorted(lineage.sealed.items(), key=lambda item: ranks[item[1].digest]):
        for target, shown in asked.get((folder, one.kind), ()):
            is_outdated = target.external_inputs is not None and target.state(root)[0] == "stale"
            found.append(_Sealed(folder, one.kind, one.digest, shown, target, is_outdated))
        if (folder, one.kind) not in asked and one.kind in SYSTEMS.kinds:
            name, _, partition = one.name.partition("/")
            place = version_folder(one.kind, partition or None, name, names)
            shown = AssetView(
                place.key, place.partition, str(SYSTEMS.kinds[one.kind].stage.version), version=place.version
            )
            found.append(_Sealed(folder, one.kind, one.digest, shown))
    return found


def _fingerprint(sealed: Sequence[_Sealed]) -> str:
    """Hash digests, code versions, changes of source files, and times of checks."""
    lines = []
    for one in sealed:
        asked_at = 0
        with contextlib.suppress(FileNotFoundError):
            asked_at = check_record_path(one.folder).stat().st_mtime_ns
        shown = one.shown
        words = (shown.key.to_user_string(), shown.partition, one.digest, shown.code, one.is_outdated, asked_at)
        lines.append(" ".join(map(str, words)))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _report(sealed: Sequence[_Sealed], root: Path, instance: dg.DagsterInstance) -> int | None:
    """Report and count new events, without damaged artifacts; None if time ran out."""
    deadline, count, log, stale = time.monotonic() + _AT_MOST_S, 0, instance.event_log_storage, dict[int, bool]()
    kinds = {one.shown.key: one.kind for one in sealed}
    known_of = {key: newest_shown(instance, key) for key in kinds}
    results: dict[dg.AssetKey, dict[str | None, Sequence[CheckResult]]] = {key: {} for key in kinds}
    # Older versions are history: the checks of an asset are those of its newest version.
    newest_dates = dict(sorted((one.shown.key, one.shown.version.date) for one in sealed if one.shown.version))
    for one in sealed:
        shown = one.shown
        if shown.version is None or shown.version.date == newest_dates[shown.key]:
            results[shown.key][shown.partition] = read_check_results(one.folder, one.digest) or ()
        digest, code = known_of[shown.key].get(shown.partition, ("", ""))
        is_stale = one.target is not None and _is_stale(one.target, root, stale)
        if digest == one.digest and is_stale == (code != shown.code):
            continue
        if time.monotonic() > deadline:
            return None
        with contextlib.suppress(InputError):
            said = replace(shown, code=_OUTDATED) if is_stale else shown
            instance.report_runless_asset_event(materialization(open_artifact(one.folder), said, instance))
            count += 1
    for key, kind in kinds.items():
        checks = [dg.AssetCheckKey(key, check.name) for check in SYSTEMS.kinds[kind].checks]
        known = log.get_latest_asset_check_execution_by_key(checks)
        newest = instance.get_latest_materialization_event(key)
        for event in evaluations(key, SYSTEMS.kinds[kind], results[key]):
            record = known.get(event.asset_check_key)
            told = None if record is None else record.event
            # What was said before the newest materialization the UI takes for not asked.
            is_older = newest is not None and (told is None or told.timestamp < newest.timestamp)
            if is_older or _is_news(None if record is None else record.evaluation, event):
                if time.monotonic() > deadline:
                    return None
                instance.report_runless_asset_event(event)
                count += 1
    return count


def _is_stale(target: Target, root: Path, known: dict[int, bool]) -> bool:
    """Check whether `status` calls a target stale; `known` has results by identity, since recipes share targets."""
    if id(target) not in known:
        states = [one.state(root)[0] for one in target.upstream]
        known[id(target)] = (
            target.state(root)[0] == "stale"
            or not {"damaged", "failed"}.isdisjoint(states)
            or any(_is_stale(one, root, known) for one in target.upstream)
        )
    return known[id(target)]


def _is_news(known: dg.AssetCheckEvaluation | None, event: dg.AssetCheckEvaluation) -> bool:
    """Check whether an evaluation differs from the known one; damage found by a later sample is kept."""
    if known is None:
        return True
    if not known.passed and any(name.rpartition("_")[2] == SAMPLE for name in known.metadata):
        return False
    return (known.passed, known.severity, known.description) != (event.passed, event.severity, event.description)

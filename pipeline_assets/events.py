"""Dagster events of artifacts and checks."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.corpus.markdown import escape
from pipeline_assets.external import external_assets
from pipeline_assets.spine.artifact import Artifact, CheckResult
from pipeline_assets.spine.manifest import canonical_sha256
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.versions import DatedVersion, asset_key, parse_version, shown_asset_key
from resources.artifact_metadata import artifact_metadata

RecipeByFolder = Mapping[str, str]
"""Names of recipes by the folders of the artifacts that they build."""
Event = dg.AssetMaterialization | dg.AssetCheckEvaluation
CheckResults = Mapping[str | None, Sequence[CheckResult]]
"""Results of an asset's checks by partition."""
_DATA_VERSION_TAG, _CODE_VERSION_TAG = "dagster/data_version", "dagster/code_version"
COMMAND_TAG = "corpusmill/command"  # tag with the id of the command that built the artifact
OUTDATED = "outdated"  # equals no code version, so that Dagster shows the artifact as stale
SAMPLE_KEY = "sample"  # metadata of a check that read a sample of the files after the build
_MAX_RECORDS_PER_QUERY = 500
_NO_VERSION, _NO_EVENT = "INITIAL", "NULL"  # values of a Dagster run for an input that was never materialized
REPLACE_SETTING = "`replace: true` of the resource `store` in the launchpad"
_MAX_REPORTED_PARTITIONS = 50  # partitions of an asset in the description of a check


def upstream_by_key(
    target: Target, recipe_name: str, recipe_by_folder: RecipeByFolder, recipe_names: Collection[str]
) -> dict[dg.AssetKey, list[Target]]:
    """Group an artifact's inputs by asset key; omit inputs of unknown recipes."""
    keys: dict[dg.AssetKey, list[Target]] = {}
    for upstream in target.upstream:
        owner = recipe_by_folder.get(str(upstream.folder)) if upstream.is_external else recipe_name
        if owner is not None:
            keys.setdefault(shown_asset_key(upstream.kind.name, owner, recipe_names), []).append(upstream)
    return keys


def code_version(kind: Kind, targets: Sequence[Target], external_keys: Iterable[dg.AssetKey]) -> str:
    """Return the code version of an asset: the stage version and a hash.

    The hash covers recipe values and `external_keys`, the keys of external inputs. After an edit of the recipe, Dagster
    shows each partition as stale until its artifact is reported with the new code version.
    """
    contents = sorted([target.partition or "", canonical_sha256(target.build_spec())] for target in targets)
    nodes = sorted(key.to_user_string() for key in external_keys)  # Dagster shows an asset as stale if its edges change
    return f"{kind.stage.version}-{canonical_sha256([contents, nodes])[:12]}"


@dataclass(frozen=True)
class AssetView:
    """Asset, partition and code version that the UI shows for an artifact.

    `code_version` is `OUTDATED` for a stale artifact. For an artifact of a recipe version, or of no recipe, it is the
    stage version; otherwise, it is the result of the function `code_version`. `upstream` has the input artifacts by
    asset; an external input has an empty list. `partition` is None if the asset has no partitions; `version` is None
    if the recipe is not a version of another one.
    """

    key: dg.AssetKey
    partition: str | None
    code_version: str
    upstream: Mapping[dg.AssetKey, Sequence[Target]] = field(default_factory=dict)
    version: DatedVersion | None = None


def targets_by_kind(recipe: Recipe) -> dict[str, list[Target]]:
    """Group the targets of a recipe by the name of their kind, upstream first."""
    targets: dict[str, list[Target]] = {}
    for target in recipe.targets():
        targets.setdefault(target.kind.name, []).append(target)
    return targets


def asset_views(recipe: Recipe, root: Path, recipe_by_folder: RecipeByFolder) -> list[tuple[Target, AssetView]]:
    """Return the targets of a recipe, upstream first, each with its `AssetView`."""
    kinds = targets_by_kind(recipe)
    sources = {kind: external_assets(targets, root) for kind, targets in kinds.items()}
    codes = {kind: code_version(targets[0].kind, targets, sources[kind]) for kind, targets in kinds.items()}
    names = frozenset(recipe_by_folder.values())
    version = parse_version(recipe.name, names)

    def build_view(target: Target) -> AssetView:
        kind, partition = target.kind.name, target.partition
        upstream = upstream_by_key(target, recipe.name, recipe_by_folder, names)
        if version is not None:
            stage_version = str(target.stage.version)
            return AssetView(version.key(kind), version.partition(partition), stage_version, upstream, version)
        external: dict[dg.AssetKey, list[Target]] = {key: [] for key in sources[kind]}
        return AssetView(asset_key(kind, recipe.name), partition, codes[kind], upstream | external)

    return [(target, build_view(target)) for target in recipe.targets()]


def find_state(target: Target, root: Path, state_by_id: dict[int, str]) -> str:
    """Return a target's state, or "stale" if an input is stale, damaged or failed."""
    if id(target) not in state_by_id:
        upstream = {find_state(entry, root, state_by_id) for entry in target.upstream}
        is_outdated = not upstream.isdisjoint(("stale", "damaged", "failed"))
        state_by_id[id(target)] = "stale" if is_outdated else target.state(root)[0]
    return state_by_id[id(target)]


def materialization(
    artifact: Artifact, view: AssetView, instance: dg.DagsterInstance, was_current: bool = False
) -> dg.AssetMaterialization:
    """Return the event of an artifact that was not built by the step of its asset.

    The event has the tags that the step would set, so that Dagster's staleness is correct. For `was_current`,
    see `artifact_metadata`. If the artifact's recipe is a new version, the version is added to the instance's
    partitions.
    """
    manifest = artifact.manifest
    if view.version is not None:
        view.version.add_to(instance)
    digests = {entry["name"]: entry["digest"] for entry in manifest.identity.upstream}
    tags = _version_tags(manifest.digest, view.code_version)
    if command := manifest.provenance.get("command"):
        tags[COMMAND_TAG] = command["id"]
    for key, targets in view.upstream.items():
        name = key.to_user_string()
        if not targets:  # external inputs have no data version: the manifest lists their files with hashes
            tags[f"dagster/input_data_version/{name}"] = _NO_VERSION
            tags[f"dagster/input_event_pointer/{name}"] = _NO_EVENT
            continue
        newest, digest = instance.fetch_materializations(key, limit=1).records, digests.get(targets[-1].role)
        if newest and digest is not None:
            tags[f"dagster/input_data_version/{name}"] = digest
            tags[f"dagster/input_event_pointer/{name}"] = str(newest[0].storage_id)
    metadata = artifact_metadata(artifact, SYSTEMS.kinds, was_current)
    return dg.AssetMaterialization(view.key, partition=view.partition, metadata=metadata, tags=tags)


def stale_event(view: AssetView, state: str, digest: str) -> dg.AssetMaterialization:
    """Return an event that makes the UI show an artifact as stale.

    The event is for an artifact that cannot be opened. `digest` is the digest that the UI shows.
    """
    run = "a run" if state == "missing" else f"a run with {REPLACE_SETTING}"
    description, tags = f"The artifact is {state}; {run} builds it again.", _version_tags(digest, OUTDATED)
    return dg.AssetMaterialization(view.key, description=description, partition=view.partition, tags=tags)


def _version_tags(digest: str, code_version: str) -> dict[str, str]:
    versions = {_DATA_VERSION_TAG: digest, _CODE_VERSION_TAG: code_version}
    return {**versions, "dagster/data_version_is_user_provided": "true"}


def newest_storage_ids(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str | None, int]:
    """Map each partition, and None for the asset, to its newest materialization."""
    kind, ids = dg.DagsterEventType.ASSET_MATERIALIZATION, dict[str | None, int]()
    # `get_latest_materialization_event` still returns the event of a deleted run.
    ids.update((None, record.storage_id) for record in instance.fetch_materializations(key, limit=1).records)
    ids.update(instance.event_log_storage.get_latest_storage_id_by_partition(key, kind))
    return ids


def newest_materializations(
    instance: dg.DagsterInstance, key: dg.AssetKey, newest_ids: Mapping[str | None, int]
) -> list[dg.EventLogEntry]:
    """Return the newest materialization of an asset, then of each of its partitions.

    `newest_ids` is the result of `newest_storage_ids`.
    """
    events, stored = list[dg.EventLogEntry](), list(newest_ids.values())
    for start in range(0, len(stored), _MAX_RECORDS_PER_QUERY):
        ids = stored[start : start + _MAX_RECORDS_PER_QUERY]
        chosen = dg.AssetRecordsFilter(asset_key=key, storage_ids=ids)
        events += [record.event_log_entry for record in instance.fetch_materializations(chosen, limit=len(ids)).records]
    return events


def newest_tags(
    instance: dg.DagsterInstance, key: dg.AssetKey, newest_ids: Mapping[str | None, int]
) -> dict[str | None, Mapping[str, str]]:
    """Map each partition of an asset to the tags of its newest materialization."""
    newest: dict[str | None, Mapping[str, str]] = {}
    for event in newest_materializations(instance, key, newest_ids):
        materialized = event.asset_materialization
        if materialized is not None:
            newest.setdefault(materialized.partition, materialized.tags or {})
    return newest


def newest_versions(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str | None, tuple[str, str]]:
    """Map each partition of an asset to its newest data version and code version."""
    newest = newest_tags(instance, key, newest_storage_ids(instance, key))
    return {partition: find_versions(tags) for partition, tags in newest.items()}


def find_versions(tags: Mapping[str, str]) -> tuple[str, str]:
    """Return data version and code version of a materialization; empty if missing."""
    return tags.get(_DATA_VERSION_TAG, ""), tags.get(_CODE_VERSION_TAG, "")


def has_lost_input(
    view: AssetView,
    tags: Mapping[str, str],
    newest: Mapping[dg.AssetKey, Mapping[str | None, int]],
    instance: dg.DagsterInstance,
) -> bool:
    """Check whether a materialization refers to a deleted event of an input partition.

    Dagster then shows the artifact as stale, because it finds no earlier data version of the input. `tags` belong to
    the materialization; `newest` has the newest events of all assets, as `newest_storage_ids` returns them.
    """
    for key, targets in view.upstream.items():
        pointer = tags.get(f"dagster/input_event_pointer/{key.to_user_string()}", _NO_EVENT)
        names = {target.partition for target in targets}
        partitions = {view.version.partition(name) for name in names} if view.version else names - {None}
        for partition in partitions if pointer != _NO_EVENT else ():
            if newest.get(key, {}).get(partition, 0) > int(pointer):
                earlier = dg.AssetRecordsFilter(key, [str(partition)], before_storage_id=int(pointer) + 1)
                if not instance.fetch_materializations(earlier, limit=1).records:
                    return True
    return False


def check_event_fields(results: Mapping[str | None, CheckResult]) -> dict[str, Any]:
    """Combine the results of all partitions into arguments of a Dagster check event.

    The event passes if all results pass. The description lists failed results first.
    """
    ordered = sorted(results, key=lambda partition: results[partition].passed)
    failed = [results[partition] for partition in ordered if not results[partition].passed]
    is_error = any(result.blocking for result in failed or results.values())
    shown = ordered[:_MAX_REPORTED_PARTITIONS]
    reasons = [f"{name}: {results[name].because}" if name else results[name].because for name in shown]
    more = [f"{len(ordered) - len(shown):,} more"] if len(ordered) > len(shown) else []
    return {
        "passed": not failed,
        "severity": dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        "description": escape("; ".join([*reasons, *more])),
        "metadata": {
            number if len(ordered) == 1 else f"{name}_{number}": value
            for name in shown
            for number, value in results[name].numbers.items()
        },
    }


def check_evaluations(key: dg.AssetKey, kind: Kind, results: CheckResults) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield a Dagster evaluation for each check of `kind` that has results."""
    for check in kind.checks:
        pairs = ((partition, result) for partition, listed in results.items() for result in listed)
        by_partition = {partition: result for partition, result in pairs if result.name == check.name}
        if by_partition:
            fields = check_event_fields(by_partition)
            yield dg.AssetCheckEvaluation(asset_key=key, check_name=check.name, blocking=check.is_blocking, **fields)

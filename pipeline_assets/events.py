"""What is built, as the events of Dagster: the asset's key, a materialisation, what the checks said."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from pipeline_assets.corpus.markdown import plain
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.spine.artifact import Artifact, CheckResult
from pipeline_assets.corpus.spine.manifest import sha256_of
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.external import externals_of
from pipeline_assets.systems.registry import KINDS
from resources.materialization import metadata_of

RecipeOf = Mapping[str, str]  # names of recipes by the folders, below the data root, of the artifacts they ask for
_DATA_VERSION, _CODE_VERSION = "dagster/data_version", "dagster/code_version"
COMMAND = "corpusmill/command"  # all that one command built has the same
_RECORDS_AT_ONCE = 500
_NO_VERSION, _NO_EVENT = "INITIAL", "NULL"  # as a Dagster run has it of an input that was never materialised
_MOST_TOLD = 50  # partitions of an asset, in what a check says of them


def asset_key(kind: str, recipe: str) -> dg.AssetKey:
    """`<system>/<recipe>/<artifact>`."""
    system, _, artifact = kind.partition("/")
    return dg.AssetKey([system, recipe, artifact])


def upstream_keys(target: Target, recipe: str, recipe_of: RecipeOf) -> dict[dg.AssetKey, list[Target]]:
    """What an artifact is made from, by asset; what lies there and no recipe asks for is left out."""
    keys: dict[dg.AssetKey, list[Target]] = {}
    for upstream in target.upstream:
        asked_by = recipe_of.get(str(upstream.folder)) if upstream.is_given else recipe
        if asked_by is not None:
            keys.setdefault(asset_key(upstream.kind, asked_by), []).append(upstream)
    return keys


def code_version(kind: Kind, targets: Sequence[Target], sources: Iterable[dg.AssetKey]) -> str:
    """What decides an asset's content beside what it is made from: its stage, and what the recipe says of it. When a
    recipe is edited, Dagster takes the asset for stale; partitions of it that are current still are reported anew.

    Args:
        sources: what it is read from.
    """
    asked = sorted([target.partition or "", sha256_of(target.asked())] for target in targets)
    nodes = sorted(key.to_user_string() for key in sources)  # an edge more or less is stale to Dagster
    return f"{kind.stage.version}-{sha256_of([asked, nodes]).removeprefix('sha256:')[:12]}"


@dataclass(frozen=True)
class Shown:
    """How the UI shows an artifact.

    Attributes:
        key: of its asset.
        code: version of the asset, see `code_version`; something else of an artifact that isn't as asked.
        upstream: what it is made and read from, by asset.
    """

    key: dg.AssetKey
    partition: str | None
    code: str
    upstream: Mapping[dg.AssetKey, Sequence[Target]] = field(default_factory=dict)


def by_kind(recipe: Recipe) -> dict[str, list[Target]]:
    """What a recipe asks for, an asset each; upstream first."""
    targets: dict[str, list[Target]] = {}
    for target in recipe.targets():
        targets.setdefault(target.kind, []).append(target)
    return targets


def shown_targets(recipe: Recipe, root: Path, recipe_of: RecipeOf) -> list[tuple[Target, Shown]]:
    """What a recipe asks for below a data root, upstream first, with how it is shown."""
    made = by_kind(recipe)
    sources = {kind: externals_of(targets, root) for kind, targets in made.items()}
    codes = {kind: code_version(KINDS[kind], targets, sources[kind]) for kind, targets in made.items()}

    def shown(target: Target) -> Shown:
        read: dict[dg.AssetKey, list[Target]] = {key: [] for key in sources[target.kind]}
        upstream = upstream_keys(target, recipe.name, recipe_of) | read
        return Shown(asset_key(target.kind, recipe.name), target.partition, codes[target.kind], upstream)

    return [(target, shown(target)) for target in recipe.targets()]


def materialization(
    artifact: Artifact, shown: Shown, instance: dg.DagsterInstance, was_current: bool = False
) -> dg.AssetMaterialization:
    """The event of an artifact that no Dagster run of its asset built. Its tags keep staleness true: they say, as a run
    would, which content came out, by which code, of which inputs.

    Args:
        was_current: nothing was built.
    """
    manifest = artifact.manifest
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
    metadata = metadata_of(artifact, was_current)
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


def said(results: Mapping[str | None, CheckResult]) -> dict[str, Any]:
    """What one check said of the artifacts of an asset, by their partitions, in the words that Dagster's events have.
    All must pass; those that failed come first.
    """
    told = sorted(results, key=lambda partition: results[partition].passed)
    failed = [results[partition] for partition in told if not results[partition].passed]
    is_error = any(result.blocking for result in failed or results.values())
    words = [f"{name}: {results[name].because}" if name else results[name].because for name in told[:_MOST_TOLD]]
    more = [f"{len(told) - _MOST_TOLD:,} more"] if len(told) > _MOST_TOLD else []
    return {
        "passed": not failed,
        "severity": dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        "description": plain("; ".join([*words, *more])),
        "metadata": {
            number if len(told) == 1 else f"{name}_{number}": value
            for name in told[:_MOST_TOLD]
            for number, value in results[name].numbers.items()
        },
    }


def evaluations(
    key: dg.AssetKey, kind: Kind, results: Mapping[str | None, Sequence[CheckResult]]
) -> Iterator[dg.AssetCheckEvaluation]:
    """What the checks of a kind said of the artifacts of an asset, by their partitions; nothing of one not asked."""
    for check in kind.checks:
        asked = {name: one for name, of_all in results.items() for one in of_all if one.name == check.name}
        if asked:
            yield dg.AssetCheckEvaluation(
                asset_key=key, check_name=check.name, blocking=check.is_blocking, **said(asked)
            )

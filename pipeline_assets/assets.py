"""Assets made from kinds: one for each step that a recipe asks for, with its partitions, edges and checks."""

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg

from pipeline_assets import events
from pipeline_assets.build import drive
from pipeline_assets.build.kind import Kind
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import REPLACE, Target
from pipeline_assets.external import external_sources
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.spine.disk_errors import explaining
from pipeline_assets.spine.errors import InputError, TransientError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.versions import asset_key
from resources.artifact_metadata import artifact_metadata
from resources.store import Hub, Launcher, Store, Tokenizer

# Of what passes by itself alone, after the hub's own tries (CORPUSMILL_HUB_TRIES). It is no policy of steps, by which
# Dagster would try again what somebody has terminated.
_RETRIES = dg.RetryPolicy(max_retries=3, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
_HUB_POOL = "hub"
_INVALID_IN_NAME = re.compile(r"[^A-Za-z0-9_]")


def build_assets(recipe: Recipe, root: Path, recipe_of: events.RecipeOf) -> list[dg.AssetsDefinition]:
    """Return an asset for each kind of artifact of a recipe, upstream first.

    Args:
        root: the data root.
        recipe_of: name of the recipe that requests each folder below the root.
    """
    by_kind = events.by_kind(recipe)
    return [_asset(recipe, targets[0].kind, targets, root, recipe_of) for targets in by_kind.values()]


def name_in_dagster(name: str) -> str:
    """Return a recipe's name in letters, digits and underscores, unique per recipe."""
    fit = _INVALID_IN_NAME.sub("_", name)
    return fit if fit == name else f"{fit}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _asset(
    recipe: Recipe, kind: Kind, targets: Sequence[Target], root: Path, recipe_of: events.RecipeOf
) -> dg.AssetsDefinition:
    by_partition, externals = {target.partition: target for target in targets}, external_sources(targets, root)
    partitions = dg.StaticPartitionsDefinition([name for name in by_partition if name is not None])

    def find_target(partition: str | None, run: Run) -> tuple[Target, Run]:
        if partition not in by_partition:
            names = ", ".join(map(str, by_partition))
            raise dg.Failure(f"choose a partition of recipe {recipe.name}: {names}", allow_retries=False)
        return by_partition[partition], run

    return build_asset(
        asset_key(kind.name, recipe.name),
        recipe.name,
        kind,
        targets,
        root,
        deps=[*_deps(recipe, targets, recipe_of), *externals],
        code_version=events.code_version(kind, targets, externals),
        partitions=None if None in by_partition else partitions,
        target_of=find_target,
    )


def build_asset(
    key: dg.AssetKey,
    group: str,
    kind: Kind,
    targets: Sequence[Target],
    root: Path,
    *,
    deps: Sequence[dg.AssetDep | dg.AssetKey],
    code_version: str,
    partitions: dg.PartitionsDefinition | None,
    target_of: Callable[[str | None, Run], tuple[Target, Run]],
) -> dg.AssetsDefinition:
    """Return the asset of the artifacts of a kind, whose step builds or checks that of a partition.

    Args:
        targets: artifacts that are checked if no partition is chosen.
        target_of: returns the artifact of a partition, and the run that builds it.
    """
    reads_hub = any(external.path[0] == _HUB_POOL for external in external_sources(targets, root))
    spec = dg.AssetSpec(
        key,
        deps=deps,
        description=inspect.cleandoc(kind.description),
        group_name=name_in_dagster(group),
        kinds=set(kind.formats),
        code_version=code_version,
        metadata={"dagster/code_references": _page_url(key.path[0])},
        skippable=True,
    )
    checks = [
        dg.AssetCheckSpec(check.name, asset=key, description=check.question, blocking=check.is_blocking)
        for check in kind.checks
    ]

    @dg.multi_asset(
        name="__".join([key.path[0], name_in_dagster(key.path[1]), *key.path[2:]]),
        specs=[spec],
        check_specs=checks,
        partitions_def=partitions,
        can_subset=True,
        pool=_HUB_POOL if reads_hub else kind.pool,
    )
    def asset(
        context: dg.AssetExecutionContext, store: Store, hub: Hub, tokenizer: Tokenizer, launcher: Launcher
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        partition = context.partition_key if context.has_partition_key else None
        with as_failure(root, context.retry_number):
            run = store.run(root, hub.files(root), tokenizer, launcher)
            if key in context.selected_asset_keys:
                yield from _build(context, key, *target_of(partition, run))
                return
            asked = targets if partition is None else [target_of(partition, run)[0]]
            there = [target for target in asked if target.state(root)[0] != "missing"]
            yield from _check_results(kind, key, {target.partition: kind.run_checks(target, root) for target in there})

    return asset


def _build(
    context: dg.AssetExecutionContext, key: dg.AssetKey, target: Target, run: Run
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Yield the materialization and check results of an artifact; nothing if it waits for inputs."""
    if _waits(context, target, run.root):
        return
    context.log.info("%s: %s (%s)", target.name, *target.state(run.root))
    built = drive.build(target, run, rerun_checks=True)
    yield dg.MaterializeResult(
        asset_key=key,
        metadata=artifact_metadata(built.artifact, SYSTEMS.kinds, built.was_current),
        data_version=dg.DataVersion(built.artifact.manifest.digest),
    )
    yield from _check_results(target.kind, key, {target.partition: built.checks})


def _page_url(system: str) -> dg.CodeReferencesMetadataValue:
    page = importlib.util.find_spec(SYSTEMS.pages[system])
    assert page is not None and page.origin is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # nothing else depends on it
        reference = dg.LocalFileCodeReference(file_path=page.origin, line_number=1)
        return dg.CodeReferencesMetadataValue(code_references=[reference])


def _deps(recipe: Recipe, targets: Sequence[Target], recipe_of: events.RecipeOf) -> list[dg.AssetDep]:
    names = frozenset(recipe_of.values())
    pairs: dict[dg.AssetKey, list[tuple[str | None, str | None]]] = {}
    for target in targets:
        for key, upstream in events.upstream_keys(target, recipe.name, recipe_of, names).items():
            pairs.setdefault(key, []).extend((one.partition, target.partition) for one in upstream)
    return [dg.AssetDep(key, partition_mapping=partition_mapping(found)) for key, found in pairs.items()]


def partition_mapping(pairs: Sequence[tuple[str | None, str | None]]) -> dg.PartitionMapping | None:
    """Return the mapping between partitions; None if Dagster's default is right.

    The default is right if each partition depends on the one of its name, or if one side has no partitions.
    """
    mapped: dict[str, list[str]] = {}
    for upstream, downstream in pairs:
        if upstream is None or downstream is None:
            return None
        mapped.setdefault(upstream, []).append(downstream)
    if all([name] == names for name, names in mapped.items()):
        return None
    return dg.StaticPartitionMapping(mapped)


def _waits(context: dg.AssetExecutionContext, target: Target, root: Path) -> bool:
    """Check whether an artifact waits for inputs of other partitions, and log them."""
    for one in target.upstream:
        one.raise_if_failed(root)
    missing = [one.partition or one.kind.name for one in target.upstream if one.state(root)[0] in ("missing", "stale")]
    if not missing or not any(_sibling_partitions(target.partition, one) for one in target.upstream):
        return False
    context.log.info(f"not there yet: {', '.join(missing)}")
    return True


def _sibling_partitions(partition: str | None, target: Target) -> bool:
    """Check whether a target, or what it is made from, is of another partition."""
    is_beside = target.partition not in (None, partition)
    return is_beside or any(_sibling_partitions(partition, one) for one in target.upstream)


def _check_results(
    kind: Kind, key: dg.AssetKey, results: Mapping[str | None, Sequence[CheckResult]]
) -> Iterator[dg.AssetCheckResult]:
    for check in kind.checks:
        failed = functools.partial(CheckResult, check.name, False, check.is_blocking)
        asked: dict[str | None, CheckResult] = {None: failed("nothing is built")} if not results else {}
        for partition, found in results.items():
            not_asked = failed("not asked: its files aren't as sealed")
            asked[partition] = next((one for one in found if one.name == check.name), not_asked)
        yield dg.AssetCheckResult(check_name=check.name, asset_key=key, **events.describe_results(asked))


@contextlib.contextmanager
def as_failure(root: Path, tried: int) -> Iterator[None]:
    """What a user can cause, or the world, ends the step with its one line; what passes by itself is tried again.

    Args:
        tried: how often it was tried again before.
    Raises:
        dg.Failure: of an InputError or an OSError.
        dg.RetryRequested: of a TransientError.
    """
    try:
        with explaining(root):
            yield
    except InputError as error:
        error.name_keys(option_of={REPLACE: "`replace: true` of the resource `store`, in the launchpad"}.get)
        failure = dg.Failure(description="\n".join(map(str, (error, *error.others))), allow_retries=False)
        if not isinstance(error, TransientError):
            raise failure from error
        raise dg.RetryRequested(_RETRIES.max_retries, _RETRIES.calculate_delay(tried + 1)) from failure

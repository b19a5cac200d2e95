"""Dagster assets of recipes: one for each kind of artifact, with its checks."""

import contextlib
import functools
import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg

from pipeline_assets import events
from pipeline_assets.build import drive
from pipeline_assets.build.build_target import REPLACE_OPTION
from pipeline_assets.build.checks import run_checks
from pipeline_assets.build.recipe import Recipe
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.code_references import code_references
from pipeline_assets.compat import ASSET_JOB, AUTOMATION_TAG, is_reserved_name
from pipeline_assets.external import external_assets
from pipeline_assets.spine.artifact import CheckResult
from pipeline_assets.spine.disk_errors import convert_os_errors
from pipeline_assets.spine.errors import InputError, TransientError, UsageError
from pipeline_assets.systems import early_checks
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.versions import asset_key
from resources.artifact_metadata import artifact_metadata
from resources.store import Hub, Launcher, Store, Tokenizer

# Retries of transient errors, after the hub client's own tries (CORPUSMILL_HUB_TRIES). The steps themselves have no
# retry policy, because Dagster would also apply it to runs that a user has terminated.
_RETRY_POLICY = dg.RetryPolicy(max_retries=3, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
_HUB_POOL = "hub"


def build_assets(
    recipes: Mapping[str, Recipe],
    root: Path,
    recipe_by_folder: events.RecipeByFolder,
    replacing_recipes: Collection[str],
) -> list[dg.AssetsDefinition]:
    """Return an asset for each kind of artifact of each recipe, upstream first.

    `recipes` has recipes by name. A run that an automation condition requests has no configuration; for
    `replacing_recipes`, it replaces stale and damaged artifacts.
    """
    return [
        _recipe_asset(recipe, targets, root, recipe_by_folder, automation_replaces=name in replacing_recipes)
        for name, recipe in recipes.items()
        for targets in events.targets_by_kind(recipe).values()
    ]


def dagster_name(name: str) -> str:
    """Return `name` if Dagster allows it and no step has it, else a name with a hash."""
    valid, (system, _, rest) = re.sub("[^A-Za-z0-9_]", "_", name), name.partition("__")
    # Dagster refuses all definitions if a job has the name of a step: of an asset (SYSTEM__RECIPE__ARTIFACT), a job or
    # a freshness check.
    is_step = (system in SYSTEMS.pages and "__" in rest) or name.endswith(("__step", "__fresh"))
    is_allowed = valid == name and not is_reserved_name(name) and not is_step
    return name if is_allowed else f"{valid}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def is_recipe_asset(key: dg.AssetKey) -> bool:
    """Check whether an asset belongs to a recipe, not to another Dagster project."""
    return len(key.path) > 2 and key.path[0] in SYSTEMS.pages


def step_name(key: dg.AssetKey) -> str:
    """Return the key of the Dagster step that builds an asset."""
    if not is_recipe_asset(key):
        return key.to_python_identifier()  # Dagster's default
    system, name, *versions, artifact = key.path
    return "__".join([system, dagster_name(name), artifact, *versions])


def _recipe_asset(
    recipe: Recipe,
    targets: Sequence[Target],
    root: Path,
    recipe_by_folder: events.RecipeByFolder,
    *,
    automation_replaces: bool,
) -> dg.AssetsDefinition:
    kind = targets[0].kind
    by_partition, externals = {target.partition: target for target in targets}, external_assets(targets, root)
    partitions = dg.StaticPartitionsDefinition([name for name in by_partition if name is not None])

    def find_target(partition: str | None, run: Run) -> tuple[Recipe, Target, Run]:
        if partition not in by_partition:
            names = ", ".join(map(str, by_partition))
            raise dg.Failure(f"choose a partition of recipe {recipe.name}: {names}", allow_retries=False)
        return recipe, by_partition[partition], run

    return build_asset(
        asset_key(kind.name, recipe.name),
        recipe.name,
        targets,
        root,
        deps=[*_asset_deps(recipe, targets, recipe_by_folder), *externals],
        code_version=events.code_version(kind, targets, externals),
        partitions=None if None in by_partition else partitions,
        find_target=find_target,
        automation_replaces=automation_replaces,
    )


def build_asset(
    key: dg.AssetKey,
    group: str,
    targets: Sequence[Target],
    root: Path,
    *,
    deps: Sequence[dg.AssetDep | dg.AssetKey],
    code_version: str,
    partitions: dg.PartitionsDefinition | None,
    find_target: Callable[[str | None, Run], tuple[Recipe, Target, Run]],
    automation_replaces: bool = False,
) -> dg.AssetsDefinition:
    """Return the Dagster asset that builds and checks targets of one kind.

    If a run executes only the checks and has no partition, it checks all sealed `targets`. `find_target` receives a
    partition and run settings; it returns the recipe and target of this partition, and run settings for the build. With
    `automation_replaces`, a run that an automation condition requested replaces stale and damaged artifacts.
    """
    kind = targets[0].kind
    reads_hub = any(external.path[0] == _HUB_POOL for external in external_assets(targets, root))
    spec = dg.AssetSpec(
        key,
        deps=deps,
        description=inspect.cleandoc(kind.description),
        group_name=dagster_name(group),
        kinds=set(kind.formats),
        code_version=code_version,
        metadata={"dagster/code_references": code_references(kind)},
        skippable=True,
    )
    checks = [
        dg.AssetCheckSpec(check.name, asset=key, description=check.description, blocking=check.is_blocking)
        for check in kind.checks
    ]

    @dg.multi_asset(
        name=step_name(key),
        specs=[spec],
        check_specs=checks,
        partitions_def=partitions,
        can_subset=True,
        pool=_HUB_POOL if reads_hub else kind.dagster_pool,
    )
    def asset(
        context: dg.AssetExecutionContext, store: Store, hub: Hub, tokenizer: Tokenizer, launcher: Launcher
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        # A run of a partition may include assets without partitions.
        partition = context.partition_key if partitions is not None and context.has_partition_key else None
        with raise_dagster_failures(root, context.retry_number):
            run = store.make_run(root, hub.files(root), tokenizer, launcher)
            if automation_replaces and AUTOMATION_TAG in context.run.tags:
                run = replace(run, replace=True)
            if key in context.selected_asset_keys:
                if context.job_name == ASSET_JOB and not context.run.asset_selection:
                    # Dagster's commands do this for a selection without a match, such as a misspelled key.
                    fix = "correct the selection; `dagster asset list -m pipeline_assets.definitions` lists all"
                    raise UsageError("no asset is selected, so Dagster would materialize all", None, fix)
                yield from _build_artifact(context, key, *find_target(partition, run))
                return
            chosen = targets if partition is None else [find_target(partition, run)[1]]
            sealed = [target for target in chosen if target.state(root)[0] != "missing"]
            results = {target.partition: run_checks(target, root) for target in sealed}
            for result in _asset_check_results(kind, key, results):
                if dg.AssetCheckKey(key, result.check_name or "") in context.selected_asset_check_keys:
                    yield result

    return asset


def _build_artifact(
    context: dg.AssetExecutionContext, key: dg.AssetKey, recipe: Recipe, target: Target, run: Run
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Build an artifact and yield its events; nothing if the target waits for inputs."""
    upstream_keys = {dep.asset_key for dep in context.assets_def.get_asset_spec(key).deps}
    executed = _executed_keys(context)
    if upstream_keys.isdisjoint(executed):
        early_checks.check_before_build(recipe, list(_selected_targets(recipe, key, target, executed)), run)
    if _waits_for_inputs(context, key, target, run.root, executed):
        return
    context.log.info("%s is %s (%s)", target.role, *target.state(run.root))
    built = drive.build(target, run, rerun_checks=True)
    yield dg.MaterializeResult(
        asset_key=key,
        metadata=artifact_metadata(built.artifact, SYSTEMS.kinds, built.was_current),
        data_version=dg.DataVersion(built.artifact.manifest.digest),
    )
    yield from _asset_check_results(target.kind, key, {target.partition: built.checks})


def _executed_keys(context: dg.AssetExecutionContext) -> set[dg.AssetKey]:
    """Return the selected assets whose steps the run executes.

    A run that is executed again from its failure omits the steps that succeeded.
    """
    layer, steps = context.job_def.asset_layer, context.run.step_keys_to_execute
    # Not `step_name`: another project in this code location may give its steps any names.
    handles = {key: layer.get_op_output_handle(key).node_handle for key in layer.selected_asset_keys}
    return {key for key, handle in handles.items() if steps is None or str(handle) in steps}


def _selected_targets(
    recipe: Recipe, key: dg.AssetKey, own: Target, executed_keys: Collection[dg.AssetKey]
) -> Iterator[Target]:
    """Yield `own` and the targets that its Dagster run also builds, upstream first.

    `key` is the asset of `own`. A target other than `own` is left out if it reads an artifact that another recipe
    builds: the run may build that artifact first.
    """
    for target in recipe.targets():
        is_executed = _own_key(key, target) in executed_keys
        in_run = is_executed and (own.partition is None or target.partition in (None, own.partition))
        if target.role == own.role or (in_run and not any(upstream.is_external for upstream in target.upstream)):
            yield target


def _asset_deps(
    recipe: Recipe, targets: Sequence[Target], recipe_by_folder: events.RecipeByFolder
) -> list[dg.AssetDep]:
    names = frozenset(recipe_by_folder.values())
    pairs: dict[dg.AssetKey, list[tuple[str | None, str | None]]] = {}
    for target in targets:
        for key, upstream in events.upstream_by_key(target, recipe.name, recipe_by_folder, names).items():
            pairs.setdefault(key, []).extend((entry.partition, target.partition) for entry in upstream)
    return [dg.AssetDep(key, partition_mapping=partition_mapping(mapped)) for key, mapped in pairs.items()]


def partition_mapping(partition_pairs: Sequence[tuple[str | None, str | None]]) -> dg.PartitionMapping | None:
    """Return the Dagster mapping for pairs (upstream partition, downstream partition).

    Return None if Dagster's default mapping suffices: an asset has no partitions, or the names in each pair are equal.
    """
    mapped: dict[str, list[str]] = {}
    for upstream, downstream in partition_pairs:
        if upstream is None or downstream is None:
            return None
        mapped.setdefault(upstream, []).append(downstream)
    if all([name] == names for name, names in mapped.items()):
        return None
    return dg.StaticPartitionMapping(mapped)


def _waits_for_inputs(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    target: Target,
    root: Path,
    executed_keys: Collection[dg.AssetKey],
) -> bool:
    """Check whether a target waits for inputs that other runs build.

    It waits for missing and stale inputs whose assets are selected: other runs build those partitions. Raise InputError
    if an input failed or is damaged, or if no run is to build it, because its asset is not selected, or because it
    belongs to this run, which does not execute its step. Otherwise the run would succeed, and the target would stay
    missing or stale.
    """
    selected_keys = context.job_def.asset_layer.selected_asset_keys
    for upstream in target.upstream:
        upstream.raise_if_failed(root)
        state, reason = upstream.state(root)
        if state == "damaged" and not target.matches_recipe(root):
            fix = f"materialize it with {events.REPLACE_SETTING}"
            raise InputError(f"this input is damaged ({reason})", root / upstream.folder, fix)
    unready = _unready_inputs(target, root)
    run_partitions = {None, target.partition, context.partition_key if context.has_partition_key else None}
    expected = set[str]()
    for role, upstream in unready.items():
        if _own_key(key, upstream) in (executed_keys if upstream.partition in run_partitions else selected_keys):
            expected.add(role)
    if len(expected) < len(unready):
        what = f"inputs are missing or stale: {', '.join(role for role in unready if role not in expected)}"
        raise InputError(what, root / target.folder, "materialize them first, or run the job of the recipe")
    if unready:
        context.log.info(f"waiting for inputs: {', '.join(unready)}")
    return bool(unready)


def _own_key(key: dg.AssetKey, target: Target) -> dg.AssetKey | None:
    """Return a target's asset in the recipe of `key`; None for other recipes' targets."""
    return None if target.is_external else dg.AssetKey([*key.path[:-1], target.kind.short_name])


def _unready_inputs(target: Target, root: Path) -> dict[str, Target]:
    """Return the missing and stale inputs of a target by role.

    Indirect inputs are included, but none that is upstream of such an input only.
    """
    unready, seen, pending = dict[str, Target](), set[int](), [*target.upstream]
    while pending:
        upstream = pending.pop(0)
        if id(upstream) in seen:
            continue
        seen.add(id(upstream))
        if upstream.state(root)[0] in ("missing", "stale"):
            unready[upstream.role] = upstream
        else:
            pending += upstream.upstream
    return unready


def _asset_check_results(kind: Kind, key: dg.AssetKey, results: events.CheckResults) -> Iterator[dg.AssetCheckResult]:
    for check in kind.checks:
        failed = functools.partial(CheckResult, check.name, False, check.is_blocking)
        by_partition: dict[str | None, CheckResult] = {None: failed("nothing is built")} if not results else {}
        for partition, partition_results in results.items():
            not_run = failed("not run: the files differ from the manifest")
            by_partition[partition] = next((entry for entry in partition_results if entry.name == check.name), not_run)
        yield dg.AssetCheckResult(check_name=check.name, asset_key=key, **events.check_event_fields(by_partition))


@contextlib.contextmanager
def raise_dagster_failures(root: Path, retry_number: int) -> Iterator[None]:
    """Convert TransientErrors to dg.RetryRequested, other InputErrors to dg.Failure.

    Errors come from the `with` block. `retry_number` counts earlier retries of the step. Full-disk errors name `root`.
    """
    try:
        with convert_os_errors(root):
            yield
    except InputError as error:
        error.replace_text(REPLACE_OPTION, events.REPLACE_SETTING)
        failure = dg.Failure(description="\n".join(map(str, (error, *error.others))), allow_retries=False)
        if not isinstance(error, TransientError):
            raise failure from error
        raise dg.RetryRequested(_RETRY_POLICY.max_retries, _RETRY_POLICY.calculate_delay(retry_number + 1)) from failure

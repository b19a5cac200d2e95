"""Assets made from kinds: one for each step that a recipe asks for, with its partitions, edges and checks.

CORPUSMILL_OWNERS and CORPUSMILL_TAGS say for the UI whose assets these are, and how they are tagged.
"""

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import logging
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import dagster as dg

from pipeline_assets import events
from pipeline_assets.corpus.recipes import drive
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.recipes.run import Run
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import CheckResult
from pipeline_assets.corpus.spine.errors import InputError, TransientError, one_line
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.target import REPLACE, Target
from pipeline_assets.external import externals_of
from pipeline_assets.systems.registry import KINDS, SYSTEMS
from pipeline_assets.versions import asset_key
from resources.store import Hub, Launcher, Store, Tokenizer, metadata_of

# Of what passes by itself alone, after the hub's own tries (CORPUSMILL_HUB_TRIES). It is no policy of steps, by which
# Dagster would try again what somebody has terminated.
_RETRIES = dg.RetryPolicy(max_retries=3, delay=30, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS)
_HUB_POOL = "hub"
_UNFIT_IN_NAME = re.compile(r"[^A-Za-z0-9_]")


OWNERS, TAGS = "CORPUSMILL_OWNERS", "CORPUSMILL_TAGS"


def assets_of(recipe: Recipe, root: Path, recipe_of: events.RecipeOf) -> list[dg.AssetsDefinition]:
    """Return an asset for each kind of artifact of a recipe, upstream first.

    Args:
        root: the data root.
        recipe_of: name of the recipe that requests each folder below the root.
    """
    return [_asset(recipe, KINDS[kind], asked, root, recipe_of) for kind, asked in events.by_kind(recipe).items()]


def job_of(recipe: Recipe, root: Path, recipe_of: events.RecipeOf) -> dg.JobDefinition:
    """Return the job that builds all artifacts of a recipe, in every partition."""
    name = name_in_dagster(recipe.name)

    @dg.op(
        name=f"{name}__all",
        description=f"Builds every artifact of {recipe.name} that is not there as asked",
        out={},
        pool=Kind.pool,
    )
    def build_all(
        context: dg.OpExecutionContext, store: Store, hub: Hub, tokenizer: Tokenizer, launcher: Launcher
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        with as_failure(root, context.retry_number):
            run = store.run(root, hub.files(root), tokenizer, launcher)
            newest = functools.cache(functools.partial(events.newest_shown, context.instance))
            for target, shown in events.shown_targets(recipe, root, recipe_of):
                built = drive.build(target, run)
                content = built.artifact.manifest.digest, shown.code
                said = built.checks
                word = "current, nothing to build" if built.was_current else "built"
                context.log.info(f"{target.kind} {target.partition or target.name}: {word}, {content[0]}")
                # What was there and is shown isn't shown, and plotted, once more.
                if not built.was_current or newest(shown.key).get(shown.partition) != content:
                    yield events.materialization(built.artifact, shown, context.instance, built.was_current)
                    said = said or target.results(root, built.artifact.manifest)
                yield from events.evaluations(shown.key, KINDS[target.kind], {shown.partition: said})
                target.refuse_failed(root)

    @dg.job(name=name, description=f"Everything that {recipe.name} asks for", tags={"corpusmill/recipe": recipe.name})
    def everything() -> None:
        build_all()

    return everything


def name_in_dagster(name: str) -> str:
    """Return a recipe's name in letters, digits and underscores, unique per recipe."""
    fit = _UNFIT_IN_NAME.sub("_", name)
    return fit if fit == name else f"{fit}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _asset(
    recipe: Recipe, kind: Kind, targets: Sequence[Target], root: Path, recipe_of: events.RecipeOf
) -> dg.AssetsDefinition:
    key, by_partition = asset_key(kind.name, recipe.name), {target.partition: target for target in targets}
    partitions = dg.StaticPartitionsDefinition([name for name in by_partition if name is not None])
    externals = externals_of(targets, root)
    spec = dg.AssetSpec(
        key,
        deps=[*_deps(recipe, targets, recipe_of), *externals],
        description=inspect.cleandoc(kind.description),
        group_name=name_in_dagster(recipe.name),
        kinds=set(kind.formats),
        code_version=events.code_version(kind, targets, externals),
        metadata={"dagster/code_references": page_of(recipe.system)},
        skippable=True,
    )

    @dg.multi_asset(
        name="__".join([*key.path[:1], name_in_dagster(recipe.name), *key.path[2:]]),
        specs=[spec],
        check_specs=check_specs(kind, key),
        partitions_def=None if None in by_partition else partitions,
        can_subset=True,
        pool=pool_of(kind, externals),
    )
    def asset(
        context: dg.AssetExecutionContext, store: Store, hub: Hub, tokenizer: Tokenizer, launcher: Launcher
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        partition = context.partition_key if context.has_partition_key else None
        with as_failure(root, context.retry_number):
            if key not in context.selected_asset_keys:
                asked = [target for target in targets if partition in (None, target.partition)]
                yield from check_again(kind, key, asked, root)
                return
            target = by_partition.get(partition)
            if target is None:
                names = ", ".join(map(str, by_partition))
                raise dg.Failure(f"choose a partition of recipe {recipe.name}: {names}", allow_retries=False)
            yield from build_asset(context, key, target, store.run(root, hub.files(root), tokenizer, launcher))

    return asset


def pool_of(kind: Kind, externals: Collection[dg.AssetKey]) -> str:
    """Return the Dagster pool of a step: the hub's if it reads a hub, else the kind's."""
    return _HUB_POOL if any(key.path[0] == _HUB_POOL for key in externals) else kind.pool


def check_specs(kind: Kind, key: dg.AssetKey) -> list[dg.AssetCheckSpec]:
    """Return the Dagster specs of a kind's checks for an asset."""
    return [
        dg.AssetCheckSpec(check.name, asset=key, description=check.question, blocking=check.is_blocking)
        for check in kind.checks
    ]


def check_again(kind: Kind, key: dg.AssetKey, targets: Sequence[Target], root: Path) -> Iterator[dg.AssetCheckResult]:
    """Run the checks of existing artifacts without a build, and yield the results."""
    there = [target for target in targets if target.state(root)[0] != "missing"]
    yield from _check_results(kind, key, {target.partition: kind.ask(target, root) for target in there})


def build_asset(
    context: dg.AssetExecutionContext, key: dg.AssetKey, target: Target, run: Run
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    """Build an artifact; yield its materialization and the results of its checks.

    Yield nothing if inputs of other partitions are missing or stale: the artifact waits for them.

    Raises:
        InputError: a blocking check of an input failed.
    """
    if _waits(context, target, run.root):
        return
    context.log.info("%s: %s (%s)", target.name, *target.state(run.root))
    built = drive.build(target, run, asks_again=True)
    yield dg.MaterializeResult(
        asset_key=key,
        metadata=metadata_of(built.artifact, built.was_current),
        data_version=dg.DataVersion(built.artifact.manifest.digest),
    )
    yield from _check_results(KINDS[target.kind], key, {target.partition: built.checks})


def page_of(system: str) -> dg.CodeReferencesMetadataValue:
    """Return a reference to the page that describes the kinds of a system."""
    page = importlib.util.find_spec(SYSTEMS[system])
    assert page is not None and page.origin is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)  # nothing else depends on it
        reference = dg.LocalFileCodeReference(file_path=page.origin, line_number=1)
        return dg.CodeReferencesMetadataValue(code_references=[reference])


def _deps(recipe: Recipe, targets: Sequence[Target], recipe_of: events.RecipeOf) -> list[dg.AssetDep]:
    """Return the inputs of the artifacts, partition by partition."""
    names = frozenset(recipe_of.values())
    pairs: dict[dg.AssetKey, list[tuple[str | None, str | None]]] = {}
    for target in targets:
        for key, upstream in events.upstream_keys(target, recipe.name, recipe_of, names).items():
            pairs.setdefault(key, []).extend((one.partition, target.partition) for one in upstream)
    return [dg.AssetDep(key, partition_mapping=mapping_of(found)) for key, found in pairs.items()]


def mapping_of(pairs: Sequence[tuple[str | None, str | None]]) -> dg.PartitionMapping | None:
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
    """Check whether an artifact waits for inputs of other partitions, and log them.

    Raises:
        InputError: a blocking check of an input failed.
    """
    for one in target.upstream:
        one.refuse_failed(root)
    missing = [one.partition or one.kind for one in target.upstream if one.state(root)[0] in ("missing", "stale")]
    if not missing or not any(_partitions_beside(target.partition, one) for one in target.upstream):
        return False
    context.log.info(f"not there yet: {', '.join(missing)}")
    return True


def _partitions_beside(partition: str | None, target: Target) -> bool:
    """Whether a target, or what it is made from, is of another partition."""
    is_beside = target.partition not in (None, partition)
    return is_beside or any(_partitions_beside(partition, one) for one in target.upstream)


def _check_results(
    kind: Kind, key: dg.AssetKey, results: Mapping[str | None, Sequence[CheckResult]]
) -> Iterator[dg.AssetCheckResult]:
    """What each check said of the artifacts of an asset, by their partitions."""
    for check in kind.checks:
        failed = functools.partial(CheckResult, check.name, False, check.is_blocking)
        asked: dict[str | None, CheckResult] = {None: failed("nothing is built")} if not results else {}
        for partition, found in results.items():
            not_asked = failed("not asked: its files aren't as sealed")
            asked[partition] = next((one for one in found if one.name == check.name), not_asked)
        yield dg.AssetCheckResult(check_name=check.name, asset_key=key, **events.said(asked))


@contextlib.contextmanager
def as_failure(root: Path, tried: int | None = None) -> Iterator[None]:
    """What a user can cause, or the world, ends the step with its one line; what passes by itself is tried again.

    Args:
        tried: how often it was tried again before; None tries nothing again.
    Raises:
        dg.Failure: of an InputError or an OSError.
        dg.RetryRequested: of a TransientError.
    """
    try:
        with durable.explaining(root):
            yield
    except InputError as error:
        error.name_keys(option_of={REPLACE: "`replace: true` of the resource `store`, in the launchpad"}.get)
        failure = dg.Failure(description=str(error), allow_retries=False)
        if tried is None or not isinstance(error, TransientError):
            raise failure from error
        raise dg.RetryRequested(_RETRIES.max_retries, _RETRIES.calculate_delay(tried + 1)) from failure


def labelled(assets: Sequence[dg.AssetsDefinition | dg.AssetSpec]) -> Sequence[dg.AssetsDefinition | dg.AssetSpec]:
    """The assets with the owners (`team:data,me@example.org`) and tags (`project=llm,tier=gold`)
    that are set. What Dagster doesn't take is left out, with a warning.
    """
    owners = _listed(OWNERS)
    tags = {name.strip(): value.strip() for name, _, value in (entry.partition("=") for entry in _listed(TAGS))}
    try:
        wanted = dg.AssetSpec("any", owners=owners, tags=tags)
    except dg.DagsterInvalidDefinitionError as error:
        told = one_line(error)
        logging.getLogger("corpusmill").warning("%s and %s are left out: %s", OWNERS, TAGS, told)
        return assets
    if not owners and not tags:
        return assets
    return dg.map_asset_specs(
        lambda spec: spec.replace_attributes(owners=wanted.owners, tags={**spec.tags, **wanted.tags}), assets
    )


def _listed(variable: str) -> list[str]:
    return [entry.strip() for entry in (dg.EnvVar(variable).get_value() or "").split(",") if entry.strip()]

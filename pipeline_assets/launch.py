"""Runs the artifacts of a recipe through their assets, on the instance that the UI shows."""

import contextlib
import os
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import sqlalchemy.exc
from dagster._core.errors import DagsterAssetCheckFailedError

from pipeline_assets.corpus.recipes.systems import KINDS
from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.check_record import CheckResult
from pipeline_assets.corpus.spine.errors import InputError, Obstacle, UsageError
from pipeline_assets.corpus.spine.lineage import keep_copy
from pipeline_assets.corpus.spine.lock import Builder, is_dead
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.recipe import Recipe
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.definitions import defs
from pipeline_assets.instance import View
from resources.corpus_store import RECIPE_TAG, CorpusStore
from resources.hub import Hub

_HOST_TAG, _PROCESS_TAG = "corpusmill/host", "corpusmill/process"


@dataclass(frozen=True)
class Outcome:
    """What became of one target.

    Attributes:
        manifest: None where it waits for others, or failed.
        was_current: it was there as asked, nothing was built.
        checks: what they said, if they were asked.
        failure: why it failed, or a check that holds it back.
    """

    target: Target
    manifest: Manifest | None
    was_current: bool
    checks: tuple[CheckResult, ...] = ()
    failure: InputError | None = None


def run_targets(
    recipe: Recipe,
    recipe_path: Path,
    root: Path,
    partition: str | None,
    store: Mapping[str, Any],
    kinds: Collection[str] | None = None,
    *,
    goes_on: bool = False,
) -> Iterator[Outcome]:
    """Each target of the recipe, upstream first; those that are current are not run, unless a crash came before their
    checks. One that a check holds back is not built again: it is asked again.

    Args:
        partition: only this partition of partitioned assets, and what it is made from.
        store: config of the store, as in the UI's launchpad.
        kinds: only artifacts of these; None for all.
        goes_on: after a failure with what isn't made from what failed.
    Raises:
        InputError: as an asset raised it, or a check holds back what it made. Where it `goes_on`: an Obstacle, which
            every target would meet, a UsageError, which is to be corrected first, or the only failure if no target is
            left after it.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the run is marked as canceled.
    """
    config = {
        **store,
        "data_root": str(root.absolute()),
        f"{recipe.system}_recipe": str(recipe_path.absolute()),
        "wait_for_builder_s": 0,
    }

    def prepare(instance: dg.DagsterInstance) -> None:
        _report_dead_runs(instance)
        _add_partitions(recipe, instance)

    with View(root, prepare) as view:
        asked = [
            target
            for target in recipe.targets()
            if (target.partition is None or partition is None or target.partition == partition)
            and (kinds is None or target.kind in kinds)
        ]
        failed: set[str] = set()  # roles
        for number, target in enumerate(asked):
            if _is_made_from(failed, target):
                continue
            was_current, is_settled = target.is_sealed(root), target.is_settled(root)
            try:
                if not is_settled:
                    _run(target, recipe, root, view, config)
                target.refuse_failed(root)
            except InputError as failure:
                failed.add(target.role)
                left = [one for one in asked[number + 1 :] if not _is_made_from(failed, one)]
                is_last = all(one.is_settled(root) for one in left)
                if not goes_on or isinstance(failure, Obstacle | UsageError) or (is_last and len(failed) == 1):
                    raise
                yield Outcome(target, None, was_current, failure=failure)
            else:
                manifest = read_manifest(root / target.folder)
                checks = () if is_settled or manifest is None else target.results(root, manifest)
                yield Outcome(target, manifest, was_current, checks)


def _is_made_from(roles: Collection[str], target: Target) -> bool:
    return any(upstream.role in roles or _is_made_from(roles, upstream) for upstream in target.upstream)


def _run(target: Target, recipe: Recipe, root: Path, view: View, config: Mapping[str, Any]) -> None:
    """Builds one target and asks its checks; of one that is there as asked they are asked alone, since a damaged one
    can't even be shown. What they say is kept beside it.

    Raises:
        InputError: as its asset raised it.
    """
    if target.is_sealed(root):
        view.use(lambda instance: _ask(target, root, instance))
        return
    if not _is_listed(target):
        _build_apart(target, root, config)
        return
    with contextlib.suppress(DagsterAssetCheckFailedError):
        view.use(lambda instance: _materialize(target, instance, recipe.name, config))


def _add_partitions(recipe: Recipe, instance: dg.DagsterInstance) -> None:
    """Partitions that are made as recipes name them."""
    graph = defs.resolve_asset_graph()
    names: dict[str, set[str]] = {}
    for target in recipe.targets():
        partitions = graph.get(dg.AssetKey(target.kind.split("/"))).partitions_def
        if target.partition is not None and isinstance(partitions, dg.DynamicPartitionsDefinition):
            names.setdefault(str(partitions.name), set()).add(target.partition)
    for partitions_name, keys in names.items():
        instance.add_dynamic_partitions(partitions_name, sorted(keys))


def _is_listed(target: Target) -> bool:
    """Whether the UI has the target's partition: not, if it is in none of the lists which no recipe changes."""
    partitions = defs.resolve_asset_graph().get(dg.AssetKey(target.kind.split("/"))).partitions_def
    return not isinstance(partitions, dg.StaticPartitionsDefinition) or (
        target.partition in partitions.get_partition_keys()
    )


def _build_apart(target: Target, root: Path, config: Mapping[str, Any]) -> None:
    """Builds what the UI can't show, and checks it.

    Raises:
        InputError: from the build.
    """
    store, kind = CorpusStore(**config), KINDS[target.kind]
    artifact = kind.build(target, root, store.replace, store.run_settings(Hub().files(root)))
    if target.export_as is not None:
        keep_copy(root, artifact, target.export_as)
    kind.ask(target, root)


def _ask(target: Target, root: Path, instance: dg.DagsterInstance) -> None:
    """Asks the checks of what is sealed, and shows what they say in the UI."""
    for check, verdict in KINDS[target.kind].ask(target, root):
        is_error = check.is_blocking and not verdict.is_slight
        evaluation = dg.AssetCheckEvaluation(
            asset_key=dg.AssetKey(target.kind.split("/")),
            check_name=check.name,
            passed=verdict.holds,
            metadata={},
            severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
            description=f"{target.partition}: {verdict.because}" if target.partition else verdict.because,
            blocking=check.is_blocking,
        )
        instance.report_runless_asset_event(evaluation)


def _report_dead_runs(instance: dg.DagsterInstance) -> None:
    """Runs of this command whose process was killed are shown as failed, not as running for ever."""
    tags = {_HOST_TAG: socket.gethostname()}
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED], tags=tags)):
        process = run.tags[_PROCESS_TAG]
        if is_dead(Builder(int(process), socket.gethostname(), None)):
            instance.report_run_failed(run, f"process {process} was killed; the next run goes on from its shards")


def _told_before(error: BaseException) -> InputError | None:
    """What an asset said before something failed on the way: on a full disk the instance can't note it either."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, InputError):
        cause = cause.__cause__ or cause.__context__
    return cause


def _materialize(target: Target, instance: dg.DagsterInstance, recipe_name: str, config: Mapping[str, Any]) -> None:
    job = defs.resolve_implicit_global_asset_job_def()
    try:
        job.execute_in_process(
            asset_selection=[dg.AssetKey(target.kind.split("/"))],
            partition_key=target.partition,
            instance=instance,
            tags={RECIPE_TAG: recipe_name, _HOST_TAG: socket.gethostname(), _PROCESS_TAG: str(os.getpid())},
            run_config={
                "resources": {"store": {"config": dict(config)}},
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
        )
    except dg.Failure as failure:
        if isinstance(failure.__cause__, InputError):
            raise failure.__cause__ from None
        raise
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise _told_before(error) or error from None
    except dg.DagsterExecutionInterruptedError:
        raise KeyboardInterrupt from None

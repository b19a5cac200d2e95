"""Asset checks made from verdicts: one factory for all systems."""

from collections.abc import Callable

import dagster as dg

from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.target import Target
from resources.corpus_store import CorpusStore
from resources.materialization import APPLIES

Judge = Callable[[Artifact], Verdict]
TargetsOf = Callable[[CorpusStore], list[Target]]


def check_of(
    asset: dg.AssetsDefinition,
    judge: Judge,
    targets_of: TargetsOf,
    *,
    blocking: bool = False,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR,
) -> dg.AssetChecksDefinition:
    """An asset check named and described by its judge.

    In a run of one partition that partition's artifact is judged, else every one that is built.

    Args:
        targets_of: the artifacts of the chosen recipe; those of this asset are judged.
        blocking: whether a failure keeps downstream assets from being built.
    """
    kind = "/".join(asset.key.path)

    @dg.asset_check(
        asset=asset, name=judge.__name__, description=(judge.__doc__ or "").split("\n\n")[0].strip(), blocking=blocking
    )
    def check(context: dg.AssetCheckExecutionContext, store: CorpusStore) -> dg.AssetCheckResult:
        operation = context.op_execution_context
        partition = operation.partition_key if operation.has_partition_key else None
        verdicts = [
            (target, _judged(store, target, judge))
            for target in targets_of(store)
            if target.kind == kind
            and partition in (None, target.partition)
            and target.state(store.root)[0] != "missing"
        ]
        words = [
            f"{target.partition}: {verdict.because}" if target.partition else verdict.because
            for target, verdict in verdicts
        ]
        numbers: dict[str, int | float | str] = {
            name if target.partition is None else f"{target.partition}_{name}": value
            for target, verdict in verdicts
            for name, value in verdict.numbers.items()
        }
        if verdicts and not any(verdict.applies for _, verdict in verdicts):
            numbers[APPLIES] = False
        return dg.AssetCheckResult(
            passed=all(verdict.holds for _, verdict in verdicts),
            severity=severity,
            description="; ".join(words) or "nothing is built",
            metadata=numbers,
        )

    return check


def _judged(store: CorpusStore, target: Target, judge: Judge) -> Verdict:
    """The verdict; an artifact that can't be opened fails its checks rather than the run."""
    try:
        return judge(store.open(target))
    except InputError as error:
        return Verdict(False, str(error))

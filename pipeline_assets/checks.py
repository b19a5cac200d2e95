"""Asset checks made from the checks of a kind: one factory for all systems."""

from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from pipeline_assets.corpus.markdown import plain
from pipeline_assets.corpus.recipes.systems import KINDS
from pipeline_assets.corpus.spine.target import Target
from resources.corpus_store import CorpusStore

TargetsOf = Callable[[CorpusStore], list[Target]]


def checks_of(
    asset: dg.AssetsDefinition, targets_of: TargetsOf, after: Sequence[dg.AssetsDefinition] = ()
) -> dg.AssetChecksDefinition:
    """The checks of an asset, asked together: what they say is kept as a whole or not at all.

    In a run of one partition that partition's artifact is judged, else every one that is built.

    Args:
        targets_of: the artifacts of the chosen recipe; those of this asset are judged.
        after: assets that must be there first, where a run builds them too.
    """
    kind = KINDS["/".join(asset.key.path)]
    specs = [
        dg.AssetCheckSpec(
            one.name, asset=asset, description=one.question, blocking=one.is_blocking, additional_deps=list(after)
        )
        for one in kind.checks
    ]

    @dg.multi_asset_check(name="__".join([*asset.key.path, "checks"]), specs=specs)
    def checks(context: dg.AssetCheckExecutionContext, store: CorpusStore) -> Iterator[dg.AssetCheckResult]:
        operation = context.op_execution_context
        partition = operation.partition_key if operation.has_partition_key else None
        said = [
            (target.partition, {one.name: verdict for one, verdict in store.ask(target)})
            for target in targets_of(store)
            if target.kind == kind.name
            and partition in (None, target.partition)
            and target.state(store.root)[0] != "missing"
        ]
        for one in kind.checks:
            verdicts = [(key, verdicts[one.name]) for key, verdicts in said if one.name in verdicts]
            failed = [verdict for _, verdict in verdicts if not verdict.holds]
            is_error = one.is_blocking and not all(verdict.is_slight for verdict in failed)
            words = [f"{key}: {verdict.because}" if key else verdict.because for key, verdict in verdicts]
            yield dg.AssetCheckResult(
                check_name=one.name,
                asset_key=asset.key,
                passed=not failed and len(verdicts) == len(said),
                severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
                description=plain("; ".join(words))
                or ("not asked: its files aren't as sealed" if said else "nothing is built"),
                metadata={
                    name if key is None else f"{key}_{name}": value
                    for key, verdict in verdicts
                    for name, value in verdict.numbers.items()
                },
            )

    return checks

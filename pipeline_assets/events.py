"""What was built, as the events of Dagster: the asset's key, a materialisation, what the checks said."""

from collections.abc import Iterator, Mapping

import dagster as dg

from pipeline_assets.corpus.markdown import plain
from pipeline_assets.corpus.recipes.drive import Built
from pipeline_assets.corpus.spine.target import Target
from resources.materialization import metadata_of

RecipeOf = Mapping[str, str]  # names of recipes by the folders, below the data root, of the artifacts they ask for


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


def materialization(
    built: Built, recipe: str, recipe_of: RecipeOf, instance: dg.DagsterInstance
) -> dg.AssetMaterialization:
    """The event of an artifact that no Dagster run of its asset built. Its tags keep staleness true: they say, as a run
    would, which content came out, by which code, of which inputs.
    """
    target, manifest = built.target, built.artifact.manifest
    digests = {entry["name"]: entry["digest"] for entry in manifest.identity.upstream}
    tags = {
        "dagster/data_version": manifest.digest,
        "dagster/data_version_is_user_provided": "true",
        "dagster/code_version": str(target.stage.version),
    }
    for key, targets in upstream_keys(target, recipe, recipe_of).items():
        newest = instance.fetch_materializations(key, limit=1).records
        if newest:
            tags[f"dagster/input_data_version/{key.to_user_string()}"] = digests[targets[-1].role]
            tags[f"dagster/input_event_pointer/{key.to_user_string()}"] = str(newest[0].storage_id)
    return dg.AssetMaterialization(
        asset_key=asset_key(target.kind, recipe),
        partition=target.partition,
        metadata=metadata_of(built.artifact, built.was_there),
        tags=tags,
    )


def check_evaluations(built: Built, recipe: str) -> Iterator[dg.AssetCheckEvaluation]:
    """What checks said of one artifact."""
    for check, verdict in built.said:
        is_error = check.is_blocking and not verdict.is_slight
        because = plain(verdict.because)
        yield dg.AssetCheckEvaluation(
            asset_key=asset_key(built.target.kind, recipe),
            check_name=check.name,
            passed=verdict.holds,
            metadata=dict(verdict.numbers),
            severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
            description=f"{built.target.partition}: {because}" if built.target.partition else because,
            blocking=check.is_blocking,
        )

"""What is made of sources that are sealed somewhere, whatever recipes made them: a report, a deduplicated corpus."""

from collections.abc import Sequence
from pathlib import Path

from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.recipes import stage_a_kinds
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.lineage import locate, root_of
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

_TOKENIZER = {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256}


def report_target(folders: Sequence[Path], name: str) -> Target:
    """The report on normalised or filtered sources, in a folder of that name.

    Raises: as `dedup_target`.
    """
    kind = stage_a_kinds.REPORT
    return Target(kind.name, name, Path(name), kind.stage, {}, _given_sources(folders), tokenizer=_TOKENIZER)


def dedup_target(folders: Sequence[Path], name: str, recipe: DedupRecipe) -> Target:
    """What is nobody's duplicate in normalised or filtered sources, given in their order, in a folder of that name.

    Raises:
        UsageError: something else is sealed in a folder, or two have one name.
        InputError: a source is damaged, or what a filtered one was made of is gone.
    """
    kind = stage_a_kinds.DEDUPLICATED
    sources = _given_sources(folders)
    content = {"dedup": recipe.content(), "sources": [source.partition for source in sources]}
    return Target(kind.name, name, Path(name), kind.stage, content, sources)


def _given_sources(folders: Sequence[Path]) -> tuple[Target, ...]:
    sources = [_given(folder.absolute()) for folder in folders]
    names = [source.partition for source in sources]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(f"it is the second of the sources that is {name}", folders[number], "give one of them")
    for folder, source in zip(folders, sources, strict=True):
        made_from = [upstream.folder for upstream in source.upstream if upstream.folder in {s.folder for s in sources}]
        if made_from:
            raise UsageError(f"it was made from {made_from[0]}, which is given too", folder, "give one of the two")
    return tuple(sources)


def _given(folder: Path) -> Target:
    manifest = open_artifact(folder).manifest
    kinds = {kind.name: kind for kind in (stage_a_kinds.NORMALIZED, stage_a_kinds.FILTERED)}
    if manifest.kind not in kinds:
        raise UsageError(f"this is a {manifest.kind}", folder, "give normalised or filtered sources")
    upstream: tuple[Target, ...] = ()
    if manifest.kind == stage_a_kinds.FILTERED.name:
        [made_from] = manifest.identity.upstream
        upstream = (_given(locate(root_of(folder) or folder.parent, made_from["digest"]).folder.absolute()),)
    return Target(
        kind=manifest.kind,
        name=manifest.name,
        folder=folder,
        stage=kinds[manifest.kind].stage,
        recipe=manifest.identity.recipe,
        upstream=upstream,
        partition=folder.name,
        is_given=True,
    )

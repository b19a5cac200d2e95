"""What is made of sources that are sealed somewhere, whatever recipes made them: a report, a deduplicated corpus, a
decontaminated one, a packed set. Each lies in the folder that was named for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection
from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.packing.recipe import PackSection
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.lineage import Lineage, root_of
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256
from pipeline_assets.systems import stage_a
from pipeline_assets.systems.stage_a import (
    DECONTAMINATED,
    DEDUPLICATED,
    FILTERED,
    NORMALIZED,
    PACKED,
    REPORT,
    SIGNATURES,
)

_SOURCES, _OF_SEVERAL = (NORMALIZED, FILTERED), (DEDUPLICATED, DECONTAMINATED)
_TOKENIZER = {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256}


def report_target(folders: Sequence[Path], place: Path) -> Target:
    """The report on normalised or filtered sources, or on what was deduplicated, decontaminated or packed, and on all
    that this was made of. Arguments and errors as `dedup_target`.
    """
    corpora = _given_corpora(folders, (*_OF_SEVERAL, PACKED))
    if corpora[0].partition is None:
        kinds = {folder: open_artifact(folder).manifest.kind for folder in _made_of(corpora[0].folder)}
        of_several = {kind.name: kind for kind in _OF_SEVERAL}
        sources = [folder for folder, name in kinds.items() if name not in of_several]
        others = [_as_sealed(folder, of_several[name]) for folder, name in kinds.items() if name in of_several]
        corpora = (*_given_sources(sources), *others, *corpora)
    return _named(REPORT.target(place.name, {}, corpora, tokenizer=_TOKENIZER), place)


def _made_of(folder: Path) -> Iterator[Path]:
    """The sources that something was made of, and the corpora of several of them between."""
    of_several = {kind.name for kind in _OF_SEVERAL}
    for entry in open_artifact(folder).manifest.identity.upstream:
        kind = "/".join(entry["name"].split("/")[:2])
        if kind in {kind.name for kind in (*_SOURCES, *_OF_SEVERAL)}:
            upstream = Lineage(root_of(folder) or folder.parent).locate(entry["digest"]).folder.absolute()
            if kind in of_several:
                yield from _made_of(upstream)
            yield upstream


def dedup_target(folders: Sequence[Path], place: Path, recipe: DedupRecipe, seen: Sequence[Path] = ()) -> Target:
    """What is nobody's duplicate in normalised or filtered sources, given in their order.

    Args:
        place: folder of what is made, below the root that it is built below.
        seen: signature stores.
    Raises:
        UsageError: something else is sealed in a folder, or two have one name.
        InputError: a source is damaged, or what a filtered one was made of is gone.
    """
    sources = _given_sources(folders)
    content = {"dedup": recipe.content(), "sources": [source.partition for source in sources]}
    stores = [stage_a.seen_store(folder.absolute()) for folder in seen]
    _refuse_one_name(stores, seen)
    return _named(DEDUPLICATED.target(place.name, content, (*sources, *stores)), place)


def signatures_target(folder: Path, place: Path) -> Target:
    """The signature store of a deduplicated corpus.

    Raises:
        UsageError: something else is sealed there.
    """
    manifest = open_artifact(folder).manifest
    if manifest.kind != DEDUPLICATED.name:
        raise UsageError(f"this is a {manifest.kind}", folder, "give what stage-a dedup made")
    content = {"signatures": DedupRecipe.from_content(manifest.identity.recipe["dedup"]).signatures()}
    return _named(SIGNATURES.target(place.name, content, [_as_sealed(folder.absolute(), DEDUPLICATED)]), place)


def decontaminated_target(folders: Sequence[Path], place: Path, section: DecontaminationSection) -> Target:
    """What normalised or filtered sources hold, given in their order, or one deduplicated corpus, without items of
    evaluation sets; what lists the files of these is upstream, in a folder beside it. Arguments and errors as
    `dedup_target`.
    """
    corpora = _given_corpora(folders, (DEDUPLICATED,))
    is_one_of_several = corpora[0].partition is None
    names = corpora[0].recipe["sources"] if is_one_of_several else [source.partition for source in corpora]
    evaluation = stage_a.evaluation_targets(section, place.name, evaluation_folder(place))
    content = section.rows_content() | {"sources": list(names)}
    return replace(DECONTAMINATED.target(place.name, content, (*corpora, *evaluation)), folder=place)


def evaluation_folder(place: Path) -> Path:
    """The folder of what lists the evaluation files of a corpus, beside it."""
    return place.with_name(f"{place.name}.evaluation")


def packed_target(folders: Sequence[Path], place: Path, section: PackSection) -> Target:
    """Rows of tokens of normalised or filtered sources, or of one corpus that was deduplicated or decontaminated.
    Arguments and errors as `dedup_target`.
    """
    return _named(stage_a.packed_target(section, place.name, place, _given_corpora(folders, _OF_SEVERAL)), place)


def _named(target: Target, place: Path) -> Target:
    """In the folder that was named for it; no recipe has it, so no copy of its manifest is kept."""
    return replace(target, folder=place, export_as=None)


def _given_corpora(folders: Sequence[Path], of_several: Sequence[Kind]) -> tuple[Target, ...]:
    """Sources as they are sealed; or a corpus of several of them, of one of these kinds."""
    kinds = {kind.name: kind for kind in of_several}
    for folder in folders:
        kind = kinds.get(open_artifact(folder).manifest.kind)
        if kind is not None and len(folders) > 1:
            fix = "give it alone, or deduplicate all together first"
            raise UsageError(f"this is a {kind.name}, and it is not the only corpus given", folder, fix)
        if kind is not None:
            return (_as_sealed(folder.absolute(), kind),)
    return _given_sources(folders, [kind.name.partition("/")[2] for kind in of_several])


def _given_sources(folders: Sequence[Path], of_several: Sequence[str] = ()) -> tuple[Target, ...]:
    """
    Args:
        of_several: what a corpus of several sources might have been instead.
    """
    fix = f"give normalised or filtered sources{', or a corpus that is ' * bool(of_several)}{' or '.join(of_several)}"
    sources = [_given(folder.absolute(), fix) for folder in folders]
    _refuse_one_name(sources, folders)
    for folder, source in zip(folders, sources, strict=True):
        made_from = [upstream.folder for upstream in source.upstream if upstream.folder in {s.folder for s in sources}]
        if made_from:
            raise UsageError(f"it was made from {made_from[0]}, which is given too", folder, "give one of the two")
    return tuple(sources)


def _refuse_one_name(targets: Sequence[Target], folders: Sequence[Path]) -> None:
    names = [target.partition for target in targets]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(f"it is the second of them that is called {name}", folders[number], "give one of them")


def _given(folder: Path, fix: str) -> Target:
    manifest = open_artifact(folder).manifest
    kinds = {kind.name: kind for kind in _SOURCES}
    if manifest.kind not in kinds:
        raise UsageError(f"this is a {manifest.kind}", folder, fix)
    upstream: tuple[Target, ...] = ()
    if manifest.kind == FILTERED.name:
        [made_from] = manifest.identity.upstream
        upstream = (
            _given(Lineage(root_of(folder) or folder.parent).locate(made_from["digest"]).folder.absolute(), fix),
        )
    return _as_sealed(folder, kinds[manifest.kind], upstream, folder.name)


def _as_sealed(folder: Path, kind: Kind, upstream: Sequence[Target] = (), partition: str | None = None) -> Target:
    manifest = open_artifact(folder).manifest
    target = kind.target(manifest.name, manifest.identity.recipe, upstream, partition=partition, is_given=True)
    return replace(target, name=manifest.name, folder=folder, export_as=None)

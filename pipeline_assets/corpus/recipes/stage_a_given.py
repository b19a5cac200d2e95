"""What is made of sources that are sealed somewhere, whatever recipes made them: a report, a deduplicated corpus, a
decontaminated one.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline_assets.corpus.dedup.recipe import DedupRecipe
from pipeline_assets.corpus.recipes import stage_a_kinds
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.recipes.stage_a_decontamination import DecontaminationSection
from pipeline_assets.corpus.recipes.stage_a_packing import PACKED, PackSection
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.lineage import Lineage, root_of
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY_SHA256

_OF_SEVERAL = (stage_a_kinds.DEDUPLICATED, stage_a_kinds.DECONTAMINATED)
_TOKENIZER = {"family": "o200k_harmony", "sha256": VOCABULARY_SHA256}


def report_target(folders: Sequence[Path], name: str) -> Target:
    """The report on normalised or filtered sources, or on what was deduplicated, decontaminated or packed, and on all
    that this was made of, in a folder of that name.

    Raises: as `dedup_target`.
    """
    kind, corpora = stage_a_kinds.REPORT, _given_corpora(folders, (*_OF_SEVERAL, PACKED))
    if corpora[0].partition is None:
        of_several = {kind.name: kind for kind in _OF_SEVERAL}
        kinds = {folder: open_artifact(folder).manifest.kind for folder in _made_of(corpora[0].folder)}
        sources = [folder for folder, name in kinds.items() if name not in of_several]
        others = [
            _as_sealed(folder, of_several[name], (), None) for folder, name in kinds.items() if name in of_several
        ]
        corpora = (*_given_sources(sources), *others, *corpora)
    return Target(kind.name, name, Path(name), kind.stage, {}, corpora, tokenizer=_TOKENIZER)


def _made_of(folder: Path) -> Iterator[Path]:
    """The sources that something was made of, and the corpora of several of them between."""
    wanted = {kind.name for kind in (stage_a_kinds.NORMALIZED, stage_a_kinds.FILTERED, *_OF_SEVERAL)}
    for entry in open_artifact(folder).manifest.identity.upstream:
        kind = "/".join(entry["name"].split("/")[:2])
        if kind in wanted:
            upstream = Lineage(root_of(folder) or folder.parent).locate(entry["digest"]).folder.absolute()
            if kind in {kind.name for kind in _OF_SEVERAL}:
                yield from _made_of(upstream)
            yield upstream


def dedup_target(folders: Sequence[Path], name: str, recipe: DedupRecipe, seen: Sequence[Path] = ()) -> Target:
    """What is nobody's duplicate in normalised or filtered sources, given in their order, in a folder of that name.

    Args:
        seen: signature stores.
    Raises:
        UsageError: something else is sealed in a folder, or two have one name.
        InputError: a source is damaged, or what a filtered one was made of is gone.
    """
    kind = stage_a_kinds.DEDUPLICATED
    sources = _given_sources(folders)
    content = {"dedup": recipe.content(), "sources": [source.partition for source in sources]}
    stores = [stage_a_kinds.seen_store(folder.absolute()) for folder in seen]
    _refuse_one_name(stores, seen)
    return Target(kind.name, name, Path(name), kind.stage, content, (*sources, *stores))


def signatures_target(folder: Path, name: str) -> Target:
    """The signature store of a deduplicated corpus, in a folder of that name.

    Raises:
        UsageError: something else is sealed there.
    """
    kind, manifest = stage_a_kinds.DEDUPLICATED, open_artifact(folder).manifest
    if manifest.kind != kind.name:
        raise UsageError(f"this is a {manifest.kind}", folder, "give what stage-a dedup made")
    recipe = manifest.identity.recipe
    deduplicated = Target(kind.name, manifest.name, folder.absolute(), kind.stage, recipe, is_given=True)
    return stage_a_kinds.signatures_of(deduplicated, Path(name), DedupRecipe.from_content(recipe["dedup"]))


def decontaminated_target(folders: Sequence[Path], place: Path, section: DecontaminationSection) -> Target:
    """What normalised or filtered sources hold, given in their order, or one deduplicated corpus, without items of
    evaluation sets; what lists the files of these is upstream, in a folder beside it.

    Args:
        place: folder of what is made, below the data root.
    Raises: as `dedup_target`.
    """
    corpora = _given_corpora(folders, (stage_a_kinds.DEDUPLICATED,))
    is_one_of_several = corpora[0].partition is None
    names = corpora[0].recipe["sources"] if is_one_of_several else [str(source.partition) for source in corpora]
    evaluation = section.evaluation_targets(place.name, evaluation_folder(place))
    return section.decontaminated_target(place.name, place, names, corpora, evaluation)


def evaluation_folder(place: Path) -> Path:
    """The folder of what lists the evaluation files of a corpus, beside it."""
    return place.with_name(f"{place.name}.evaluation")


def packed_target(folders: Sequence[Path], place: Path, section: PackSection) -> Target:
    """Rows of tokens of normalised or filtered sources, or of one corpus that was deduplicated or decontaminated.

    Args:
        place: folder of what is made, below the data root.
    Raises: as `dedup_target`.
    """
    corpora = _given_corpora(folders, _OF_SEVERAL)
    return section.packed_target(place.name, place, corpora)


def _given_corpora(folders: Sequence[Path], of_several: Sequence[Kind]) -> tuple[Target, ...]:
    """Sources as they are sealed; or a corpus of several of them, of one of these kinds."""
    kinds = {kind.name: kind for kind in of_several}
    for folder in folders:
        kind = kinds.get(open_artifact(folder).manifest.kind)
        if kind is not None and len(folders) > 1:
            fix = "give it alone, or deduplicate all together first"
            raise UsageError(f"this is a {kind.name}, and it is not the only corpus given", folder, fix)
        if kind is not None:
            return (_as_sealed(folder.absolute(), kind, (), None),)
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
    kinds = {kind.name: kind for kind in (stage_a_kinds.NORMALIZED, stage_a_kinds.FILTERED)}
    if manifest.kind not in kinds:
        raise UsageError(f"this is a {manifest.kind}", folder, fix)
    upstream: tuple[Target, ...] = ()
    if manifest.kind == stage_a_kinds.FILTERED.name:
        [made_from] = manifest.identity.upstream
        upstream = (
            _given(Lineage(root_of(folder) or folder.parent).locate(made_from["digest"]).folder.absolute(), fix),
        )
    return _as_sealed(folder, kinds[manifest.kind], upstream, folder.name)


def _as_sealed(folder: Path, kind: Kind, upstream: tuple[Target, ...], partition: str | None) -> Target:
    manifest = open_artifact(folder).manifest
    return Target(
        kind=kind.name,
        name=manifest.name,
        folder=folder,
        stage=kind.stage,
        recipe=manifest.identity.recipe,
        upstream=upstream,
        partition=partition,
        is_given=True,
    )

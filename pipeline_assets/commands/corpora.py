"""What is made of sources that lie sealed, whatever recipes made them, each in the folder that was named for it: a
deduplicated corpus and its signatures, a decontaminated corpus, a packed set, a report.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipeline_assets.commands import options
from pipeline_assets.commands.build import Flags, OutFolder, Place, build_targets
from pipeline_assets.commands.lines import lines_of
from pipeline_assets.commands.terminal import AsJson, answer, as_command, echo, naming
from pipeline_assets.corpus.decontamination.recipe import (
    DecontaminationRecipe,
    DecontaminationSection,
    EvaluationSource,
)
from pipeline_assets.corpus.dedup.decision import read_decisions
from pipeline_assets.corpus.dedup.recipe import (
    RECALL,
    Banding,
    DedupRecipe,
    Distance,
    RemovalCaps,
    recommended,
    smallest_distance,
)
from pipeline_assets.corpus.packing.recipe import PackSection
from pipeline_assets.corpus.recipes.kind import Kind
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.corpus.spine.lineage import Lineage, root_of
from pipeline_assets.corpus.spine.recipe import read_yaml, upstream_first
from pipeline_assets.corpus.spine.target import Target
from pipeline_assets.corpus.tokens.losses import read_lost_text
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.systems import stage_a
from pipeline_assets.systems.evaluation import evaluation_targets
from pipeline_assets.systems.registry import recipe_path
from pipeline_assets.systems.stage_a import PACKED, packed_target

Proposer = Annotated[
    Literal["minhash", "faiss"],
    typer.Option(help="What proposes pairs: bands of MinHash, or faiss by binary sketches."),
    options.Sets("dedup.near.faiss"),
]
_CURVE = (
    "near.threshold",
    "near.minhash.permutations",
    "near.minhash.bands",
    "near.faiss.bits",
    "near.faiss.max_distance",
)
_LEAST_ITEM_WORDS = 8  # GPT-3 (arXiv 2005.14165, appendix C) looked for n-grams of 8 to 13 words

_SOURCES = {kind.name: kind for kind in (stage_a.NORMALIZED, stage_a.FILTERED)}
_OF_SEVERAL = {kind.name: kind for kind in (stage_a.DEDUPLICATED, stage_a.DECONTAMINATED)}


def dedup(
    input: options.SealedInputs,
    out_dir: OutFolder,
    said: Annotated[options.Content, options.Section(DedupRecipe)],
    capped: Annotated[options.Content, options.Section(RemovalCaps)],
    *,
    proposer: Proposer = "minhash",
    seen: Annotated[
        list[str] | None, typer.Option(help="A signature store of what was seen before; repeatable.")
    ] = None,
    flags: Flags,
) -> bool:
    """Example: corpusmill stage-a dedup --input 'out/stage_a/filtered/*' --out-dir out/stage_a/deduplicated/all"""
    place = Place.at(out_dir)
    near = said.pop("near")
    if said["mode"] != "exact":
        _, asked = _ways(near, proposer, RECALL)
        kept = {key: near[key] for key in ("threshold", "max_compared")}
        said["near"] = kept | {proposer: near[proposer] | vars(asked)}
    recipe = DedupRecipe.of(said, "stage-a dedup")
    caps = RemovalCaps.of(capped, "--max-removed") if capped else None
    folders = options.sealed_folders(input)
    sources, stores = _given_sources(folders), options.sealed_folders(seen or ())
    seen_before = [stage_a.seen_store(folder.absolute()) for folder in stores]
    _refuse_one_name(seen_before, stores)
    content = {"dedup": recipe.content(), "sources": [source.partition for source in sources]}
    target = stage_a.DEDUPLICATED.target(place.below.name, content, (*sources, *seen_before))
    place.warn_of_other_roots(folders)
    corpus = place.build(replace(target, demand=caps) if caps else target, flags, lines_of, refuses=caps is None)
    if caps is None:
        return True
    verdict = caps.judge(corpus.manifest)
    lines = [f"removals within the cap: yes: {verdict.because}"] if verdict.holds else _above(corpus, caps, out_dir)
    echo("\n".join(lines), err=True)
    return verdict.holds


def signatures(
    input: Annotated[Path, typer.Option(help="A deduplicated corpus.")],
    out_dir: Annotated[Path, typer.Option(help="Folder of the store that is made."), options.Sets("name", "data")],
    *,
    flags: Flags,
) -> None:
    """Later corpora are deduplicated against this one.

    Example: corpusmill stage-a signatures --input out/stage_a/deduplicated/all
    --out-dir out/stage_a/signatures/all
    """
    place = Place.at(out_dir)
    manifest = open_artifact(input).manifest
    if manifest.kind != stage_a.DEDUPLICATED.name:
        raise UsageError(f"this is a {manifest.kind}", input, "give what stage-a dedup made")
    content = {"signatures": DedupRecipe.from_content(manifest.identity.recipe["dedup"]).signatures()}
    corpus = options.as_sealed(input.absolute(), stage_a.DEDUPLICATED)
    place.build(stage_a.SIGNATURES.target(place.below.name, content, [corpus]), flags, lines_of)


def _ways(near: options.Content, proposer: str, recall: float) -> tuple[Banding | Distance, Banding | Distance]:
    """The recommended way to propose pairs, and the one that is asked for; the same where none is.

    Raises:
        UsageError: some permutations are left over.
    """
    similarity, sketch = _similarity_of(near["threshold"]), near[proposer]
    if proposer == "faiss":
        distance = smallest_distance(sketch["bits"], similarity, recall)
        return distance, Distance(sketch["bits"], sketch.get("max_distance", distance.max_distance))
    permutations = sketch["permutations"]
    banding = recommended(permutations, similarity, recall)
    bands = sketch.get("bands", banding.bands)
    if permutations % bands:
        raise UsageError(f"{bands} bands leave some of {permutations} permutations over", "--bands", "choose a divisor")
    return banding, Banding(bands, permutations // bands)


def _similarity_of(threshold: str) -> float:
    """The threshold as a number.

    Raises:
        UsageError: it is no similarity.
    """
    try:
        similarity = float(threshold)
    except ValueError:
        similarity = 0.0
    if not 0 < similarity <= 1:
        raise UsageError(f"it is {threshold!r}", "--threshold", "give a number above 0, and 1 at most")
    return similarity


def _above(corpus: Artifact, caps: RemovalCaps, out_dir: Path) -> Iterator[str]:
    """The sources of which too much went, each with a document to look at."""
    yield "removals within the cap: NO"
    above = []
    at = ["--data", root] if (root := root_of(out_dir)) else []
    for source, counts in corpus.manifest.identity.counts["by_source"].items():
        gone, documents, cap = counts["exact_duplicate"] + counts["near_duplicate"], counts["in"], caps.cap(source)
        if gone > cap * documents:
            above.append(source)
            decisions = read_decisions(corpus)
            first = next(one.doc_id for one in decisions if one.source == source and one.duplicate_of is not None)
            share = f"{gone / documents:.1%}, MORE THAN {float(cap):.1%}"
            yield f"  {source}: {gone:,} of {documents:,} documents went ({share})"
            yield f"    to look at the first: {as_command('dedup', 'show', first, *at)}"
    fix = "raise --max-removed if that is how it is, or change other options and add --replace"
    yield f"{out_dir} is built and stays, with more of {', '.join(above)} gone than --max-removed allows: {fix}"


def explain(
    said: Annotated[options.Content, options.Section(DedupRecipe, _CURVE)],
    proposer: Proposer = "minhash",
    recall: Annotated[float, typer.Option(min=0, max=1, help="Of pairs at the threshold, how many to find.")] = RECALL,
    as_json: AsJson = False,
) -> None:
    """Example: corpusmill dedup explain --threshold 0.8 --permutations 128"""
    at = _similarity_of(said["near"]["threshold"])
    best, asked = _ways(said["near"], proposer, recall)
    shown = sorted({best, asked}, key=lambda one: one.rows if isinstance(one, Banding) else one.max_distance)
    curves = {one: {step / 20: one.proposes(step / 20) for step in range(2, 21)} for one in shown}
    ways = [{**vars(one), "at_threshold": one.proposes(at), "curve": curve} for one, curve in curves.items()]
    lines = []
    for one, curve in curves.items():
        lines.append(f"{one}{' (recommended)' * (one == best)}: {one.proposes(at):.1%} of pairs at {at:g}")
        for similarity, probability in curve.items():
            mark = " ← threshold" if similarity == math.floor(at * 20) / 20 else ""
            lines.append(f"  {similarity:.2f}  {probability:7.2%}  {'█' * round(40 * probability)}{mark}")
    lines.append("what is found is compared by its text: a proposer misses duplicates, it never makes one")
    answer(as_json, {"threshold": at, "recommended": vars(best), "ways": ways}, lines)


def decontaminate(
    input: options.SealedInputs,
    out_dir: OutFolder,
    sets: Annotated[options.Content, options.Section(EvaluationSource, is_repeated=True)],
    said: Annotated[options.Content, options.Section(DecontaminationRecipe)],
    flags: Flags,
) -> None:
    """Example: corpusmill stage-a decontaminate --input 'out/stage_a/filtered/*'
    --out-dir out/stage_a/decontaminated/all --evaluation mmlu=evaluation/mmlu --text-column question
    """
    place = Place.at(out_dir)
    least = {"min_item_words": min(_LEAST_ITEM_WORDS, said["ngram_words"])}
    cut = said["cut"] if said["action"] == "cut" else None
    evaluation = {"evaluation": _evaluation_sets(sets)}
    section = DecontaminationSection.of(least | said | {"cut": cut} | evaluation, "stage-a decontaminate")
    folders = options.sealed_folders(input)
    target = decontaminated_target(folders, place.below, section)
    place.warn_of_other_roots(folders)
    is_new = target.state(place.root)[0] == "missing"  # then no corpus loses what its evaluation sets were
    listed = [upstream for upstream in target.upstream if not upstream.is_given]
    build_targets(listed, flags.run_below(place.root, replaces=is_new))
    try:
        place.build(target, flags, lines_of)
    except InputError as error:
        if is_new and not isinstance(error, RetryableError) and not target.is_sealed(place.root):
            durable.remove(_evaluation_folder(place.folder))
        raise


def _evaluation_sets(sets: options.Content) -> list[options.Content]:
    """A section for each set that is named; what an option gives for one set as NAME=VALUE, or for all."""
    for text in sets["name"]:
        if not text.partition("=")[2]:
            raise UsageError(f"it is {text!r}", "--evaluation", "give NAME=PATH, mmlu=evaluation/mmlu")
    named = [text.partition("=")[::2] for text in sets["name"]]
    names = {name for name, _ in named}
    sections = []
    for name, path in named:
        texts, items, ids = (_said_of(name, names, sets["columns"][key]) for key in ("text", "item", "id"))
        unit = _only("--text-unit", _said_of(name, names, sets["text_unit"]))
        item, id_column = _only("--item", items) or "row", _only("--id-column", ids)
        columns = {"text": texts or ["text"], "item": item, "id": id_column} if unit is None else None
        folder, patterns = options.folder_and_patterns([path], "**/*")
        section = {"name": name, "path": str(folder), "files": patterns, "columns": columns, "text_unit": unit}
        sections.append(section)
    return sections


def _said_of(name: str, names: Collection[str], given: Sequence[str]) -> list[str]:
    """What an option says of a set: what is given as NAME=VALUE with its name, else what is given for all."""
    parted = [text.partition("=") for text in given]
    own = [value for whose, separator, value in parted if separator and whose == name]
    return own or ["".join(parts) for parts in parted if not (parts[1] and parts[0] in names)]


def _only(option: str, values: Sequence[str]) -> str | None:
    if len(values) > 1:
        what = f"it is given {len(values)} times for one set: {', '.join(values)}"
        raise UsageError(what, option, "give it once, or once a set as NAME=VALUE")
    return values[0] if values else None


def pack(
    manifest: Annotated[str, typer.Option(help="Recipe, whose own corpus is packed; or YAML of a section `pack`.")],
    out_dir: OutFolder,
    said: Annotated[options.Content, options.Section(PackSection)],
    flags: Flags,
    input: Annotated[
        list[str] | None,
        typer.Option(help="Folder of a source, or quoted pattern; repeatable. Default: `input` of the manifest."),
    ] = None,
) -> None:
    """Example: corpusmill stage-a pack --manifest pack.yaml --input out/stage_a/deduplicated/all
    --out-dir out/stage_a/packed/all
    """
    place = Place.at(out_dir)
    said = {key: value for key, value in said.items() if value is not None}
    names = {"name": "--out-dir", "data": "--out-dir", "": "manifest"}
    typed = options.option_finder({key: f"--{key.replace('_', '-')}" for key in said}, names)
    file = Path(manifest) if Path(manifest).exists() else recipe_path(manifest, place.root)
    with naming(file, typed, within="pack."):
        content, named, is_recipe = _content(file)
        section = PackSection.of(content | said, file)
        if section.tokenizer_path is not None:
            root = place.root.resolve()
            path = ((root if is_recipe else file.absolute().parent) / section.tokenizer_path).resolve()
            lies_at = path.relative_to(root) if path.is_relative_to(root) else path
            section = section.model_copy(update={"tokenizer_path": str(lies_at)})
        if is_recipe and not input:
            folders, corpora = [], _own_corpora(file, section, place.root)
            build_targets(upstream_first(corpora), flags.run_below(place.root), flags.strict)
        elif not input and not named:
            raise UsageError("nothing to pack is given", file, "give --input, or write `input` in it")
        else:
            folders = options.sealed_folders(input or named)
            corpora = _given_corpora(folders, _OF_SEVERAL)
        place.warn_of_other_roots(folders)
        place.build(packed_target(section, place.below.name, place.below, corpora), flags, _packed_lines)


def _own_corpora(file: Path, section: PackSection, root: Path) -> Sequence[Target]:
    """Return what a recipe's own packed set would derive from: its last corpus, or its sources."""
    recipe = stage_a.StageARecipe.in_file(read_yaml(file), file, root).model_copy(update={"pack": section})
    packed = [target for target in recipe.targets() if target.kind == PACKED.name]
    return packed[0].upstream if packed else recipe.goals()


def _content(manifest: Path) -> tuple[dict[str, Any], list[str], bool]:
    """Return the section on packing in a manifest, the inputs that it names, and whether it is a recipe."""
    content = read_yaml(manifest, "manifest")
    named = content.pop("input", [])
    inputs = [str(manifest.parent / str(one)) for one in (named if isinstance(named, list) else [named])]
    is_recipe = "system" in content
    section = (content.get("pack") or {}) if is_recipe else content.get("pack", content)
    if not isinstance(section, dict):
        raise UsageError("its `pack` is no section", manifest, "write `key: value` lines below it")
    beside = [] if is_recipe else sorted(content.keys() - {"pack"})
    if "pack" in content and beside:
        raise UsageError(f"it has `{beside[0]}` beside `pack`", manifest, "move it into that section, or remove it")
    return section, inputs, is_recipe


def _packed_lines(packed: Artifact) -> Iterator[str]:
    yield from lines_of(packed)
    yield from (f"  {source}: {losses}" for source, losses in (read_lost_text(packed.manifest) or {}).items())


def report(
    input: options.SealedInputs,
    out: Annotated[Path, typer.Option(help="Folder of the report."), options.Sets("name", "data")],
    flags: Flags,
) -> None:
    """Makes report.html and report.json; of a name that ends with .json, the folder is named without it, and that is a
    link to the one in it.

    Example: corpusmill stage-a report --input 'out/stage_a/normalized/*' --out out/stage_a/report
    """
    link, out = (out, out.with_suffix("")) if out.suffix == ".json" else (None, out)
    if link is not None and link.exists() and not link.is_symlink():
        raise UsageError("a file is there", link, "give another name, or move it away")
    place = Place.at(out)
    corpora = _given_corpora(options.sealed_folders(input), _OF_SEVERAL | {PACKED.name: PACKED})
    if corpora[0].partition is None:  # the sources are reported on too, and what was made of them in between
        kinds = {folder: open_artifact(folder).manifest.kind for folder in _made_of(corpora[0].folder)}
        sources = [folder for folder, kind in kinds.items() if kind not in _OF_SEVERAL]
        between = [
            options.as_sealed(folder, _OF_SEVERAL[kind]) for folder, kind in kinds.items() if kind in _OF_SEVERAL
        ]
        corpora = (*_given_sources(sources), *between, *corpora)
    tokenizer = TokenizerRecipe().content()
    place.build(stage_a.REPORT.target(place.below.name, {}, corpora, tokenizer=tokenizer), flags, lines_of)
    if link is not None:
        link.unlink(missing_ok=True)
        link.symlink_to(Path(out.name, "report.json"))


def _made_of(folder: Path) -> Iterator[Path]:
    """The sources that something was made of, and the corpora of several of them between."""
    for entry in open_artifact(folder).manifest.identity.upstream:
        kind = "/".join(entry["name"].split("/")[:2])
        if kind in _SOURCES | _OF_SEVERAL:
            upstream = _located(folder, entry["digest"])
            if kind in _OF_SEVERAL:
                yield from _made_of(upstream)
            yield upstream


def decontaminated_target(folders: Sequence[Path], place: Path, section: DecontaminationSection) -> Target:
    """What normalised or filtered sources hold, given in their order, or one deduplicated corpus, without items of
    evaluation sets; what lists the files of these is upstream, in a folder beside it.

    Args:
        place: folder of what is made, below the root that it is built below.
    Raises:
        UsageError: something else is sealed in a folder, or two have one name.
        InputError: a source is damaged, or what a filtered one was made of is gone.
    """
    corpora = _given_corpora(folders, {stage_a.DEDUPLICATED.name: stage_a.DEDUPLICATED})
    is_one_of_several = corpora[0].partition is None
    names = corpora[0].recipe["sources"] if is_one_of_several else [source.partition for source in corpora]
    evaluation = evaluation_targets(section, place.name, _evaluation_folder(place))
    content = section.rows_content() | {"sources": list(names)}
    return replace(stage_a.DECONTAMINATED.target(place.name, content, (*corpora, *evaluation)), folder=place)


def _evaluation_folder(place: Path) -> Path:
    """The folder of what lists the evaluation files of a corpus, beside it."""
    return place.with_name(f"{place.name}.evaluation")


def _given_corpora(folders: Sequence[Path], of_several: Mapping[str, Kind]) -> tuple[Target, ...]:
    """Sources as they are sealed; or a corpus of several of them, of one of these kinds."""
    for folder in folders:
        kind = of_several.get(open_artifact(folder).manifest.kind)
        if kind is not None and len(folders) > 1:
            fix = "give it alone, or deduplicate all together first"
            raise UsageError(f"this is a {kind.name}, and it is not the only corpus given", folder, fix)
        if kind is not None:
            return (options.as_sealed(folder.absolute(), kind),)
    return _given_sources(folders, [kind.step for kind in of_several.values()])


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


def _located(folder: Path, digest: str) -> Path:
    """Where an artifact lies that something in a folder was made of."""
    return Lineage(root_of(folder) or folder.parent).locate(digest).folder.absolute()


def _refuse_one_name(targets: Sequence[Target], folders: Sequence[Path]) -> None:
    names = [target.partition for target in targets]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise UsageError(f"it is the second of them that is called {name}", folders[number], "give one of them")


def _given(folder: Path, fix: str) -> Target:
    manifest = open_artifact(folder).manifest
    if manifest.kind not in _SOURCES:
        raise UsageError(f"this is a {manifest.kind}", folder, fix)
    upstream: tuple[Target, ...] = ()
    if manifest.kind == stage_a.FILTERED.name:
        [made_from] = manifest.identity.upstream
        upstream = (_given(_located(folder, made_from["digest"]), fix),)
    return options.as_sealed(folder, _SOURCES[manifest.kind], upstream, folder.name)

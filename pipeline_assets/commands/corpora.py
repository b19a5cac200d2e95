"""What is made of sources that lie sealed, whatever recipes made them, each in the folder that was named for it: a
deduplicated corpus and its signatures, a decontaminated corpus, a packed set, a report.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline_assets.build.kind import Kind
from pipeline_assets.build.recipe import upstream_first
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.target import Target
from pipeline_assets.commands.build import Flags, Lines, build_targets, free_folder
from pipeline_assets.commands.inputs import (
    SealedInputs,
    find_data_root_above,
    sealed_folders,
    sealed_target,
    upstream_targets,
)
from pipeline_assets.commands.lines import artifact_lines
from pipeline_assets.commands.options import Content, Section, Sets, option_finder
from pipeline_assets.commands.terminal import AsJson, answer, echo, naming
from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection
from pipeline_assets.corpus.dedup.recipe import Banding, DedupRecipe, NearRecipe, RemovalCaps
from pipeline_assets.corpus.packing.recipe import PackSection
from pipeline_assets.corpus.tokens.losses import read_lost_text
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.recipe_yaml import read_yaml
from pipeline_assets.systems import stage_a
from pipeline_assets.systems.evaluation import evaluation_targets

Proposer = Annotated[
    Literal["minhash", "faiss"],
    typer.Option(help="What proposes pairs: bands of MinHash, or faiss by binary sketches."),
    Sets("dedup.near.faiss"),
]
Manifest = Annotated[str, typer.Option(help="Recipe, or YAML with that section of one.")]
_CURVE = (
    "near.threshold",
    "near.minhash.permutations",
    "near.minhash.bands",
    "near.faiss.bits",
    "near.faiss.max_distance",
)
_SOURCES, _OF_SEVERAL = (stage_a.NORMALIZED, stage_a.FILTERED), (stage_a.DEDUPLICATED, stage_a.DECONTAMINATED)


@dataclass(frozen=True, kw_only=True)
class BuildInFolder(Flags):
    """Options of the commands that make one thing of what lies sealed, which no recipe asks for.

    Attributes:
        out_dir: the folder of what is made.
    """

    out_dir: Annotated[Path, typer.Option("--out-dir", "--out", help="Folder of what is made."), Sets("name", "data")]

    @functools.cached_property
    def folder(self) -> Path:
        """The folder, absolute; errors as `free_folder`."""
        return free_folder(self.out_dir)

    @property
    def root(self) -> Path:
        """The data root that it lies in."""
        return find_data_root_above(self.folder)

    @property
    def place(self) -> Path:
        """The folder below the data root."""
        return self.folder.relative_to(self.root)

    def make(self, target: Target, lines: Lines = artifact_lines) -> None:
        """Build a target in the folder, after what it needs, and say what came of it.

        Inputs outside of its data root, where lineage ends, are told; arguments and errors are as of `build_targets`.
        """
        for one in target.upstream:
            if one.is_external and not one.folder.resolve().is_relative_to(self.root.resolve()):
                what = f"warning: {one.folder} lies outside {self.root}: trace, report and verify --upstream of what is"
                fix = "give --out-dir a folder below stage_a/ of its data root"
                echo(f"{what} made of it will miss it; {fix}", err=True)
        here = replace(target, folder=self.place, export_as=None)
        build_targets(upstream_first([here]), self.run_below(self.root), self.strict, lines)


def dedup(
    input: SealedInputs,
    said: Annotated[Content, Section(DedupRecipe)],
    capped: Annotated[Content, Section(RemovalCaps)],
    *,
    proposer: Proposer = "minhash",
    seen: Annotated[list[str] | None, typer.Option(help="Signature store of earlier corpora; repeatable.")] = None,
    build: BuildInFolder,
) -> None:
    """Example: corpusmill stage-a dedup --input 'out/stage_a/filtered/*' --out-dir out/stage_a/deduplicated/all"""
    near = _near(said.pop("near"), proposer)
    recipe = DedupRecipe.from_mapping(said if said["mode"] == "exact" else said | {"near": near}, "stage-a dedup")
    caps = RemovalCaps.from_mapping(capped, "--max-removed") if capped else None
    sources = given_corpora(input)
    stores = [stage_a.seen_store(folder) for folder in sealed_folders(seen or ())]
    _refuse_one_name(stores)
    content = {"dedup": recipe.content(), "sources": [source.partition for source in sources]}
    build.make(stage_a.DEDUPLICATED.target(build.folder.name, content, (*sources, *stores), count_limit=caps))


def signatures(
    input: Annotated[Path, typer.Option(help="A deduplicated corpus.")],
    *,
    build: BuildInFolder,
) -> None:
    """Later corpora are deduplicated against this one.

    Example: corpusmill stage-a signatures --input out/stage_a/deduplicated/all
    --out-dir out/stage_a/signatures/all
    """
    corpus = sealed_target(input, stage_a.DEDUPLICATED)
    content = {"signatures": DedupRecipe.from_content(corpus.recipe["dedup"]).signatures()}
    build.make(stage_a.SIGNATURES.target(build.folder.name, content, [corpus]))


def _near(near: Content, proposer: str) -> Content:
    """Return what was typed of near duplicates, without what the other proposer alone would read."""
    return {key: near[key] for key in ("threshold", "max_compared", proposer) if key in near}


def explain(
    said: Annotated[Content, Section(DedupRecipe, _CURVE)],
    proposer: Proposer = "minhash",
    as_json: AsJson = False,
) -> None:
    """Example: corpusmill dedup explain --threshold 0.8 --permutations 128"""
    near = NearRecipe.from_mapping(_near(said["near"], proposer), "dedup explain")
    at, best, asked = float(near.threshold), near.recommended(), near.proposal()
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


def decontaminate(input: SealedInputs, manifest: Manifest, build: BuildInFolder) -> None:
    """Example: corpusmill stage-a decontaminate --manifest quiz.yaml --input 'out/stage_a/filtered/*'
    --out-dir out/stage_a/decontaminated/all
    """
    file = recipe_path(manifest, build.root)
    section = DecontaminationSection.from_mapping(_section(read_yaml(file, "manifest"), file, "decontamination"), file)
    build.make(decontaminated_target(given_corpora(input, stage_a.DEDUPLICATED), build.place, section))


def pack(
    manifest: Manifest,
    said: Annotated[Content, Section(PackSection)],
    build: BuildInFolder,
    input: Annotated[
        list[str] | None,
        typer.Option(help="Folder of a source, or quoted pattern; repeatable. Default: the recipe's own corpus."),
    ] = None,
) -> None:
    """Example: corpusmill stage-a pack --manifest pack.yaml --input out/stage_a/deduplicated/all
    --out-dir out/stage_a/packed/all
    """
    said = {key: value for key, value in said.items() if value is not None}
    file, typed = recipe_path(manifest, build.root), {key: f"--{key.replace('_', '-')}" for key in said}
    with naming(file, option_finder(typed, {"name": "--out-dir", "data": "--out-dir", "": "manifest"})):
        content = read_yaml(file, "manifest")
        section = PackSection.from_mapping(_section(content, file, "pack") | said, file)
        corpora = given_corpora(input, *_OF_SEVERAL) if input else _own_corpora(content, file, section, build.root)
        build.make(stage_a.packed_target(section, build.folder.name, build.place, corpora), _packed_lines)


def _section(content: Content, file: Path, name: str) -> Content:
    """Return a section of a recipe, empty where it has none; or that of a file with nothing else."""
    section = content.get(name)
    if section is None and "system" in content:
        section = {}
    if not isinstance(section, dict):
        raise UsageError(f"it has no section `{name}`", file, f"write `key: value` lines below `{name}:`")
    if "system" not in content and (beside := sorted(content.keys() - {name})):
        fix = "give it as --input" if beside[0] == "input" else f"move it into `{name}`, or remove it"
        raise UsageError(f"it has `{beside[0]}` beside `{name}`", file, fix)
    return section


def _own_corpora(content: Content, file: Path, section: PackSection, root: Path) -> Sequence[Target]:
    """Return what a recipe's own packed set would derive from: its last corpus, or its sources."""
    if "system" not in content:
        raise UsageError("nothing to pack is given", file, "give --input, or a recipe")
    recipe = stage_a.StageARecipe.from_file_values(content, file, root).model_copy(update={"pack": section})
    packed = [target for target in recipe.targets() if target.kind.name == stage_a.PACKED.name]
    return packed[0].upstream if packed else recipe.final_targets()


def _packed_lines(packed: Artifact) -> Iterator[str]:
    yield from artifact_lines(packed)
    if packed.manifest.kind == stage_a.PACKED.name:
        yield from (f"  {source}: {losses}" for source, losses in (read_lost_text(packed.manifest) or {}).items())


def report(input: SealedInputs, build: BuildInFolder) -> None:
    """Makes report.html and report.json; of a name that ends with .json, the folder is named without it, and that is a
    link to the one in it.

    Example: corpusmill stage-a report --input 'out/stage_a/normalized/*' --out out/stage_a/report
    """
    link = build.out_dir
    if link.suffix == ".json":
        if link.exists() and not link.is_symlink():
            raise UsageError("a file is there", link, "give another name, or move it away")
        build = replace(build, out_dir=link.with_suffix(""))
    corpora = given_corpora(input, *_OF_SEVERAL, stage_a.PACKED)
    if corpora[0].partition is None:  # the sources are reported on too, and what was made of them in between
        corpora = (*sorted(_input_targets(corpora[0]), key=lambda one: one.partition is None), *corpora)
    build.make(stage_a.REPORT.target(build.folder.name, {}, corpora, tokenizer=TokenizerRecipe().content()))
    if link.suffix == ".json":
        link.unlink(missing_ok=True)
        link.symlink_to(Path(build.out_dir.name, "report.json"))


def _input_targets(corpus: Target) -> Iterator[Target]:
    """The sources that something was made of, and the corpora of several of them between."""
    for upstream in upstream_targets(open_artifact(corpus.folder), *_SOURCES, *_OF_SEVERAL):
        if upstream.partition is None:
            yield from _input_targets(upstream)
        yield upstream


def decontaminated_target(corpora: Sequence[Target], place: Path, section: DecontaminationSection) -> Target:
    """Return corpora without items of evaluation sets, whose lists of files are upstream, in a folder beside it.

    Args:
        corpora: sources, or a deduplicated corpus.
        place: folder of what is made, below the root that it is built below.
    """
    is_one_of_several = corpora[0].partition is None
    names = corpora[0].recipe["sources"] if is_one_of_several else [source.partition for source in corpora]
    evaluation = evaluation_targets(section, place.name, place.with_name(f"{place.name}.evaluation"))
    content = section.rows_content() | {"sources": list(names)}
    return replace(stage_a.DECONTAMINATED.target(place.name, content, (*corpora, *evaluation)), folder=place)


def given_corpora(inputs: Sequence[str], *of_several: Kind) -> tuple[Target, ...]:
    """Return sealed sources, in the order in which they are given; or one corpus of several, of one of these kinds.

    Raises:
        UsageError: Something else is sealed there, a corpus of several is not alone, two sources have one name, or one
            was made from another.
        InputError: One is damaged, or what a filtered one was made of is gone.
    """
    corpora = tuple(sealed_target(folder, *_SOURCES, *of_several) for folder in sealed_folders(inputs))
    folders = {one.folder for one in corpora}
    _refuse_one_name(corpora)
    for corpus in corpora:
        if corpus.partition is None and len(corpora) > 1:
            fix = "give it alone, or deduplicate all together first"
            raise UsageError(f"this is a {corpus.kind.name}, and it is not the only corpus given", corpus.folder, fix)
        for upstream in corpus.upstream:
            if upstream.folder in folders:
                what = f"it was made from {upstream.folder}, which is given too"
                raise UsageError(what, corpus.folder, "give one of the two")
    return corpora


def _refuse_one_name(targets: Sequence[Target]) -> None:
    names = set[str | None]()
    for target in targets:
        if target.partition in names:
            what = f"it is the second of them that is called {target.partition}"
            raise UsageError(what, target.folder, "give one of them")
        names.add(target.partition)

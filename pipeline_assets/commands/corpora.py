"""Commands of stage A that build one artifact from sealed artifacts.

The command `dedup explain` is an exception: it only prints probabilities.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline_assets.build.recipe import upstream_first
from pipeline_assets.build.recipe_paths import recipe_path
from pipeline_assets.build.target import Kind, Target
from pipeline_assets.commands.build import ArtifactFormatter, BuildFlags, build_targets, resolve_output_folder
from pipeline_assets.commands.inputs import SealedInputs, sealed_folders, sealed_target, upstream_targets
from pipeline_assets.commands.lines import artifact_lines, lines_with_losses
from pipeline_assets.commands.options import (
    RecipeContent,
    SectionOptions,
    SetsKeys,
    is_typed,
    option_finder,
    typed_keys,
)
from pipeline_assets.commands.terminal import AsJson, echo, explain_recipe_keys, print_answer
from pipeline_assets.corpus.corpus_shard import corpus_shards
from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection
from pipeline_assets.corpus.dedup.proposal import Banding
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe, DedupRecipe, MinHashRecipe, NearRecipe
from pipeline_assets.corpus.dedup.removal_caps import RemovalCaps
from pipeline_assets.corpus.packing.recipe import PackSection
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.corpus.weights import add_missing_weight
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.data_root import find_data_root
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.recipe_yaml import read_yaml, sections_at
from pipeline_assets.systems import filtered, stage_a
from pipeline_assets.systems.evaluation import evaluation_targets

Proposer = Annotated[
    Literal["minhash", "faiss"],
    typer.Option(help="Proposer of pairs: MinHash bands or faiss sketches."),
    SetsKeys("dedup.near.faiss"),
]
RecipeOrSection = Annotated[str, typer.Option(help="Recipe, or a YAML file with only this section.")]
_EXPLAIN_KEYS = (
    "near.threshold",
    "near.minhash.permutations",
    "near.minhash.bands",
    "near.faiss.bits",
    "near.faiss.max_distance",
)
_SOURCE_KINDS, _JOINT_KINDS = (stage_a.NORMALIZED, filtered.FILTERED), (stage_a.DEDUPLICATED, stage_a.DECONTAMINATED)


@dataclass(frozen=True, kw_only=True)
class FolderOptions(BuildFlags):
    """Options of the commands that build one artifact in a folder that the user names."""

    out_dir: Annotated[Path, typer.Option("--out-dir", "--out", help="Folder of the artifact."), SetsKeys("name")]

    @functools.cached_property
    def folder(self) -> Path:
        """Absolute path of the artifact's folder."""
        return resolve_output_folder(self.out_dir)

    @property
    def root(self) -> Path:
        """Data root that contains the folder, else the folder's parent."""
        return find_data_root(self.folder) or self.folder.parent

    @property
    def relative_folder(self) -> Path:
        """Path of the artifact's folder relative to the data root."""
        return self.folder.relative_to(self.root)

    def build(self, target: Target, format_lines: ArtifactFormatter = artifact_lines) -> None:
        """Build the inputs of a target, then the target; print lines on each artifact.

        Warn of inputs outside the data root, and of an output folder that `status` and `trace` do not search.
        """
        fix = "set --out-dir to a folder below stage_a/ of its data root"
        for upstream in target.upstream:
            if upstream.is_external and not upstream.folder.resolve().is_relative_to(self.root.resolve()):
                what = f"warning: {upstream.folder} is outside of {self.root}: trace, report and verify --upstream"
                echo(f"{what} of the new artifact will miss it; {fix}", err=True)
        root = find_data_root(self.root / target.upstream[0].folder)
        if root is not None and find_data_root(self.folder) is None and self.folder.is_relative_to(root.absolute()):
            what = f"warning: {self.out_dir} is in none of the folders of {root} with artifacts"
            echo(f"{what}: status, gc, forget and trace will not find the new artifact; {fix}", err=True)
        target = replace(target, folder=self.relative_folder, copy_name=None)
        build_targets(upstream_first([target]), self.start_run(self.root), self.strict, format_lines)


def dedup(
    input: SealedInputs,
    dedup_keys: Annotated[RecipeContent, SectionOptions(DedupRecipe)],
    cap_keys: Annotated[RecipeContent, SectionOptions(RemovalCaps)],
    *,
    proposer: Proposer = "minhash",
    seen: Annotated[list[str] | None, typer.Option(help="Signature store of earlier corpora; repeatable.")] = None,
    options: FolderOptions,
) -> None:
    """Drop duplicates; by default, keep the first in the order of sources.

    Example: corpusmill stage-a dedup --input 'out/stage_a/filtered/*' --out-dir out/stage_a/deduplicated/all
    """
    near = dedup_keys.pop("near")
    if dedup_keys["mode"] != "exact":
        dedup_keys |= {"near": _near_section(near, proposer)}
    else:
        if is_typed("proposer"):
            raise UsageError("requires --mode near or both", "--proposer", "omit one of the two options")
        _raise_if_typed(typed_keys(NearRecipe), "near", "--mode near or both")
    recipe = DedupRecipe.from_mapping(dedup_keys, "stage-a dedup")
    caps = RemovalCaps.from_mapping(cap_keys, "--max-removed") if cap_keys else None
    sources = input_corpora(input)
    stores = [stage_a.external_signatures(folder) for folder in sealed_folders(seen or ())]
    _check_unique_names(stores)
    content = {"dedup": recipe.content(), "sources": [source.partition for source in sources]}
    options.build(stage_a.DEDUPLICATED.target(options.folder.name, content, (*sources, *stores), count_limit=caps))


def signatures(
    input: Annotated[Path, typer.Option(help="Folder of a deduplicated corpus.")], *, options: FolderOptions
) -> None:
    """Store signatures, with which `dedup --seen` compares later corpora.

    Example: corpusmill stage-a signatures --input out/stage_a/deduplicated/all
    --out-dir out/stage_a/signatures/all
    """
    corpus = sealed_target(input, stage_a.DEDUPLICATED)
    content = {"signatures": DedupRecipe.from_content(corpus.recipe["dedup"]).signature_keys()}
    options.build(stage_a.SIGNATURES.target(options.folder.name, content, [corpus]))


def _near_section(near_keys: RecipeContent, proposer: str) -> RecipeContent:
    """Return the keys of section `near` that a proposer (minhash or faiss) uses.

    Raise UsageError if an option sets a key that only the other proposer has.
    """
    other, section = ("faiss", BinarySketchRecipe) if proposer == "minhash" else ("minhash", MinHashRecipe)
    unused = [key for key in typed_keys(section) if key not in near_keys.get(proposer, {})]
    _raise_if_typed(unused, f"near.{other}", f"--proposer {other}")
    return {key: near_keys[key] for key in ("threshold", "max_compared", proposer) if key in near_keys}


def _raise_if_typed(keys: Sequence[str], section_key: str, needed_option: str) -> None:
    """Raise UsageError if `keys` were typed without the option that they require."""
    if keys:
        where = RecipeKey(f"{section_key}.{keys[0]}")
        raise UsageError(f"requires {needed_option}", where, "add it, or omit this option")


def explain(
    dedup_keys: Annotated[RecipeContent, SectionOptions(DedupRecipe, _EXPLAIN_KEYS)],
    proposer: Proposer = "minhash",
    as_json: AsJson = False,
) -> None:
    """Show how likely duplicates are found; recommend bands or a distance.

    Example: corpusmill dedup explain --threshold 0.8 --permutations 128
    """
    content = {"mode": "near", "near": _near_section(dedup_keys["near"], proposer)}
    near = DedupRecipe.from_mapping(content, "dedup explain").near
    assert near is not None  # because of the mode
    threshold, best, typed = float(near.threshold), near.recommended_proposal(), near.proposal()
    proposals = sorted({best, typed}, key=lambda way: way.rows if isinstance(way, Banding) else way.max_distance)
    curves = {way: {step / 20: way.recall(step / 20) for step in range(2, 21)} for way in proposals}
    ways = [{**vars(way), "at_threshold": way.recall(threshold), "curve": curve} for way, curve in curves.items()]
    lines = []
    for way, curve in curves.items():
        lines.append(f"{way}{' (recommended)' * (way == best)}: {way.recall(threshold):.1%} of pairs at {threshold:g}")
        for similarity, probability in curve.items():
            mark = " ← threshold" if similarity == math.floor(threshold * 20) / 20 else ""
            lines.append(f"  {similarity:.2f}  {probability:7.2%}  {'█' * round(40 * probability)}{mark}")
    lines.append("proposed pairs are compared by their text: a proposer can miss duplicates, but not invent them")
    print_answer(as_json, {"threshold": threshold, "recommended": vars(best), "ways": ways}, lines)


def decontaminate(input: SealedInputs, manifest: RecipeOrSection, options: FolderOptions) -> None:
    """Drop or cut documents that contain items of evaluation sets.

    Example: corpusmill stage-a decontaminate --manifest quiz.yaml --input 'out/stage_a/filtered/*'
    --out-dir out/stage_a/decontaminated/all
    """
    file = recipe_path(manifest, options.root)
    keys = _read_section(read_yaml(file, "manifest"), file, "decontamination")
    section = DecontaminationSection.from_mapping(keys, file)
    options.build(decontaminated_target(input_corpora(input, stage_a.DEDUPLICATED), options.relative_folder, section))


def pack(
    manifest: RecipeOrSection,
    pack_keys: Annotated[RecipeContent, SectionOptions(PackSection)],
    options: FolderOptions,
    input: Annotated[
        list[str] | None, typer.Option(help="Folder or quoted pattern; repeatable. Default: recipe's.")
    ] = None,
) -> None:
    """Pack weighted sources into token rows of one length.

    Example: corpusmill stage-a pack --manifest pack.yaml --input out/stage_a/deduplicated/all
    --out-dir out/stage_a/packed/all
    """
    pack_keys = {key: value for key, value in pack_keys.items() if value is not None}
    file, typed = recipe_path(manifest, options.root), {key: f"--{key.replace('_', '-')}" for key in pack_keys}
    with explain_recipe_keys(file, option_finder(typed, {"name": "--out-dir"})):
        content = read_yaml(file, "manifest")
        keys = _read_section(content, file, "pack", is_optional=True) | pack_keys
        corpora: Sequence[Target] = input_corpora(input, *_JOINT_KINDS) if input else ()
        keys = add_missing_weight(keys, ("weights",), _source_names(content, corpora))
        section = PackSection.from_mapping(keys, file)
        corpora = corpora or _recipe_corpora(content, file, section, options.root)
        target = stage_a.packed_target(section, options.folder.name, options.relative_folder, corpora)
        options.build(target, lines_with_losses)


def _read_section(content: RecipeContent, file: Path, name: str, is_optional: bool = False) -> RecipeContent:
    """Return section `name` of a recipe, or of a file that has only this section.

    Return {} if the section is optional and missing from a recipe. Raise UsageError for any other missing section. A
    file without the key `system` is not a recipe; raise UsageError if such a file has other keys than the section.
    """
    is_recipe, section = "system" in content, content.get(name)
    if section is None and is_optional and is_recipe:
        section = {}
    if not isinstance(section, dict):
        raise UsageError(f"section `{name}` not found", file, f"write `key: value` lines below `{name}:`")
    if not is_recipe and (other_keys := sorted(content.keys() - {name})):
        fix = "pass it as --input" if other_keys[0] == "input" else f"move it into `{name}`, or remove it"
        raise UsageError(f"expected only the section `{name}`, got `{other_keys[0]}` too", file, fix)
    return section


def _source_names(content: RecipeContent, corpora: Sequence[Target]) -> list[str]:
    """List the non-empty sources of `corpora`; without corpora, the recipe's sources."""
    if not corpora:
        return [str(section.get("source")) for _, section in sections_at(content, "sources")]
    sealed = {corpus.partition or corpus.name: open_artifact(corpus.folder) for corpus in corpora}
    return [shard.source for shard in corpus_shards(sealed) if shard.rows]


def _recipe_corpora(content: RecipeContent, file: Path, section: PackSection, root: Path) -> Sequence[Target]:
    """Return a recipe's final targets, or the inputs of its packed set if it has one."""
    if "system" not in content:
        raise UsageError("no corpus to pack", file, "pass --input, or a recipe")
    recipe = stage_a.StageARecipe.from_file_values(content, file, root).model_copy(update={"pack": section})
    packed = [target for target in recipe.targets() if target.kind.name == stage_a.PACKED.name]
    return packed[0].upstream if packed else recipe.final_targets()


def report(
    input: SealedInputs,
    options: FolderOptions,
    tokens: Annotated[bool, typer.Option(help="Count tokens; estimate them in large sources.")] = True,
) -> None:
    """Report on sources, their deduplication and decontamination.

    Write report.html and report.json. With --out X.json, the folder is X, and X.json is a link to X/report.json.

    Example: corpusmill stage-a report --input 'out/stage_a/normalized/*' --out out/stage_a/report
    """
    link = options.out_dir
    if link.suffix == ".json":
        if link.exists() and not link.is_symlink():
            raise UsageError("the file exists", link, "choose another name, or move it away")
        options = replace(options, out_dir=link.with_suffix(""))
    corpora = input_corpora(input, *_JOINT_KINDS, stage_a.PACKED)
    if corpora[0].partition is None:  # the report covers its sources and the corpora between, too
        corpora = (*sorted(_upstream_corpora(corpora[0]), key=lambda corpus: corpus.partition is None), *corpora)
    tokenizer = HarmonyRecipe().content() if tokens else None
    options.build(stage_a.REPORT.target(options.folder.name, {}, corpora, tokenizer=tokenizer))
    if link.suffix == ".json":
        link.unlink(missing_ok=True)
        link.symlink_to(Path(options.out_dir.name, "report.json"))


def _upstream_corpora(corpus: Target) -> Iterator[Target]:
    """Yield the sources and joint corpora upstream of a joint corpus, inputs first."""
    for upstream in upstream_targets(open_artifact(corpus.folder), *_SOURCE_KINDS, *_JOINT_KINDS):
        if upstream.partition is None:
            yield from _upstream_corpora(upstream)
        yield upstream


def decontaminated_target(corpora: Sequence[Target], folder: Path, section: DecontaminationSection) -> Target:
    """Return a target in `folder` that decontaminates sources or one joint corpus.

    For each evaluation set, the target has one more input: an artifact in `<folder>.evaluation` that lists the files of
    the set.
    """
    is_joint = corpora[0].partition is None
    names = corpora[0].recipe["sources"] if is_joint else [source.partition for source in corpora]
    evaluation = evaluation_targets(section, folder.name, folder.with_name(f"{folder.name}.evaluation"))
    content = section.output_content() | {"sources": list(names)}
    return replace(stage_a.DECONTAMINATED.target(folder.name, content, (*corpora, *evaluation)), folder=folder)


def input_corpora(inputs: Sequence[str], *joint_kinds: Kind) -> tuple[Target, ...]:
    """Return what `inputs` match: sealed sources, in order, or one joint corpus.

    A joint corpus has several sources; its kind is one of `joint_kinds`. Raise UsageError if two sources have the same
    name, an input derives from another, or a joint corpus is not the only input.
    """
    corpora = tuple(sealed_target(folder, *_SOURCE_KINDS, *joint_kinds) for folder in sealed_folders(inputs))
    folders = {corpus.folder for corpus in corpora}
    _check_unique_names(corpora)
    for corpus in corpora:
        if corpus.partition is None and len(corpora) > 1:
            fix = "pass it alone, or deduplicate all sources together first"
            raise UsageError(f"a {corpus.kind.name} must be the only input, got {len(corpora)}", corpus.folder, fix)
        for upstream in corpus.upstream:
            if upstream.folder in folders:
                what = f"the corpus derives from another input, {upstream.folder}"
                raise UsageError(what, corpus.folder, "pass one of the two")
    return corpora


def _check_unique_names(targets: Sequence[Target]) -> None:
    names = set[str | None]()
    for target in targets:
        if target.partition in names:
            raise UsageError(f"two inputs have the name {target.partition}", target.folder, "pass one of them")
        names.add(target.partition)

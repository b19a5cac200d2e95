"""stage-a decontaminate: what holds items of evaluation sets is dropped, or cut."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.building import Flags, OutFolder, Place, SealedInputs, sealed_folders
from pipeline_assets.commands.sections import Content, Section, command
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError, RetryableError, UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.artifact import Artifact

app = typer.Typer()
_LEAST_ITEM_WORDS = 8  # GPT-3 (arXiv 2005.14165, appendix C) looked for n-grams of 8 to 13 words


@command(
    app,
    "decontaminate",
    "stage-a decontaminate --input 'out/stage_a/filtered/*' --out-dir out/stage_a/decontaminated/all "
    "--evaluation mmlu=evaluation/mmlu --text-column question",
)
def decontaminate(
    input: SealedInputs,
    out_dir: OutFolder,
    sets: Annotated[Content, Section("corpus.decontamination.recipe.EvaluationSource", is_repeated=True)],
    said: Annotated[Content, Section("corpus.decontamination.recipe.DecontaminationRecipe")],
    flags: Flags,
) -> None:
    """Drop documents that hold items of evaluation sets, or cut these out."""
    from pipeline_assets.commands.given import decontaminated_target, evaluation_folder
    from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection

    place = Place.at(out_dir)
    run = flags.run(place.root)
    least = {"min_item_words": min(_LEAST_ITEM_WORDS, said["ngram_words"])}
    cut = said["cut"] if said["action"] == "cut" else None
    evaluation = {"evaluation": _evaluation_sets(sets)}
    section = DecontaminationSection.of(least | said | {"cut": cut} | evaluation, "stage-a decontaminate")
    folders = sealed_folders(input)
    target = decontaminated_target(folders, place.below, section)
    place.warn_of_other_roots(folders)
    is_new = target.state(place.root)[0] == "missing"  # then no corpus loses what its evaluation sets were
    for listed in target.upstream:
        if not listed.is_given:
            place.build(listed, dataclasses.replace(run, replace=flags.replace or is_new))
    try:
        corpus = place.build(target, run)
    except InputError as error:
        if is_new and not isinstance(error, RetryableError):
            durable.remove(evaluation_folder(place.folder))
        raise
    for line in _lines(corpus):
        typer.echo(line)
    target.refuse_failed(place.root)


def _evaluation_sets(sets: Content) -> list[Content]:
    """A section for each set that is named; what an option gives for one set as NAME=VALUE, or for all."""
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns

    named = [_name_and_path(text) for text in sets["name"]]
    names = {name for name, _ in named}
    sections = []
    for name, path in named:
        texts, items, ids = (_said_of(name, names, sets["columns"][key]) for key in ("text", "item", "id"))
        unit = _only("--text-unit", _said_of(name, names, sets["text_unit"]))
        item, id_column = _only("--item", items) or "row", _only("--id-column", ids)
        columns = {"text": texts or ["text"], "item": item, "id": id_column} if unit is None else None
        folder, patterns = folder_and_patterns([path], "**/*")
        section = {"name": name, "path": str(folder), "files": patterns, "columns": columns, "text_unit": unit}
        sections.append(section)
    return sections


def _name_and_path(text: str) -> tuple[str, str]:
    name, separator, path = text.partition("=")
    if not separator or not path:
        raise UsageError(f"it is {text!r}", "--evaluation", "give NAME=PATH, mmlu=evaluation/mmlu")
    return name, path


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


def _lines(corpus: "Artifact") -> Iterator[str]:
    counts = corpus.manifest.identity.counts
    yield f"{corpus.folder}\n  {corpus.manifest.digest}"
    for name, one in _aligned(counts["evaluation"]):
        skipped = f", {one['too_short']:,} of them too short" if one["too_short"] else ""
        fate = f"{one['dropped_documents']:,} dropped + {one['cut_documents']:,} cut"
        yield f"  {name}  {one['items']:,} items{skipped}: {one['contaminated_documents']:,} documents = {fate}"
    for name, one in _aligned(counts["by_source"]):
        rejected = f" + {one['rejected']:,} rejected" if one["rejected"] else ""
        kept = f"{one['out']:,} kept ({one['cut']:,} of them cut)"
        yield f"  {name}  {one['in']:,} documents = {kept} + {one['dropped']:,} dropped{rejected}"


def _aligned(counts: dict[str, Any]) -> Sequence[tuple[str, Any]]:
    width = max(map(len, counts))
    return [(name.ljust(width), one) for name, one in counts.items()]

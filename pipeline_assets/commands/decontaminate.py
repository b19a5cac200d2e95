"""stage-a decontaminate: what holds items of evaluation sets is dropped, or cut."""

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.build_options import (
    LOG_EVERY_S,
    THREADS,
    LogEvery,
    Replace,
    SealedInputs,
    Threads,
    Verbose,
    place_for,
    prepare,
    sealed_folders,
    warn_of_other_roots,
)
from pipeline_assets.commands.terminal import as_typed, going_on
from pipeline_assets.commands.wrong_use import naming_options
from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError, Obstacle, UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.artifact import Artifact

app = typer.Typer()
_LEAST_ITEM_WORDS = 8  # GPT-3 (arXiv 2005.14165, appendix C) looked for n-grams of 8 to 13 words


@app.command(
    "decontaminate",
    epilog="Example: corpusmill stage-a decontaminate --input 'out/stage_a/filtered/*' "
    "--out-dir out/stage_a/decontaminated/all --evaluation mmlu=evaluation/mmlu --text-column question",
)
def decontaminate(
    input: SealedInputs,
    out_dir: Annotated[Path, typer.Option(help="Folder of what is made.")],
    evaluation: Annotated[list[str], typer.Option(help="NAME=PATH of a set: file, folder, pattern; repeatable.")],
    text_column: Annotated[
        list[str] | None, typer.Option(help="Column of an item, NAME=COLUMN for one set; repeatable. Default: text.")
    ] = None,
    id_column: Annotated[
        list[str] | None, typer.Option(help="Likewise, one a set. Default: items are named by file and row.")
    ] = None,
    item: Annotated[
        list[str] | None, typer.Option(help="What is an item: row (all its columns), column. Likewise. Default: row.")
    ] = None,
    text_unit: Annotated[
        list[str] | None, typer.Option(help="The set is .txt, an item of it a: file, paragraph. Likewise.")
    ] = None,
    ngram_words: Annotated[int, typer.Option(help="Words in an n-gram.")] = 13,
    min_item_words: Annotated[
        int | None, typer.Option(help="Items with fewer are not looked for. Default: 8, at most --ngram-words.")
    ] = None,
    min_item_overlap: Annotated[str, typer.Option(help="Fraction of an item's n-grams that contaminates.")] = "0.5",
    max_items_per_ngram: Annotated[int, typer.Option(help="An n-gram of more items says nothing.")] = 10,
    action: Annotated[str, typer.Option(help="Of what is contaminated: drop, or cut the items out.")] = "drop",
    margin_words: Annotated[int, typer.Option(help="Words that are cut around an item too.")] = 0,
    min_kept_words: Annotated[int, typer.Option(help="Documents with fewer left are dropped.")] = 50,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
) -> None:
    """Drop documents that hold items of evaluation sets, or cut these out."""
    from pipeline_assets.commands.given import decontaminated_target, evaluation_folder
    from pipeline_assets.corpus.decontamination.recipe import DecontaminationSection
    from pipeline_assets.corpus.spine.lineage import root_of
    from pipeline_assets.launch import build_one

    out = place_for(out_dir)
    data_root = root_of(out)
    root = data_root or out.parent
    run = prepare(root, cpu_threads, log_every, verbose, replace)
    sets = [_name_and_path(text) for text in evaluation]
    names, per_set = {name for name, _ in sets}, (text_column, id_column, item, text_unit)
    content: dict[str, Any] = {
        "ngram_words": ngram_words,
        "min_item_words": min(_LEAST_ITEM_WORDS, ngram_words) if min_item_words is None else min_item_words,
        "min_item_overlap": min_item_overlap,
        "max_items_per_ngram": max_items_per_ngram,
        "action": action,
        "cut": {"margin_words": margin_words, "min_kept_words": min_kept_words} if action == "cut" else None,
        "evaluation": [
            _evaluation(name, path, *(_said_of(name, names, given or ()) for given in per_set)) for name, path in sets
        ],
    }
    with naming_options():
        section = DecontaminationSection.of(content, "stage-a decontaminate")
    with naming_options():
        folders = sealed_folders(input)
        target = decontaminated_target(folders, out.relative_to(root), section)
    warn_of_other_roots(folders, out)
    is_new = target.state(root)[0] == "missing"  # then no corpus loses what its evaluation sets were
    with going_on(as_typed()), naming_options():
        for listed in target.upstream:
            if not listed.is_given:
                build_one(listed, dataclasses.replace(run, replace=replace or is_new), data_root)
        try:
            corpus = build_one(target, run, data_root).artifact
        except InputError as error:
            if is_new and not isinstance(error, Obstacle):
                durable.remove(evaluation_folder(out))
            raise
    for line in _lines(corpus):
        typer.echo(line)
    target.refuse_failed(root)


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


def _evaluation(
    name: str, path: str, texts: Sequence[str], ids: Sequence[str], items: Sequence[str], units: Sequence[str]
) -> dict[str, Any]:
    from pipeline_assets.commands.stage_a_inputs import folder_and_patterns

    folder, patterns = folder_and_patterns([path], "**/*")
    unit, item, id_column = _only("--text-unit", units), _only("--item", items) or "row", _only("--id-column", ids)
    columns = {"text": texts or ["text"], "item": item, "id": id_column} if unit is None else None
    return {"name": name, "path": str(folder), "files": patterns, "columns": columns, "text_unit": unit}


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

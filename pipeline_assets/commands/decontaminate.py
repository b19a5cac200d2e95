"""stage-a decontaminate: what holds items of evaluation sets is dropped, or cut."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.stage_a_settings import (
    LOG_EVERY_S,
    THREADS,
    LogEvery,
    Replace,
    SealedInputs,
    Threads,
    Verbose,
    prepare,
    sealed_folders,
)
from pipeline_assets.commands.terminal import as_typed, going_on
from pipeline_assets.corpus.spine.errors import UsageError

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
    text_column: Annotated[list[str] | None, typer.Option(help="Column of an item; repeatable. Default: text.")] = None,
    id_column: Annotated[str | None, typer.Option(help="Default: items are named by file and row.")] = None,
    item: Annotated[str, typer.Option(help="What is an item: all columns of a row, or each column.")] = "row",
    text_unit: Annotated[
        str | None, typer.Option(help="The sets are .txt; of one an item is a: file, paragraph.")
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
    from pipeline_assets.corpus.recipes.kind import RunSettings
    from pipeline_assets.corpus.recipes.stage_a_decontamination import DecontaminationSection
    from pipeline_assets.corpus.recipes.stage_a_given import decontaminated_target
    from pipeline_assets.corpus.recipes.systems import KINDS
    from pipeline_assets.corpus.spine.engine import EngineSettings
    from pipeline_assets.corpus.spine.lineage import root_of

    prepare(log_every, verbose)
    columns = {"text": text_column or ["text"], "item": item, "id": id_column} if text_unit is None else None
    content: dict[str, Any] = {
        "ngram_words": ngram_words,
        "min_item_words": min(_LEAST_ITEM_WORDS, ngram_words) if min_item_words is None else min_item_words,
        "min_item_overlap": min_item_overlap,
        "max_items_per_ngram": max_items_per_ngram,
        "action": action,
        "cut": {"margin_words": margin_words, "min_kept_words": min_kept_words} if action == "cut" else None,
        "evaluation": [_evaluation(text) | {"columns": columns, "text_unit": text_unit} for text in evaluation],
    }
    section = DecontaminationSection.of(content, "stage-a decontaminate")
    out = out_dir.absolute()
    root = root_of(out) or out.parent
    target = decontaminated_target(sealed_folders(input), out.relative_to(root), section)
    settings = RunSettings(EngineSettings(cpu_threads, log_every_s=log_every))
    is_new = target.state(root)[0] == "missing"  # then no corpus loses what its evaluation sets were
    with going_on(as_typed()):
        for listed in target.upstream:
            if not listed.is_given:
                KINDS[listed.kind].build(listed, root, replace or is_new, settings)
        corpus = KINDS[target.kind].build(target, root, replace, settings)
    for line in _lines(corpus):
        typer.echo(line)


def _evaluation(text: str) -> dict[str, Any]:
    """Name, folder and patterns of a set that is given as NAME=PATH."""
    from pipeline_assets.corpus.recipes.stage_a_inputs import folder_and_patterns

    name, separator, path = text.partition("=")
    if not separator or not path:
        raise UsageError(f"it is {text!r}", "--evaluation", "give NAME=PATH, mmlu=evaluation/mmlu")
    folder, patterns = folder_and_patterns([path], "**/*")
    return {"name": name, "path": str(folder), "files": patterns}


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

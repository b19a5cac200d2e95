"""dedup explain and show: why documents went as duplicates, and which proposer finds them."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline_assets.commands.dedup_options import (
    RECALL,
    Bands,
    Bits,
    MaxDistance,
    Permutations,
    Proposer,
    Threshold,
    check_bands,
    similarity_of,
)
from pipeline_assets.commands.terminal import IN_ONE_LINE, VISIBLE, AsJson, Root, existing_root

if TYPE_CHECKING:
    from pipeline_assets.corpus.dedup.decision import Decision, DocumentGroup
    from pipeline_assets.corpus.dedup.recipe import Banding, Distance
    from pipeline_assets.corpus.spine.lineage import Lineage

app = typer.Typer()
dedup_app = typer.Typer(
    help="Why documents went as duplicates, and which bands find them.",
    epilog="Example: corpusmill dedup explain --threshold 0.8",
)
app.add_typer(dedup_app, name="dedup", no_args_is_help=True)
_SHOWN_CHARACTERS = 300
_SHOWN_GONE = 5


@dedup_app.command("explain", epilog="Example: corpusmill dedup explain --threshold 0.8 --permutations 128")
def explain(
    threshold: Threshold = "0.7",
    permutations: Permutations = 112,
    bands: Bands = None,
    proposer: Proposer = "minhash",
    bits: Bits = 256,
    max_distance: MaxDistance = None,
    recall: Annotated[float, typer.Option(min=0, max=1, help="Of pairs at the threshold, how many to find.")] = RECALL,
    as_json: AsJson = False,
) -> None:
    """Show how likely a pair is found, by its similarity, and recommend bands, or a distance of sketches."""
    at = similarity_of(threshold)
    best: Banding | Distance
    shown: Sequence[Banding | Distance]
    if proposer == "faiss":
        best, shown = _distances(at, recall, bits, max_distance)
    else:
        best, shown = _bandings(at, recall, permutations, bands)
    curves = {one: {step / 20: one.proposes(step / 20) for step in range(2, 21)} for one in shown}
    if as_json:
        rows = [{**vars(one), "at_threshold": one.proposes(at), "curve": curve} for one, curve in curves.items()]
        typer.echo(json.dumps({"threshold": at, "recommended": vars(best), "ways": rows}, indent=1))
        return
    for one, curve in curves.items():
        word = " (recommended)" if one == best else ""
        typer.echo(f"{one}{word}: {one.proposes(at):.1%} of pairs at {at:g}")
        for similarity, probability in curve.items():
            mark = " ← threshold" if similarity == math.floor(at * 20) / 20 else ""
            typer.echo(f"  {similarity:.2f}  {probability:7.2%}  {'█' * round(40 * probability)}{mark}")
    typer.echo("what is found is compared by its text: a proposer misses duplicates, it never makes one")


def _bandings(at: float, recall: float, permutations: int, bands: int | None) -> tuple["Banding", list["Banding"]]:
    """The recommended bands, and those to be shown."""
    from pipeline_assets.corpus.dedup.recipe import Banding, recommended

    best = recommended(permutations, at, recall)
    if bands is not None:
        check_bands(bands, permutations)
    shown = {best, Banding(bands, permutations // bands) if bands else best}
    return best, sorted(shown, key=lambda banding: banding.rows)


def _distances(at: float, recall: float, bits: int, max_distance: int | None) -> tuple["Distance", list["Distance"]]:
    """The recommended distance, and those to be shown."""
    from pipeline_assets.corpus.dedup.recipe import Distance, smallest_distance

    best = smallest_distance(bits, at, recall)
    shown = {best, best if max_distance is None else Distance(bits, max_distance)}
    return best, sorted(shown, key=lambda distance: distance.max_distance)


@dedup_app.command("show", epilog="Example: corpusmill dedup show wikipedia:en:12 --data out")
def show(
    doc_id: Annotated[str, typer.Argument(help="Id of a document, kept or gone.")],
    data: Root = Path("data"),
    every: Annotated[bool, typer.Option("--all", help=f"All that went, not the first {_SHOWN_GONE}.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a document beside its duplicates, word by word. Exit status 1: no deduplicated corpus has it."""
    from pipeline_assets.corpus.dedup.decision import groups_of
    from pipeline_assets.corpus.spine.lineage import Lineage

    lineage = Lineage(existing_root(data))
    groups = list(groups_of(lineage, doc_id))
    if as_json:
        typer.echo(json.dumps([_group_json(group) for group in groups], indent=1, ensure_ascii=False))
    elif not groups:
        typer.echo(f"no deduplicated corpus below {data} has a document {doc_id!r}", err=True)
    for group in [] if as_json else groups:
        for line in _group_lines(lineage, group, doc_id, every):
            typer.echo(line)
    raise typer.Exit(0 if groups else 1)


def _group_json(group: "DocumentGroup") -> dict[str, Any]:
    import msgspec

    gone = [member.decision for member in group.gone]
    kept = {"doc_id": group.kept_id} if group.kept is None else msgspec.to_builtins(group.kept.decision)
    kept_in = None if group.kept is None else str(group.kept.corpus.folder)
    members = {"kept": kept, "gone": msgspec.to_builtins(gone)}
    return {"folder": str(group.corpus.folder), "kept_in": kept_in, "seen_in": group.seen_in, **members}


def _group_lines(lineage: "Lineage", group: "DocumentGroup", doc_id: str, every: bool) -> Iterator[str]:
    from pipeline_assets.corpus.dedup.decision import document_of, word_diff

    yield f"{group.corpus.folder}: {1 + len(group.gone):,} documents, one stays"
    kept = None
    if group.kept is None:
        gone = f"its corpus is not below {lineage.root}"
        yield f"kept  {group.kept_id}  (seen before, in the store {group.seen_in}; {gone})"
    else:
        kept = document_of(lineage, group.kept).text
        seen = f"  (seen before, in {group.kept.corpus.folder})" if group.seen_in is not None else ""
        yield f"kept  {_place(group.kept.decision)}{seen}"
        yield _beginning(kept)
    asked_first = sorted(group.gone, key=lambda member: member.decision.doc_id != doc_id)
    shown = asked_first if every else asked_first[:_SHOWN_GONE]
    for member in shown:
        one, text = member.decision, document_of(lineage, member).text
        yield f"{one.decision.replace('_', ' ')}  {_place(one)}"
        yield f"  similarity {one.similarity:.4f}, {one.containment:.1%} of its shingles are in the one that stays"
        if one.copy_of is not None and one.copy_of != group.kept_id:
            yield f"  the same words as {one.copy_of}"
        yield _beginning(text) if kept is None else "  " + " ".join(word_diff(kept, text)).translate(VISIBLE)
    if len(shown) < len(asked_first):
        yield f"and {len(asked_first) - len(shown):,} more (--all)"


def _beginning(text: str) -> str:
    return f"  {text[:_SHOWN_CHARACTERS].translate(IN_ONE_LINE)}"


def _place(decision: "Decision") -> str:
    return f"{decision.doc_id}  ({decision.source} {decision.shard} row {decision.row:,})"

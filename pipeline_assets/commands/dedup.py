"""stage-a dedup, stage-a signatures; dedup explain and show: which documents are duplicates, and why."""

import dataclasses
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipeline_assets.commands.building import Flags, MemoryMib, OutFolder, Place, SealedInputs, sealed_folders
from pipeline_assets.commands.sections import NAMES, Content, Section, command
from pipeline_assets.commands.terminal import IN_ONE_LINE, VISIBLE, AsJson, Root, existing_root
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.dedup.decision import Decision, DocumentGroup
    from pipeline_assets.corpus.dedup.recipe import Banding, Distance, RemovalCaps
    from pipeline_assets.corpus.spine.artifact import Artifact
    from pipeline_assets.corpus.spine.lineage import Lineage

app = typer.Typer()
dedup_app = typer.Typer(
    help="Why documents went as duplicates, and which bands find them.",
    epilog="Example: corpusmill dedup explain --threshold 0.8",
)
app.add_typer(dedup_app, name="dedup", no_args_is_help=True)
stage_a_app = typer.Typer()
Proposer = Annotated[
    Literal["minhash", "faiss"],
    typer.Option(help="What proposes pairs: bands of MinHash, or faiss by binary sketches."),
]
_DEDUP = "corpus.dedup.recipe.DedupRecipe"
_CURVE = (
    "near.threshold",
    "near.minhash.permutations",
    "near.minhash.bands",
    "near.faiss.bits",
    "near.faiss.max_distance",
)
_RECALL = 0.95
_SHOWN_CHARACTERS = 300
_SHOWN_GONE = 5


@command(
    stage_a_app,
    "dedup",
    "stage-a dedup --input 'out/stage_a/filtered/*' --out-dir out/stage_a/deduplicated/all",
    {**NAMES, "dedup.near.faiss": "--proposer"},
)
def dedup(
    input: SealedInputs,
    out_dir: OutFolder,
    said: Annotated[Content, Section(_DEDUP)],
    capped: Annotated[Content, Section("corpus.dedup.recipe.RemovalCaps")],
    *,
    proposer: Proposer = "minhash",
    faiss_gpu: Annotated[
        int | None,
        typer.Option(min=0, envvar="CORPUSMILL_FAISS_GPU", help="GPU to search on; else the first, else CPU."),
    ] = None,
    seen: Annotated[
        list[str] | None, typer.Option(help="A signature store of what was seen before; repeatable.")
    ] = None,
    memory_mib: MemoryMib = 2048,
    flags: Flags,
) -> None:
    """Drop duplicates of normalised or filtered sources; their order says which is first."""
    from pipeline_assets.commands.given import dedup_target
    from pipeline_assets.corpus.dedup.recipe import DedupRecipe, RemovalCaps

    place = Place.at(out_dir)
    run = flags.run(place.root, memory_mib, faiss_gpu)
    near = said.pop("near")
    if said["mode"] != "exact":
        proposed = _proposed(near, proposer)
        said["near"] = {"threshold": near["threshold"], "max_compared": near["max_compared"], proposer: proposed}
    recipe = DedupRecipe.of(said, "stage-a dedup")
    caps = RemovalCaps.of(capped, "--max-removed") if capped else None
    folders = sealed_folders(input)
    target = dedup_target(folders, place.below, recipe, sealed_folders(seen or ()))
    place.warn_of_other_roots(folders)
    corpus = place.build(dataclasses.replace(target, demand=caps), run)
    for line in _result_lines(corpus):
        typer.echo(line)
    if caps is None:
        target.refuse_failed(run.root)
    else:
        verdict = caps.judge(corpus.manifest)
        lines = [f"removals within the cap: yes: {verdict.because}"] if verdict.holds else _above(corpus, caps, out_dir)
        typer.echo("\n".join(lines), err=True)
        raise typer.Exit(0 if verdict.holds else 1)


@command(
    stage_a_app,
    "signatures",
    "stage-a signatures --input out/stage_a/deduplicated/all --out-dir out/stage_a/signatures/all",
)
def signatures(
    input: Annotated[Path, typer.Option(help="A deduplicated corpus.")],
    out_dir: Annotated[Path, typer.Option(help="Folder of the store that is made.")],
    *,
    memory_mib: MemoryMib = 2048,
    flags: Flags,
) -> None:
    """Keep what later corpora are compared by, so that they are deduplicated against this one: see `dedup --seen`."""
    from pipeline_assets.commands.given import signatures_target

    place = Place.at(out_dir)
    run = flags.run(place.root, memory_mib)
    target = signatures_target(input, place.below)
    store = place.build(target, run)
    target.refuse_failed(run.root)
    documents = store.manifest.identity.counts["documents"]
    typer.echo(f"{store.folder}\n  {store.manifest.digest}\n  {documents:,} documents")


def _proposed(near: Content, proposer: str) -> Content:
    """The section of a proposer: bands, or a distance, that aren't given are the recommended ones."""
    from pipeline_assets.corpus.dedup.recipe import recommended, smallest_distance

    similarity = _similarity_of(near["threshold"])
    sketch: Content = near[proposer]
    if proposer == "faiss":
        return {"max_distance": smallest_distance(sketch["bits"], similarity, _RECALL).max_distance} | sketch
    permutations = sketch["permutations"]
    bands = sketch.get("bands") or recommended(permutations, similarity, _RECALL).bands
    _check_bands(bands, permutations)
    return sketch | {"bands": bands, "rows": max(permutations // bands, 1)}


def _check_bands(bands: int, permutations: int) -> None:
    """
    Raises:
        UsageError: some permutations are left over.
    """
    if permutations % bands:
        raise UsageError(f"{bands} bands leave some of {permutations} permutations over", "--bands", "choose a divisor")


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


def _result_lines(corpus: "Artifact") -> Iterator[str]:
    """Where it is, its digest, and what became of each source."""
    counts = corpus.manifest.identity.counts
    yield f"{corpus.folder}\n  {corpus.manifest.digest}"
    width = max(map(len, counts["by_source"]))
    for source, one in counts["by_source"].items():
        gone = f"{one['exact_duplicate']:,} exact, {one['near_duplicate']:,} near duplicates"
        seen = f" ({one['of_seen']:,} of them seen before)" if one["of_seen"] else ""
        rejected = f", {one['rejected']:,} rejected" if one["rejected"] else ""
        yield f"  {source:{width}}  {one['in']:,} documents = {one['out']:,} kept + {gone}{seen}{rejected}"
    for what in ("buckets", "documents"):
        if capped := counts["comparisons"].get(f"capped_{what}"):
            yield f"  {capped:,} {what} had too many to compare all (--max-compared)"


def _above(corpus: "Artifact", caps: "RemovalCaps", out_dir: Path) -> Iterator[str]:
    """The sources of which too much went, each with a document to look at."""
    from pipeline_assets.corpus.dedup.decision import read_decisions
    from pipeline_assets.corpus.spine.lineage import root_of

    yield "removals within the cap: NO"
    above = []
    at = ["--data", str(root)] if (root := root_of(out_dir)) else []
    for source, counts in corpus.manifest.identity.counts["by_source"].items():
        gone, documents, cap = counts["exact_duplicate"] + counts["near_duplicate"], counts["in"], caps.cap(source)
        if gone > cap * documents:
            above.append(source)
            decisions = read_decisions(corpus)
            first = next(one.doc_id for one in decisions if one.source == source and one.duplicate_of is not None)
            share = f"{gone / documents:.1%}, MORE THAN {float(cap):.1%}"
            yield f"  {source}: {gone:,} of {documents:,} documents went ({share})"
            yield f"    to look at the first: {shlex.join(['corpusmill', 'dedup', 'show', first, *at])}"
    fix = "raise --max-removed if that is how it is, or change other options and add --replace"
    yield f"{out_dir} is built and stays, with more of {', '.join(above)} gone than --max-removed allows: {fix}"


@command(dedup_app, "explain", "dedup explain --threshold 0.8 --permutations 128")
def explain(
    said: Annotated[Content, Section(_DEDUP, _CURVE)],
    proposer: Proposer = "minhash",
    recall: Annotated[float, typer.Option(min=0, max=1, help="Of pairs at the threshold, how many to find.")] = _RECALL,
    as_json: AsJson = False,
) -> None:
    """Show how likely a pair is found, by its similarity, and recommend bands, or a distance of sketches."""
    near = said["near"]
    at = _similarity_of(near["threshold"])
    best: Banding | Distance
    shown: Sequence[Banding | Distance]
    if proposer == "faiss":
        best, shown = _distances(at, recall, near["faiss"]["bits"], near["faiss"].get("max_distance"))
    else:
        best, shown = _bandings(at, recall, near["minhash"]["permutations"], near["minhash"].get("bands"))
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
        _check_bands(bands, permutations)
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

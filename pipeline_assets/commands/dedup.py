"""stage-a dedup, and what there is to ask of it: dedup explain, dedup show."""

import json
import math
import shlex
import sys
from collections.abc import Iterator
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
from pipeline_assets.commands.terminal import IN_ONE_LINE, VISIBLE, AsJson, Root, existing_root, going_on
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.dedup.decision import Decision
    from pipeline_assets.corpus.dedup.group import Group
    from pipeline_assets.corpus.spine.artifact import Artifact

stage_app = typer.Typer()
app = typer.Typer()
dedup_app = typer.Typer(
    help="Why documents went as duplicates, and which bands find them.",
    epilog="Example: corpusmill dedup explain --threshold 0.8",
)
app.add_typer(dedup_app, name="dedup", no_args_is_help=True)
Threshold = Annotated[str, typer.Option(help="Jaccard similarity from which on two are duplicates.")]
Permutations = Annotated[int, typer.Option(min=1, help="Numbers in a signature: bands times rows.")]
Bands = Annotated[int | None, typer.Option(min=1, help="Default: what `dedup explain` recommends.")]
_SHOWN_CHARACTERS = 300
_SHOWN_GONE = 5
_RECALL = 0.95


@stage_app.command(
    "dedup",
    epilog="Example: corpusmill stage-a dedup --input 'out/stage_a/filtered/*' --out-dir out/stage_a/deduplicated/all",
)
def dedup(
    input: SealedInputs,
    out_dir: Annotated[Path, typer.Option(help="Folder of what is made.")],
    mode: Annotated[str, typer.Option(help="exact, near or both.")] = "both",
    scope: Annotated[str, typer.Option(help="global or per-source.")] = "global",
    near_selection: Annotated[str, typer.Option(help="Which stays: first, longest or quality.")] = "first",
    quality_column: Annotated[str | None, typer.Option(help="A number in the documents' meta.")] = None,
    threshold: Threshold = "0.7",
    shingle_words: Annotated[int, typer.Option(min=1, help="Words in a shingle.")] = 5,
    permutations: Permutations = 112,
    bands: Bands = None,
    max_compared: Annotated[int, typer.Option(min=1, help="In a bucket each is compared to so many.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the permutations.")] = 1,
    max_removed: Annotated[
        str | None, typer.Option(help="Fraction of a source that may go; more exits with 1.")
    ] = None,
    memory_mib: Annotated[
        int, typer.Option(min=1, envvar="CORPUSMILL_MEMORY_MIB", help="What all processes may take; the rest spills.")
    ] = 2048,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
) -> None:
    """Drop duplicates of normalised or filtered sources; their order says which is first."""
    from pipeline_assets.corpus.dedup.recipe import DedupRecipe
    from pipeline_assets.corpus.dedup.removal_caps import RemovalCaps, removals_within_caps
    from pipeline_assets.corpus.recipes.kind import RunSettings
    from pipeline_assets.corpus.recipes.stage_a_given import dedup_target
    from pipeline_assets.corpus.recipes.systems import KINDS
    from pipeline_assets.corpus.spine.engine import EngineSettings

    prepare(log_every, verbose)
    content: dict[str, Any] = {"mode": mode, "scope": scope, "selection": near_selection}
    content["quality_column"] = quality_column
    if mode != "exact":
        minhash = _minhash(threshold, permutations, bands) | {"shingle_words": shingle_words, "seed": seed}
        content["near"] = {"threshold": threshold, "max_compared": max_compared, "minhash": minhash}
    recipe = DedupRecipe.of(content, "stage-a dedup")
    caps = None if max_removed is None else RemovalCaps.of({"every_source": max_removed}, "--max-removed")
    target = dedup_target(sealed_folders(input), out_dir.name, recipe)
    settings = RunSettings(EngineSettings(cpu_threads, log_every_s=log_every), memory_bytes=memory_mib << 20)
    with going_on(shlex.join(["corpusmill", *sys.argv[1:]])):
        corpus = KINDS[target.kind].build(target, out_dir.absolute().parent, replace, settings)
    for line in _lines(corpus):
        typer.echo(line)
    if caps is not None:
        verdict = removals_within_caps(corpus, caps)
        typer.echo(f"removals within the cap: {'yes' if verdict.holds else 'NO'}: {verdict.because}", err=True)
        raise typer.Exit(0 if verdict.holds else 1)


def _minhash(threshold: str, permutations: int, bands: int | None) -> dict[str, int]:
    from pipeline_assets.corpus.dedup.s_curve import recommended

    if bands is None:
        bands = recommended(permutations, _similarity(threshold), _RECALL).bands
    return {"permutations": permutations, "bands": bands, "rows": max(permutations // bands, 1)}


def _similarity(threshold: str) -> float:
    try:
        similarity = float(threshold)
    except ValueError:
        similarity = 0.0
    if not 0 < similarity <= 1:
        raise UsageError(f"it is {threshold!r}", "--threshold", "give a number above 0, and 1 at most")
    return similarity


def _lines(corpus: "Artifact") -> Iterator[str]:
    counts = corpus.manifest.identity.counts
    yield f"{corpus.folder}\n  {corpus.manifest.digest}"
    width = max(map(len, counts["by_source"]))
    for source, one in counts["by_source"].items():
        gone = f"{one['exact_duplicate']:,} exact, {one['near_duplicate']:,} near duplicates"
        rejected = f", {one['rejected']:,} rejected" if one["rejected"] else ""
        yield f"  {source:{width}}  {one['in']:,} documents = {one['out']:,} kept + {gone}{rejected}"
    if counts["comparisons"].get("capped_buckets"):
        yield f"  {counts['comparisons']['capped_buckets']:,} buckets were too large to compare all (--max-compared)"


@dedup_app.command("explain", epilog="Example: corpusmill dedup explain --threshold 0.8 --permutations 128")
def explain(
    threshold: Threshold = "0.7",
    permutations: Permutations = 112,
    bands: Bands = None,
    recall: Annotated[float, typer.Option(min=0, max=1, help="Of pairs at the threshold, how many to find.")] = _RECALL,
    as_json: AsJson = False,
) -> None:
    """Show how likely bands find a pair, by its similarity, and recommend bands."""
    from pipeline_assets.corpus.dedup.s_curve import Banding, recommended

    at = _similarity(threshold)
    best = recommended(permutations, at, recall)
    if bands is not None and permutations % bands:
        raise UsageError(f"{bands} bands leave some of {permutations} permutations over", "--bands", "choose a divisor")
    shown = {best, Banding(bands, permutations // bands) if bands else best}
    curve = {
        banding: {step / 20: banding.proposes(step / 20) for step in range(2, 21)}
        for banding in sorted(shown, key=lambda banding: banding.rows)
    }
    if as_json:
        rows = [{**vars(banding), "at_threshold": banding.proposes(at), "curve": curve[banding]} for banding in curve]
        typer.echo(json.dumps({"threshold": at, "recommended": vars(best), "bandings": rows}, indent=1))
        return
    for banding, points in curve.items():
        word = " (recommended)" if banding == best else ""
        typer.echo(f"{banding.bands} bands of {banding.rows} rows{word}: {banding.proposes(at):.1%} of pairs at {at:g}")
        for similarity, probability in points.items():
            mark = " ← threshold" if similarity == math.floor(at * 20) / 20 else ""
            typer.echo(f"  {similarity:.2f}  {probability:7.2%}  {'█' * round(40 * probability)}{mark}")
    typer.echo("what is found is compared by its text: bands miss duplicates, they never make one")


@dedup_app.command("show", epilog="Example: corpusmill dedup show wikipedia:en:12 --data out")
def show(
    doc_id: Annotated[str, typer.Argument(help="Id of a document, kept or gone.")],
    data: Root = Path("data"),
    every: Annotated[bool, typer.Option("--all", help=f"All that went, not the first {_SHOWN_GONE}.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a document beside its duplicates, word by word. Exit status 1: no deduplicated corpus has it."""
    from pipeline_assets.corpus.dedup.group import groups_of

    root = existing_root(data)
    groups = list(groups_of(root, doc_id))
    if as_json:
        typer.echo(json.dumps([_group_json(group) for group in groups], indent=1, ensure_ascii=False))
    elif not groups:
        typer.echo(f"no deduplicated corpus below {root} has a document {doc_id!r}", err=True)
    for group in [] if as_json else groups:
        for line in _group_lines(root, group, doc_id, every):
            typer.echo(line)
    raise typer.Exit(0 if groups else 1)


@dedup_app.command(
    "rethreshold",
    epilog="Example: corpusmill dedup rethreshold out/stage_a/deduplicated/all --threshold 0.8 --out-dir out/at_80",
)
def rethreshold(
    folder: Annotated[Path, typer.Argument(help="Folder of a deduplicated corpus.")],
    threshold: Annotated[str, typer.Option(help="At its own or above.")],
    out_dir: Annotated[Path, typer.Option(help="Folder of what is made.")],
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
) -> None:
    """Deduplicate at a higher threshold from the edges that are there: no text is compared again."""
    from pipeline_assets.corpus.dedup.recipe import DedupRecipe
    from pipeline_assets.corpus.dedup.rethreshold import raised
    from pipeline_assets.corpus.dedup.rethreshold import rethreshold as from_edges
    from pipeline_assets.corpus.dedup.settings import DedupSettings
    from pipeline_assets.corpus.recipes.stage_a_given import dedup_target
    from pipeline_assets.corpus.spine.artifact import open_artifact, sealed_manifest
    from pipeline_assets.corpus.spine.engine import EngineSettings
    from pipeline_assets.corpus.spine.lineage import locate, root_of

    prepare(log_every, verbose)
    _similarity(threshold)
    corpus = open_artifact(folder, sealed_manifest(folder).digest)
    if "dedup" not in corpus.manifest.identity.recipe:
        raise UsageError(f"this is a {corpus.manifest.kind}", folder, "give a folder that stage-a dedup made")
    recipe = raised(DedupRecipe.from_content(corpus.manifest.identity.recipe["dedup"]), threshold, folder)
    inputs = corpus.manifest.identity.upstream
    sources = [locate(root_of(folder) or folder.parent, entry["digest"]) for entry in inputs]
    target = dedup_target([source.folder for source in sources], out_dir.name, recipe)
    names = corpus.manifest.identity.recipe["sources"]
    settings = DedupSettings(EngineSettings(cpu_threads, log_every_s=log_every))
    with going_on(shlex.join(["corpusmill", *sys.argv[1:]])):
        made = target.build(
            out_dir.absolute().parent,
            lambda building: from_edges(building, corpus, dict(zip(names, sources, strict=True)), recipe, settings),
            replace,
            {"workers": cpu_threads},
        )
    for line in _lines(made):
        typer.echo(line)


def _group_json(group: "Group") -> dict[str, Any]:
    import msgspec

    members = {"kept": msgspec.to_builtins(group.kept), "gone": msgspec.to_builtins(group.gone)}
    return {"folder": str(group.corpus.folder), **members}


def _group_lines(root: Path, group: "Group", doc_id: str, every: bool) -> Iterator[str]:
    from pipeline_assets.corpus.dedup.group import document_of, word_diff

    kept = document_of(root, group.corpus, group.kept)
    yield f"{group.corpus.folder}: {1 + len(group.gone):,} documents, one stays"
    yield f"kept  {_place(group.kept)}"
    yield f"  {kept.text[:_SHOWN_CHARACTERS].translate(IN_ONE_LINE)}"
    asked_first = sorted(group.gone, key=lambda one: one.doc_id != doc_id)
    shown = asked_first if every else asked_first[:_SHOWN_GONE]
    for one in shown:
        yield f"{one.decision.replace('_', ' ')}  {_place(one)}"
        yield f"  similarity {one.similarity:.4f}, {one.containment:.1%} of its shingles are in the one that stays"
        if one.copy_of is not None and one.copy_of != group.kept.doc_id:
            yield f"  the same words as {one.copy_of}"
        yield "  " + "".join(word_diff(kept.text, document_of(root, group.corpus, one).text)).translate(VISIBLE)
    if len(shown) < len(asked_first):
        yield f"and {len(asked_first) - len(shown):,} more (--all)"


def _place(decision: "Decision") -> str:
    return f"{decision.doc_id}  ({decision.source} {decision.shard} row {decision.row:,})"

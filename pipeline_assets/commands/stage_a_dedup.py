"""stage-a dedup and stage-a signatures: duplicates are dropped, what stays is remembered for later corpora."""

import dataclasses
import shlex
from collections.abc import Iterator
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
from pipeline_assets.commands.dedup_options import (
    RECALL,
    Bands,
    Bits,
    MaxDistance,
    MemoryMib,
    Permutations,
    Proposer,
    Threshold,
    check_bands,
    result_lines,
    similarity_of,
)
from pipeline_assets.commands.terminal import as_typed, going_on
from pipeline_assets.commands.wrong_use import naming_options
from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.dedup.recipe import RemovalCaps
    from pipeline_assets.corpus.spine.artifact import Artifact

app = typer.Typer()


@app.command(
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
    proposer: Proposer = "minhash",
    bits: Bits = 256,
    max_distance: MaxDistance = None,
    faiss_gpu: Annotated[
        int | None,
        typer.Option(min=0, envvar="CORPUSMILL_FAISS_GPU", help="GPU to search on; else the first, else CPU."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the permutations.")] = 1,
    max_removed: Annotated[
        str | None,
        typer.Option(
            help="Fraction of a source that may go. If more does, the corpus is kept and the exit status is 1."
        ),
    ] = None,
    seen: Annotated[
        list[str] | None, typer.Option(help="A signature store of what was seen before; repeatable.")
    ] = None,
    memory_mib: MemoryMib = 2048,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
) -> None:
    """Drop duplicates of normalised or filtered sources; their order says which is first."""
    from pipeline_assets.corpus.dedup.recipe import DedupRecipe, RemovalCaps
    from pipeline_assets.corpus.recipes.stage_a_given import dedup_target
    from pipeline_assets.corpus.spine.lineage import root_of
    from pipeline_assets.launch import build_one

    place = place_for(out_dir)
    run = prepare(place.parent, cpu_threads, log_every, verbose, replace, memory_mib, faiss_gpu)
    if (near_selection == "quality") != (quality_column is not None):
        what = "--quality-column goes with --near-selection quality, and only with it"
        raise UsageError(what, "stage-a dedup", "give both or none")
    content: dict[str, Any] = {"mode": mode, "scope": scope, "selection": near_selection}
    content["quality_column"] = quality_column
    if mode != "exact":
        sketch = (
            _minhash(threshold, permutations, bands)
            if proposer == "minhash"
            else _sketch(threshold, bits, max_distance)
        )
        section = {proposer: sketch | {"shingle_words": shingle_words, "seed": seed}}
        content["near"] = {"threshold": threshold, "max_compared": max_compared, **section}
    with naming_options():
        recipe = DedupRecipe.of(content, "stage-a dedup")
        caps = None if max_removed is None else RemovalCaps.of({"every_source": max_removed}, "--max-removed")
        folders = sealed_folders(input)
        target = dedup_target(folders, out_dir.name, recipe, sealed_folders(seen or ()))
    warn_of_other_roots(folders, place)
    capped = dataclasses.replace(target, demand=caps)
    with going_on(as_typed()), naming_options():
        corpus = build_one(capped, run, root_of(place)).artifact
    for line in result_lines(corpus):
        typer.echo(line)
    if caps is None:
        target.refuse_failed(run.root)
    else:
        verdict = caps.judge(corpus.manifest)
        lines = [f"removals within the cap: yes: {verdict.because}"] if verdict.holds else _above(corpus, caps, out_dir)
        typer.echo("\n".join(lines), err=True)
        raise typer.Exit(0 if verdict.holds else 1)


@app.command(
    "signatures",
    epilog="Example: corpusmill stage-a signatures --input out/stage_a/deduplicated/all "
    "--out-dir out/stage_a/signatures/all",
)
def signatures(
    input: Annotated[Path, typer.Option(help="A deduplicated corpus.")],
    out_dir: Annotated[Path, typer.Option(help="Folder of the store that is made.")],
    memory_mib: MemoryMib = 2048,
    cpu_threads: Threads = THREADS,
    log_every: LogEvery = LOG_EVERY_S,
    verbose: Verbose = False,
    replace: Replace = False,
) -> None:
    """Keep what later corpora are compared by, so that they are deduplicated against this one: see `dedup --seen`."""
    from pipeline_assets.corpus.recipes.stage_a_given import signatures_target
    from pipeline_assets.corpus.spine.lineage import root_of
    from pipeline_assets.launch import build_one

    place = place_for(out_dir)
    run = prepare(place.parent, cpu_threads, log_every, verbose, replace, memory_mib)
    target = signatures_target(input, out_dir.name)
    with going_on(as_typed()), naming_options():
        store = build_one(target, run, root_of(place)).artifact
        target.refuse_failed(run.root)
    typer.echo(
        f"{store.folder}\n  {store.manifest.digest}\n  {store.manifest.identity.counts['documents']:,} documents"
    )


def _minhash(threshold: str, permutations: int, bands: int | None) -> dict[str, int]:
    from pipeline_assets.corpus.dedup.recipe import recommended

    if bands is None:
        bands = recommended(permutations, similarity_of(threshold), RECALL).bands
    check_bands(bands, permutations)
    return {"permutations": permutations, "bands": bands, "rows": max(permutations // bands, 1)}


def _sketch(threshold: str, bits: int, max_distance: int | None) -> dict[str, int]:
    from pipeline_assets.corpus.dedup.recipe import smallest_distance

    if max_distance is None:
        max_distance = smallest_distance(bits, similarity_of(threshold), RECALL).max_distance
    return {"bits": bits, "max_distance": max_distance}


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

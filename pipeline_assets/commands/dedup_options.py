"""Options that commands about duplicates share, and what they print of a deduplicated corpus."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline_assets.corpus.spine.errors import UsageError

if TYPE_CHECKING:
    from pipeline_assets.corpus.spine.artifact import Artifact

Threshold = Annotated[str, typer.Option(help="Jaccard similarity from which on two are duplicates.")]
Permutations = Annotated[int, typer.Option(min=1, help="Numbers in a signature: bands times rows.")]
Proposer = Annotated[
    Literal["minhash", "faiss"],
    typer.Option(help="What proposes pairs: bands of MinHash, or faiss by binary sketches."),
]
Bits = Annotated[int, typer.Option(min=8, help="Bits of a sketch, of faiss.")]
MaxDistance = Annotated[
    int | None, typer.Option(min=0, help="Bits that may differ, of faiss. Default: what `dedup explain` recommends.")
]
Bands = Annotated[int | None, typer.Option(min=1, help="Default: what `dedup explain` recommends.")]
MemoryMib = Annotated[
    int,
    typer.Option(min=1, envvar="CORPUSMILL_MEMORY_MIB", help="What data may take, of all processes; the rest spills."),
]
RECALL = 0.95


def check_bands(bands: int, permutations: int) -> None:
    """
    Raises:
        UsageError: some permutations are left over.
    """
    if permutations % bands:
        raise UsageError(f"{bands} bands leave some of {permutations} permutations over", "--bands", "choose a divisor")


def similarity_of(threshold: str) -> float:
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


def result_lines(corpus: "Artifact") -> Iterator[str]:
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

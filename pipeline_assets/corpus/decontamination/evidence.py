"""What decontamination did: a line for each document that it dropped or cut, in a file, and in numbers."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, read_structs
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.manifest import StageVersion

DECONTAMINATION_STAGE = StageVersion("decontaminate", 1)
CONTAMINATED_FILE = f"contaminated{SUFFIX}"


class ContaminatedLine(msgspec.Struct, frozen=True):
    """A contaminated document, and its place in the corpus that was decontaminated.

    Attributes:
        action: what became of it.
        reason: `contaminated`; `few_words_left` of a document that is dropped as cutting leaves too little of it.
        evaluation_set, item: the item of whose n-grams it holds most, as a fraction; the first of several.
        overlap: that fraction, `shared_ngrams` of `item_ngrams`.
        items: how many items contaminate it, by evaluation set; one that has the same words as another counts too.
        spans: characters of its text, from and to: what is cut out of it, or would have been, or the matching words of
            a document that the recipe drops.
        excerpt: where the item is first found in it.
        shard: in the source's own artifact, or in that of all sources where they were deduplicated.
    """

    doc_id: str
    action: Literal["dropped", "cut"]
    reason: str
    evaluation_set: str
    item: str
    overlap: float
    shared_ngrams: int
    item_ngrams: int
    items: dict[str, int]
    spans: list[tuple[int, int]]
    excerpt: str
    source: str
    shard: str
    row: int

    def __str__(self) -> str:
        every = ", ".join(f"{count:,} of {name}" for name, count in self.items.items())
        ngrams = f"{self.shared_ngrams:,} of its {self.item_ngrams:,} n-grams"
        return f"{self.evaluation_set} {self.item}: {ngrams}; items in all: {every}"


_decoder = msgspec.json.Decoder(ContaminatedLine)


def read_contaminated(decontaminated: Artifact) -> Iterator[ContaminatedLine]:
    """What was found, in the order of the corpus."""
    yield from read_structs(decontaminated.path(CONTAMINATED_FILE), _decoder)


def evidence_on(decontaminated: Artifact, doc_id: str) -> ContaminatedLine | None:
    """What was found in a document; None if nothing was, or it wasn't there."""
    return next((line for line in read_contaminated(decontaminated) if line.doc_id == doc_id), None)


_SAMPLES = 3  # of each evaluation set


@dataclass(frozen=True)
class Summary:
    """What became of all sources.

    Attributes:
        by_set: of each evaluation set `items`, `too_short`, …, and `contaminated_documents`, by its items; one that
            holds items of several sets counts in each.
        by_source: documents of each source: `in`, `out`, `dropped`, `cut`.
        samples: the first documents that each evaluation set contaminates, in the order of the corpus.
    """

    by_set: Mapping[str, Mapping[str, int]]
    by_source: Mapping[str, Mapping[str, int]]
    samples: Sequence[ContaminatedLine]


def summary_of(decontaminated: Artifact) -> Summary:
    """The counts of its manifest, and samples of what it found."""
    counts = decontaminated.manifest.identity.counts
    shown = Counter[str]()
    samples = []
    for line in read_contaminated(decontaminated):
        if any(shown[name] < _SAMPLES for name in line.items):
            samples.append(line)
            shown.update(line.items.keys())
    return Summary(counts["evaluation"], counts["by_source"], samples)

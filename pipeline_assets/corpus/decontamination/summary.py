"""What decontamination made of a corpus, in numbers and samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline_assets.corpus.decontamination.evidence import ContaminatedLine, read_contaminated
from pipeline_assets.corpus.spine.artifact import Artifact

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

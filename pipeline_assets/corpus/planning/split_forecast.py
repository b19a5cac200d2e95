"""What a Megatron split will hold and cost, from what its corpus holds or will hold: tokens, whether they meet the
budget, and the files.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from pipeline_assets.corpus.megatron_recipe import MegatronRecipe
from pipeline_assets.corpus.planning.estimate import Estimate, exactly, total
from pipeline_assets.corpus.planning.memory import split_memory
from pipeline_assets.corpus.planning.rates import SCANNED_TO_ENCODED, Rates, at_work
from pipeline_assets.corpus.planning.track_record import TrackRecord
from pipeline_assets.corpus.sampling.split import Split, split_budget
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.manifest import FileContent, Manifest

Outlook = Literal["met", "likely met", "likely short", "short"]
# UTF-8 bytes to an o200k token: 4.81 in FineWeb-Edu, 4.63 in FineWeb, 4.4 in Python's documentation, 3.8 in manuals of
# interfaces; of other languages Japanese 3.8.
_ENGLISH = (3.7, 4.8, 5.0)
_ANY_LANGUAGE = (2.5, 4.5, 5.2)
_LENGTHS_VARY = 4.0  # mean squared length of a text to its squared mean: 1.5 and 3.1 in FineWeb-Edu and FineWeb
_LONG = 3  # tokens of a long document to bytes of a mean one
_PREFIX_VARIES = (0.85, 1.15)  # the first documents may be longer than the rest, or shorter
_ROW_BYTES = (22, 27, 42)  # of a document in documents.parquet: an id is mostly noise
_SCHEMA_BYTES = Estimate(1800, 3500, 5500, "")
_INDEX_BYTES = 20
_AHEAD = 8  # shards that two workers may have finished behind the one that fills the budget


@dataclass(frozen=True)
class CorpusFigures:
    """What a split is made from: documents and their text, known or not, in shards of one size."""

    documents: Estimate
    text_bytes: Estimate
    shards: int


@dataclass(frozen=True)
class SplitForecast:
    """A split before it is built.

    Attributes:
        budget: tokens, at most.
        share: of the documents, by the hash of their ids.
        available: tokens that the corpus holds for this split.
    """

    split: Split
    corpus: CorpusFigures
    budget: int
    share: Estimate
    available: Estimate

    @property
    def outlook(self) -> Outlook:
        """Whether the corpus has enough for the budget."""
        if self.available.low >= self.budget:
            return "met"
        if self.available.high < self.budget:
            return "short"
        return "likely met" if self.available.likely >= self.budget else "likely short"

    @property
    def tokens(self) -> Estimate:
        """What is written; the first document that doesn't fit ends it, so a little less than the budget."""
        if self.available.high <= self.budget:
            return self.available.counted()
        a_document = _LONG * self.corpus.text_bytes.likely / max(self.corpus.documents.likely, 1)
        cut = self.available.at_most(self.budget)
        return Estimate(max(0.0, cut.low - a_document), cut.likely, cut.high, cut.basis).counted()

    @property
    def documents(self) -> Estimate:
        """As many as fit the budget."""
        own = self.corpus.documents.times(self.share)
        return own.times(self.written_share).at_most(own.high).counted()

    @property
    def written_share(self) -> Estimate:
        """Of the corpus, until the budget is full."""
        low, likely, high = (self.budget / max(tokens, 1.0) for tokens in reversed(self.available.bounds))
        if low >= 1:
            return exactly(1.0, self.available.basis)
        high = min(1.0, high * _PREFIX_VARIES[1])
        return Estimate(low * _PREFIX_VARIES[0], min(1.0, likely), high, self.available.basis)

    @property
    def read_share(self) -> Estimate:
        """Of the corpus: whole shards, and those that workers read ahead."""
        written, shards = self.written_share, max(self.corpus.shards, 1)
        likely = math.ceil(written.likely * shards) / shards
        return Estimate(written.low, likely, min(1.0, written.high + _AHEAD / shards), written.basis)

    def figures(self, rates: Rates, engine: EngineSettings, share_left: float = 1.0) -> dict[str, Estimate]:
        """What the manifest will have real numbers of, planned.

        Args:
            share_left: of the work, where shards were finished before.
        """
        documents, tokens, read = self.documents, self.tokens, self.read_share
        table = total([documents.times(Estimate(*_ROW_BYTES, "")), _SCHEMA_BYTES], "")
        index = documents.times(exactly(_INDEX_BYTES, ""))
        stored = total([tokens.times(exactly(4, "")), index, table], tokens.basis)
        encoded = self.available.times(read).times(exactly(4, ""))
        peak = total([stored, encoded, table, table], tokens.basis)
        text_bytes = self.corpus.text_bytes.likely * read.likely
        figures = {
            "rows": self.corpus.documents.times(read).counted(),
            "documents": documents,
            "tokens": tokens,
            "bytes": stored.counted(),
            "peak_disk_bytes": peak.counted(),
            "peak_memory_bytes": split_memory(engine, text_bytes),
        }
        work = share_left * _work_bytes(text_bytes, self.share.likely * text_bytes)
        seconds = work / (rates.encode * at_work(min(engine.workers, self.corpus.shards))) + stored.likely / rates.write
        return figures | {"build_seconds": rates.seconds(rates.start_s + seconds)}

    def work_done(self, documents: int, encoded_bytes: int) -> int:
        """Text to encode that would have taken as long as reading `documents` of the corpus and encoding a part."""
        read_bytes = self.corpus.text_bytes.likely * documents / max(self.corpus.documents.likely, 1)
        return round(_work_bytes(read_bytes, encoded_bytes))


def _work_bytes(read_bytes: float, encoded_bytes: float) -> float:
    return encoded_bytes + SCANNED_TO_ENCODED * max(0.0, read_bytes - encoded_bytes)


def forecast_sealed(
    snapshot: Manifest, shards: Sequence[FileContent], recipe: MegatronRecipe, split: Split, record: TrackRecord
) -> SplitForecast:
    """Of shards of a sealed snapshot."""
    ratio = bytes_per_token(record, snapshot.identity.recipe, recipe, snapshot.digest)
    return forecast_split(split, corpus_figures(snapshot, shards), recipe, ratio)


def corpus_figures(snapshot: Manifest, shards: Sequence[FileContent]) -> CorpusFigures:
    """Of shards of a sealed snapshot; where they aren't all of them, their text is told by their documents."""
    counts, documents = snapshot.identity.counts, sum(shard.rows for shard in shards)
    text_bytes = counts["text_bytes"] * documents / max(counts["documents"], 1)
    basis = "the sealed snapshot"
    return CorpusFigures(exactly(documents, basis), exactly(text_bytes, basis), len(shards))


def forecast_split(split: Split, corpus: CorpusFigures, recipe: MegatronRecipe, ratio: Estimate) -> SplitForecast:
    """
    Args:
        ratio: `bytes_per_token` of the corpus.
    """
    fraction = float(Fraction(recipe.valid_fraction))
    fraction = fraction if split == "valid" else 1 - fraction
    documents = max(fraction * corpus.documents.likely, 1)
    share = _by_chance(fraction, documents, 1.0)
    available = corpus.text_bytes.over(ratio).times(_by_chance(fraction, documents, _LENGTHS_VARY), ratio.basis)
    budget = split_budget(recipe.token_budget, recipe.valid_fraction, split)
    return SplitForecast(split, corpus, budget, share, available)


def _by_chance(fraction: float, documents: float, variance: float) -> Estimate:
    """What a fraction of documents, drawn one by one, may come to: two standard deviations to both sides."""
    off = 2 * ((1 - fraction) * variance / documents) ** 0.5
    return Estimate(fraction * max(0.0, 1 - off), fraction, min(1.0, fraction * (1 + off)), "")


def bytes_per_token(
    record: TrackRecord, snapshot: Mapping[str, Any], recipe: MegatronRecipe, snapshot_digest: str | None = None
) -> Estimate:
    """UTF-8 bytes to a token, the end of text counted: as measured here before, else as other texts had.

    Args:
        snapshot: its recipe, as in its identity.
        snapshot_digest: None where it isn't taken yet.
    """
    measured = record.bytes_per_token(snapshot["dataset"], recipe.tokenizer.sha256, snapshot_digest)
    if measured is not None:
        return measured
    low, likely, high = _ENGLISH if snapshot["language"] == "en" else _ANY_LANGUAGE
    return Estimate(low, likely, high, f"{likely} bytes a token, as other texts have")

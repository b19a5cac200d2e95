"""The report on scores: how likely the model finds completions, of each split and of all, and by what rows are.

Files: `report.json`; `report.html`, the same as one page with plots.
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.parquet import mask, numbers, truths
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.pool_report import CORRECTNESS, correctness_range, length_range
from pipeline_assets.corpus.pages import REPORT_JSON, write_page, write_report
from pipeline_assets.corpus.plots import score_bars, text_plot
from pipeline_assets.corpus.scoring.scores import ScoredSplit, places_by_name
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.files import REBUILD, OwnFile
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress

QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
BIN_EDGES = tuple(number / 10 for number in range(128))
SCORE_REPORT_STAGE = StageVersion("nemotron_score_report", 3)
_NUMBERS = ["nll_mean", "nll_sum", "completion_token_count", "completion_bytes"]
_COLUMNS = [*_NUMBERS, "id", "tokens", "truncated", "tokens_lost", "reason"]
_STANDING_OUT = 5  # rows on either side
_LARGEST_EXPONENT = 700  # exp of more is beyond floats
# By which column of the scores or the pools, the name of the group of a value, and what groups are ordered by.
_GROUPS: Mapping[str, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    "domains": ("meta_domain", lambda domain: domain or UNKNOWN, str),
    "correctness": ("meta_correctness", correctness_range, CORRECTNESS.index),
    "lengths": ("tokens", length_range, int),
}


class Likelihood(msgspec.Struct, frozen=True):
    """How likely the model finds the completions of rows with a score.

    Attributes:
        nll_sum: nats.
        nll: nll_sum / completion_tokens, nats a token; None without tokens.
        bits_per_byte: nll_sum / ln 2 / completion_bytes; None without bytes.
        perplexity: exp(nll); None where that is no finite number.
        quantiles: of `nll_mean`, exact: `QUANTILES`, between two ranks on the straight line; none without rows.
        bins: rows by `nll_mean` in nats a token: bin k from `BIN_EDGES[k]` on, the last with all above; empty ones
            after the highest row are left out.
    """

    rows: int
    completion_tokens: int
    completion_bytes: int
    nll_sum: float
    nll: float | None
    bits_per_byte: float | None
    perplexity: float | None
    quantiles: list[float]
    bins: list[int]


class ScoredRow(msgspec.Struct, frozen=True):
    """A row that is told by itself."""

    split: str
    id: str
    nll_mean: float
    tokens: int | None


class Scores(msgspec.Struct, frozen=True):
    """The scores of a split, or of all.

    Attributes:
        rows, truncated, tokens_lost: with a score or without.
        without_score: rows by the reason.
        scored, domains, correctness, lengths: rows with a score: all, by `meta_domain`, by the ranges of `CORRECTNESS`,
            by the largest power of two that `tokens` reaches.
        highest, lowest: rows by `nll_mean`, the furthest first.
        model, how_sure: as the manifest of the scores has them.
    """

    rows: int
    truncated: int
    tokens_lost: int
    without_score: dict[str, int]
    scored: Likelihood
    domains: dict[str, Likelihood]
    correctness: dict[str, Likelihood]
    lengths: dict[str, Likelihood]
    highest: list[ScoredRow]
    lowest: list[ScoredRow]
    model: dict[str, Any] = {}
    how_sure: dict[str, Any] = {}


class ScoreReport(msgspec.Struct, frozen=True):
    """What `report.json` says."""

    schema: str
    total: Scores
    splits: dict[str, Scores]
    quantiles: tuple[float, ...] = QUANTILES
    bin_edges: tuple[float, ...] = BIN_EDGES


_REPORT_FILE = OwnFile("report", 256 << 20, REBUILD, ScoreReport)

_MEANS = ("NLL", "bits/byte", "PPL")


def _groups(of: Scores) -> Iterator[tuple[str, Likelihood]]:
    """Rows by what they are, each group with its name."""
    for word, groups in (("domain", of.domains), ("correctness", of.correctness), ("tokens from", of.lengths)):
        yield from ((f"{word} {name}", one) for name, one in groups.items())


def _means(of: Likelihood) -> list[str]:
    return ["" if one is None else f"{one:,.3f}" for one in (of.nll, of.bits_per_byte, of.perplexity)]


def preview_scores(report: Artifact) -> list[dict[str, str]]:
    """A line for all rows, for each group of these, and for each split: rows, means, and rows by NLL as bars."""
    told = _REPORT_FILE.read(report.path(REPORT_JSON))
    shown = [_previewed("all", told.total.scored)] if len(told.splits) > 1 else []
    shown += [_previewed(name, one) for name, one in _groups(told.total)]
    return shown + [_previewed(name, of.scored, of.rows) for name, of in told.splits.items()]


def _previewed(name: str, of: Likelihood, rows: int | None = None) -> dict[str, str]:
    """
    Args:
        rows: with a score or without, where some have none.
    """
    counted = f"{of.rows:,}" if rows in (None, of.rows) else f"{of.rows:,} of {rows:,}"
    means = dict(zip(_MEANS, _means(of), strict=True))
    return {"rows of": name, "scored": counted, **means, "rows by NLL": text_plot(score_bars(of.bins, BIN_EDGES))}


def report_on_scores(building: StagingDir, splits: Sequence[ScoredSplit], settings: RunSettings) -> BuildResult:
    """Write the report, in this process; its page follows when its digest is known. It holds 32 bytes a row, of the
    split that is read 64.

    Raises:
        InputError: a pool has fewer rows than were scored.
    """
    progress = Progress(settings.title("describe"), len(splits), "splits", settings.log_every_s)
    total, of_splits = _Tally(), dict[str, Scores]()
    for split in splits:
        own = _Tally()
        for rows in split.rows(_COLUMNS, ["meta_domain", "meta_correctness"]):
            own.add(split.name, rows)
            total.add(split.name, rows)
        said = {part: dict(split.decisions.get(part, {})) for part in ("model", "how_sure")}
        of_splits[split.name] = msgspec.structs.replace(own.told(), **said)
        progress.add(1)
    report = ScoreReport("corpusmill/score_report/1", total.told(), of_splits)
    counts = {"documents": report.total.scored.rows, "completion_tokens": report.total.scored.completion_tokens}
    return BuildResult([write_report(building, report)], counts, {}, page=write_page)


@dataclass
class _Group:
    """Rows with a score, so far: their `nll_mean`, and the sums of the other columns of `_NUMBERS`."""

    values: list[NDArray[np.float64]] = field(default_factory=lambda: [np.empty(0)])
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))

    def add(self, rows: NDArray[np.float64]) -> None:
        self.values.append(rows[:, 0].copy())
        self.sums += rows[:, 1:].sum(axis=0)

    def told(self) -> Likelihood:
        values, nats = np.concatenate(self.values), float(self.sums[0])
        tokens, size = map(int, self.sums[1:])
        nll = nats / tokens if tokens else None
        # What a model is certain of may come out a hair below zero.
        bins = np.searchsorted(BIN_EDGES, np.maximum(values, 0), side="right") - 1
        return Likelihood(
            rows=len(values),
            completion_tokens=tokens,
            completion_bytes=size,
            nll_sum=nats,
            nll=nll,
            bits_per_byte=nats / math.log(2) / size if size else None,
            perplexity=None if nll is None or nll > _LARGEST_EXPONENT else math.exp(nll),
            quantiles=np.quantile(values, QUANTILES).tolist() if len(values) else [],
            bins=np.bincount(bins).tolist(),
        )


class _Tally:
    """Scores so far."""

    def __init__(self) -> None:
        self._counts = Counter(rows=0, truncated=0, tokens_lost=0)
        self._without_score, self._scored = Counter[str](), _Group()
        self._groups = {part: defaultdict[str, _Group](_Group) for part in _GROUPS}
        self._highest: list[ScoredRow] = []
        self._lowest: list[ScoredRow] = []

    def add(self, split: str, table: pa.Table) -> None:
        """Rows that follow those given before."""
        lost, truncated = (sum(filter(None, table[name].to_pylist())) for name in ("tokens_lost", "truncated"))
        self._counts.update(rows=len(table), tokens_lost=lost, truncated=truncated)
        is_scored = truths(table["nll_mean"].combine_chunks().is_valid())
        reasons = table["reason"].filter(mask(~is_scored)).to_pylist()
        self._without_score.update(reason or UNKNOWN for reason in reasons)
        table = table.filter(mask(is_scored))
        rows = np.stack([numbers(table[name]) for name in _NUMBERS], axis=1)
        self._scored.add(rows)
        for part, (column, name_of, _) in _GROUPS.items():
            for name, places in places_by_name(map(name_of, table[column].to_pylist())).items():
                self._groups[part][name].add(rows[places])
        columns = table["id"].to_pylist(), rows[:, 0].tolist(), table["tokens"].to_pylist()
        told = [ScoredRow(split, *row) for row in zip(*columns, strict=True)]
        self._highest = heapq.nlargest(_STANDING_OUT, [*self._highest, *told], key=lambda row: row.nll_mean)
        self._lowest = heapq.nsmallest(_STANDING_OUT, [*self._lowest, *told], key=lambda row: row.nll_mean)

    def told(self) -> Scores:
        """All that was counted."""
        said: dict[str, Any] = {**self._counts, "without_score": dict(sorted(self._without_score.items()))}
        for part, of in self._groups.items():
            said[part] = {name: of[name].told() for name in sorted(of, key=_GROUPS[part][2])}
        return Scores(**said, scored=self._scored.told(), highest=self._highest, lowest=self._lowest)

"""The report on scores: how likely the model finds completions, of each split and of all, and by what rows are.

Files: `report.json`, the numbers; `report.html`, the same as one page with plots.
"""

import heapq
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow import mask, numbers, truths
from pipeline_assets.corpus.html_page import REPORT_HTML, REPORT_JSON
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.inventory import write_text
from pipeline_assets.corpus.nemotron.pool_report import CORRECTNESS, correctness_range, length_range
from pipeline_assets.corpus.scoring.score_page import (
    BIN_EDGES,
    QUANTILES,
    Likelihood,
    ScoredRow,
    ScoreReport,
    Scores,
    page_of,
)
from pipeline_assets.corpus.scoring.scores import ScoredSplit, places_by_name
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.staging import StagingDir
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress

SCORE_REPORT_STAGE = StageVersion("nemotron_score_report", 1)
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


def report_on_scores(building: StagingDir, splits: Sequence[ScoredSplit], settings: RunSettings) -> BuildResult:
    """Both files, in the building folder, made in this process. It holds 32 bytes a row, of the split that is read 64.

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
    as_json = json.dumps(msgspec.to_builtins(report), indent=1, ensure_ascii=False) + "\n"
    files = [write_text(building, REPORT_JSON, as_json), write_text(building, REPORT_HTML, page_of(report))]
    scored = report.total.scored
    return BuildResult(files, {"documents": scored.rows, "completion_tokens": scored.completion_tokens}, {})


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

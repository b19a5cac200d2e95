"""Report on the scores of splits.

Files: `report.json`, and `report.html` with the same content as one page with plots. In `report.json`, `total` and each
entry of `splits` count `rows`, `truncated` rows and `tokens_lost`. `without_score` counts rows without a score by
reason. `highest` and `lowest` list up to five rows with the highest and lowest `nll_mean`. `scored` has the figures
below for all rows with a score; `domains`, `correctness` (ranges) and `lengths` (numbers of tokens, by power of two)
have these figures by group:

    rows, completion_tokens, completion_bytes, nll_sum   number of rows, and sums over them; NLL in nats
    nll, bits_per_byte, perplexity                       of all completion tokens together; null without tokens or
                                                         bytes; `perplexity` is also null above exp(700)
    quantiles                                            `QUANTILES` of `nll_mean`, exact; empty without rows
    bins                                                 rows by `nll_mean`: bin k starts at `BIN_EDGES[k]`, the last
                                                         has no upper end; trailing empty bins are omitted
"""

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import bool_column, to_bools, to_numpy
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.pool_report import CORRECTNESS_RANGES, correctness_range, length_range
from pipeline_assets.corpus.pages import REPORT_JSON, write_page, write_report
from pipeline_assets.corpus.plots import score_bars, text_plot
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFormat
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.staging import StagingDir

QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
BIN_EDGES = tuple(number / 10 for number in range(128))
SCORE_REPORT_STAGE = StageVersion("nemotron_score_report", 3)
_NUMBER_COLUMNS = ["nll_mean", "nll_sum", "completion_token_count", "completion_bytes"]
_READ_COLUMNS = [*_NUMBER_COLUMNS, "id", "tokens", "truncated", "tokens_lost", "reason"]
_MAX_EXTREME_ROWS = 5  # maximum number of rows in `highest`, and in `lowest`
_MAX_EXPONENT = 700  # exp of a larger number overflows a float
# For each grouping: column of scores or pools, prefix of names in previews, function from value to name, sort key.
_GROUPINGS: Mapping[str, tuple[str, str, Callable[[Any], str], Callable[[str], Any]]] = {
    "domains": ("meta_domain", "domain", lambda domain: domain or UNKNOWN, str),
    "correctness": ("meta_correctness", "correctness", correctness_range, CORRECTNESS_RANGES.index),
    "lengths": ("tokens", "tokens from", length_range, int),
}
_REPORT_FORMAT: MetadataFormat[dict[str, Any]] = MetadataFormat("report", 256 << 20, REBUILD, dict[str, Any])
_MEAN_KEYS = {"NLL": "nll", "bits/byte": "bits_per_byte", "PPL": "perplexity"}


def preview_scores(report: Artifact) -> list[dict[str, str]]:
    """Return preview rows: one for all splits, one per group, and one per split."""
    content = _REPORT_FORMAT.read(report.path(REPORT_JSON))
    total, splits = content["total"], content["splits"]
    lines = [_preview_row("all", total["scored"])] if len(splits) > 1 else []
    for part, (_, prefix, *_) in _GROUPINGS.items():
        lines += [_preview_row(f"{prefix} {name}", figures) for name, figures in total[part].items()]
    return lines + [_preview_row(name, split["scored"], split["rows"]) for name, split in splits.items()]


def _preview_row(name: str, figures: Mapping[str, Any], total_rows: int | None = None) -> dict[str, str]:
    scored = f"{figures['rows']:,}" + ("" if total_rows in (None, figures["rows"]) else f" of {total_rows:,}")
    means = {head: "" if figures[key] is None else f"{figures[key]:,.3f}" for head, key in _MEAN_KEYS.items()}
    bars = text_plot(score_bars(figures["bins"], BIN_EDGES))
    return {"rows of": name, "scored": scored, **means, "rows by NLL": bars}


def report_on_scores(staging: StagingDir, splits: Sequence[ScoredSplit], settings: RunSettings) -> BuildResult:
    """Write `report.json`, from which the build later writes `report.html`.

    Memory: 32 bytes per row of all splits, plus 64 bytes per row of the current split.
    """
    progress = Progress(settings.title("describe"), len(splits), "splits", settings.log_every_s)
    total_tally, by_split = _Tally(), dict[str, dict[str, Any]]()
    for split in splits:
        tally = _Tally()
        for rows in split.rows(_READ_COLUMNS, ["meta_domain", "meta_correctness"]):
            tally.add(split.name, rows)
            total_tally.add(split.name, rows)
        by_split[split.name] = tally.describe(split.decisions)
        progress.add(1)
    total = total_tally.describe({})
    report: dict[str, Any] = {"schema": "corpusmill/score_report/1", "total": total, "splits": by_split}
    report |= {"quantiles": QUANTILES, "bin_edges": BIN_EDGES}
    counts = {"documents": total["scored"]["rows"], "completion_tokens": total["scored"]["completion_tokens"]}
    return BuildResult([write_report(staging, report)], counts, {}, write_page=write_page)


@dataclass
class _ScoreSums:
    """`nll_mean` values of a group of rows, and sums of the other `_NUMBER_COLUMNS`."""

    nll_means: list[NDArray[np.float64]] = field(default_factory=lambda: [np.empty(0)])
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))

    def add(self, rows: NDArray[np.float64]) -> None:
        self.nll_means.append(rows[:, 0].copy())
        self.sums += rows[:, 1:].sum(axis=0)

    def describe(self) -> dict[str, Any]:
        values, nats = np.concatenate(self.nll_means), float(self.sums[0])
        tokens, size = map(int, self.sums[1:])
        nll = nats / tokens if tokens else None
        # Rounding may put the NLL of a certain completion slightly below zero.
        bins = np.searchsorted(BIN_EDGES, np.maximum(values, 0), side="right") - 1
        return {
            "rows": len(values),
            "completion_tokens": tokens,
            "completion_bytes": size,
            "nll_sum": nats,
            "nll": nll,
            "bits_per_byte": nats / math.log(2) / size if size else None,
            "perplexity": None if nll is None or nll > _MAX_EXPONENT else math.exp(nll),
            "quantiles": np.quantile(values, QUANTILES).tolist() if len(values) else [],
            "bins": np.bincount(bins).tolist(),
        }


class _Tally:
    """Figures of the rows of a split, or of all splits."""

    def __init__(self) -> None:
        self._counts, self._without_score, self._scored = Counter[str](), Counter[str](), _ScoreSums()
        self._groups = {part: defaultdict[str, _ScoreSums](_ScoreSums) for part in _GROUPINGS}
        self._highest: list[dict[str, Any]] = []
        self._lowest: list[dict[str, Any]] = []

    def add(self, split: str, table: pa.Table) -> None:
        lost, truncated = (sum(filter(None, table[name].to_pylist())) for name in ("tokens_lost", "truncated"))
        self._counts.update(rows=len(table), tokens_lost=lost, truncated=truncated)
        is_scored = to_bools(table["nll_mean"].combine_chunks().is_valid())
        reasons = table["reason"].filter(bool_column(~is_scored)).to_pylist()
        self._without_score.update(reason or UNKNOWN for reason in reasons)
        table = table.filter(bool_column(is_scored))
        rows = np.stack([to_numpy(table[name]) for name in _NUMBER_COLUMNS], axis=1)
        self._scored.add(rows)
        for part, (column, _, to_name, _) in _GROUPINGS.items():
            names = np.array([*map(to_name, table[column].to_pylist())], object)
            for name in set(names):
                self._groups[part][name].add(rows[names == name])
        entries = [{"split": split, **row} for row in table.select(["id", "nll_mean", "tokens"]).to_pylist()]
        self._highest = heapq.nlargest(_MAX_EXTREME_ROWS, [*self._highest, *entries], key=itemgetter("nll_mean"))
        self._lowest = heapq.nsmallest(_MAX_EXTREME_ROWS, [*self._lowest, *entries], key=itemgetter("nll_mean"))

    def describe(self, decisions: Mapping[str, Any]) -> dict[str, Any]:
        """Return the figures for the report, with `model` and `how_sure` from `decisions`."""
        figures: dict[str, Any] = {name: self._counts[name] for name in ("rows", "truncated", "tokens_lost")}
        figures |= {"without_score": dict(sorted(self._without_score.items())), "scored": self._scored.describe()}
        for part, groups in self._groups.items():
            figures[part] = {name: groups[name].describe() for name in sorted(groups, key=_GROUPINGS[part][3])}
        figures |= {"highest": self._highest, "lowest": self._lowest}
        return figures | {part: dict(decisions.get(part, {})) for part in ("model", "how_sure")}

"""The report on scores: how likely the model finds completions, of each split and of all, and by what rows are.

Files: `report.json`; `report.html`, the same as one page with plots. `total` and each of `splits` has `rows`,
`truncated` and `tokens_lost` of all rows, `without_score` by the reason, the rows whose `nll_mean` is `highest` and
`lowest`, and how likely the model finds the completions of rows with a score: of all that are `scored`, by `domains`,
by ranges of `correctness`, and by `lengths`, the largest power of two that their tokens reach. That is

    rows, completion_tokens, completion_bytes, nll_sum   their number, and sums over them; nats
    nll, bits_per_byte, perplexity                       of all these tokens together; null where it is no finite number
    quantiles                                            `QUANTILES` of `nll_mean`, exact; none without rows
    bins                                                 rows by `nll_mean`: bin k from `BIN_EDGES[k]` on, the last with
                                                         all above; empty ones after the highest row are left out
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

from pipeline_assets.corpus.formats.arrow_columns import mask, numbers, truths
from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.nemotron.pool_report import CORRECTNESS, correctness_range, length_range
from pipeline_assets.corpus.pages import REPORT_JSON, write_page, write_report
from pipeline_assets.corpus.plots import score_bars, text_plot
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.metadata_file import REBUILD, MetadataFile
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.staging import StagingDir

QUANTILES = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
BIN_EDGES = tuple(number / 10 for number in range(128))
SCORE_REPORT_STAGE = StageVersion("nemotron_score_report", 3)
_NUMBERS = ["nll_mean", "nll_sum", "completion_token_count", "completion_bytes"]
_COLUMNS = [*_NUMBERS, "id", "tokens", "truncated", "tokens_lost", "reason"]
_STANDING_OUT = 5  # rows on either side
_LARGEST_EXPONENT = 700  # exp of more is beyond floats
# By which column of the scores or the pools, what goes before a name, the name of a value, and what orders names.
_GROUPS: Mapping[str, tuple[str, str, Callable[[Any], str], Callable[[str], Any]]] = {
    "domains": ("meta_domain", "domain", lambda domain: domain or UNKNOWN, str),
    "correctness": ("meta_correctness", "correctness", correctness_range, CORRECTNESS.index),
    "lengths": ("tokens", "tokens from", length_range, int),
}


_REPORT_FILE: MetadataFile[dict[str, Any]] = MetadataFile("report", 256 << 20, REBUILD, dict[str, Any])
_MEANS = {"NLL": "nll", "bits/byte": "bits_per_byte", "PPL": "perplexity"}


def preview_scores(report: Artifact) -> list[dict[str, str]]:
    """A line for all rows, for each group of these, and for each split: rows, means, and rows by NLL as bars."""
    told = _REPORT_FILE.read(report.path(REPORT_JSON))
    total, splits = told["total"], told["splits"]
    shown = [_previewed("all", total["scored"])] if len(splits) > 1 else []
    for part, (_, word, *_) in _GROUPS.items():
        shown += [_previewed(f"{word} {name}", one) for name, one in total[part].items()]
    return shown + [_previewed(name, of["scored"], of["rows"]) for name, of in splits.items()]


def _previewed(name: str, of: Mapping[str, Any], rows: int | None = None) -> dict[str, str]:
    counted = f"{of['rows']:,}" if rows in (None, of["rows"]) else f"{of['rows']:,} of {rows:,}"
    means = {word: "" if of[key] is None else f"{of[key]:,.3f}" for word, key in _MEANS.items()}
    return {"rows of": name, "scored": counted, **means, "rows by NLL": text_plot(score_bars(of["bins"], BIN_EDGES))}


def report_on_scores(building: StagingDir, splits: Sequence[ScoredSplit], settings: RunSettings) -> BuildResult:
    """Write the report, in this process; its page follows when its digest is known. It holds 32 bytes a row, of the
    split that is read 64.

    Raises:
        InputError: a pool has fewer rows than were scored.
    """
    progress = Progress(settings.title("describe"), len(splits), "splits", settings.log_every_s)
    total, of_splits = _Tally(), dict[str, dict[str, Any]]()
    for split in splits:
        own = _Tally()
        for rows in split.rows(_COLUMNS, ["meta_domain", "meta_correctness"]):
            own.add(split.name, rows)
            total.add(split.name, rows)
        of_splits[split.name] = own.describe(split.decisions)
        progress.add(1)
    of_all = total.describe({})
    report: dict[str, Any] = {"schema": "corpusmill/score_report/1", "total": of_all, "splits": of_splits}
    report |= {"quantiles": QUANTILES, "bin_edges": BIN_EDGES}
    counts = {"documents": of_all["scored"]["rows"], "completion_tokens": of_all["scored"]["completion_tokens"]}
    return BuildResult([write_report(building, report)], counts, {}, page=write_page)


@dataclass
class _Group:
    """Rows with a score, so far: their `nll_mean`, and the sums of the other columns of `_NUMBERS`."""

    values: list[NDArray[np.float64]] = field(default_factory=lambda: [np.empty(0)])
    sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros(3))

    def add(self, rows: NDArray[np.float64]) -> None:
        self.values.append(rows[:, 0].copy())
        self.sums += rows[:, 1:].sum(axis=0)

    def describe(self) -> dict[str, Any]:
        values, nats = np.concatenate(self.values), float(self.sums[0])
        tokens, size = map(int, self.sums[1:])
        nll = nats / tokens if tokens else None
        # What a model is certain of may come out a hair below zero.
        bins = np.searchsorted(BIN_EDGES, np.maximum(values, 0), side="right") - 1
        return {
            "rows": len(values),
            "completion_tokens": tokens,
            "completion_bytes": size,
            "nll_sum": nats,
            "nll": nll,
            "bits_per_byte": nats / math.log(2) / size if size else None,
            "perplexity": None if nll is None or nll > _LARGEST_EXPONENT else math.exp(nll),
            "quantiles": np.quantile(values, QUANTILES).tolist() if len(values) else [],
            "bins": np.bincount(bins).tolist(),
        }


class _Tally:
    def __init__(self) -> None:
        self._counts, self._without_score, self._scored = Counter[str](), Counter[str](), _Group()
        self._groups = {part: defaultdict[str, _Group](_Group) for part in _GROUPS}
        self._highest: list[dict[str, Any]] = []
        self._lowest: list[dict[str, Any]] = []

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
        for part, (column, _, name_of, _) in _GROUPS.items():
            names = np.array([*map(name_of, table[column].to_pylist())], object)
            for name in set(names):
                self._groups[part][name].add(rows[names == name])
        told = [{"split": split, **row} for row in table.select(["id", "nll_mean", "tokens"]).to_pylist()]
        self._highest = heapq.nlargest(_STANDING_OUT, [*self._highest, *told], key=itemgetter("nll_mean"))
        self._lowest = heapq.nsmallest(_STANDING_OUT, [*self._lowest, *told], key=itemgetter("nll_mean"))

    def describe(self, decisions: Mapping[str, Any]) -> dict[str, Any]:
        """All that was counted, with what the manifest of the scores says of the model and of how sure they are."""
        said: dict[str, Any] = {name: self._counts[name] for name in ("rows", "truncated", "tokens_lost")}
        said |= {"without_score": dict(sorted(self._without_score.items())), "scored": self._scored.describe()}
        for part, of in self._groups.items():
            said[part] = {name: of[name].describe() for name in sorted(of, key=_GROUPS[part][3])}
        said |= {"highest": self._highest, "lowest": self._lowest}
        return said | {part: dict(decisions.get(part, {})) for part in ("model", "how_sure")}

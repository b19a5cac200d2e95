"""Scores of a split: its score shards, how sure scores are, and one file of all with percentiles."""

import functools
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import nullable, numbers, to_array
from pipeline_assets.corpus.formats.parquet import in_row_groups, read_columns, write_table
from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.pool_selection import Selection
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe, detect_device
from pipeline_assets.corpus.scoring.score_shard import (
    NOT_FINITE,
    Scorer,
    score_shard,
)
from pipeline_assets.corpus.scoring.scores import SCORES, SCORES_FILE, percentiles
from pipeline_assets.corpus.tokens.losses import Losses, lost_text
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, RunStage, run_stages
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.staging import Receipt, StagingDir, total_counts

_NO_LIMIT = 1 << 62  # of a worker's memory: it holds a model
_AGAIN_ROWS = 1, 16  # of the batches in which rows are scored again
_COVERED = 0.95  # of rows that were scored again: the error bar is as far as so many are off
_MOST_NOT_FINITE = 0.01  # of rows
_READ = ["nll_mean", "pool_file", "pool_row"]


def run_locally(scorer: Scorer, settings: RunSettings) -> RunStage[ScoreJob]:
    """Run score shards in worker processes of this machine.

    Raises:
        InputError, UsageError: as `Scorer.warm_up`, from the first job on; there is no GPU that the recipe asks for.
    """
    workers = replace(settings, workers=_places(scorer.recipe, settings), growth_bytes=_NO_LIMIT)
    return run_stages(functools.partial(score_shard, scorer=scorer), workers, scorer.warm_up)


def score_split(
    building: StagingDir,
    files: Mapping[str, Path],
    selection: Selection,
    model: str,
    weights: object,
    recipe: ScoringRecipe,
    run_stage: RunStage[ScoreJob],
) -> BuildResult:
    """The scores of a split's rows, each id once.

    Args:
        files: of the pools, by the names that scores have for them, in order.
        selection: of their rows.
        model: its name, as decisions tell it.
        weights: where they are, for errors.
        run_stage: scores shards of rows.
    Raises:
        InputError: as `run_stage`; more than 1 % of the rows have logits that are no numbers.
    """
    jobs = [
        ScoreJob(f"{place:05d}-{first:09d}", name, files[name], tuple(rows[first : first + recipe.shard_rows].tolist()))
        for place, (name, rows) in enumerate(selection.rows.items())
        for first in range(0, len(rows), recipe.shard_rows)
    ]
    receipts = list(_watched(run_stage("score", jobs, building), selection.size, weights))
    tables = [building.path(receipt.files[0].path) for receipt in receipts]
    nll = np.concatenate([numbers(read_columns(path, ["nll_mean"])["nll_mean"].fill_null(np.nan)) for path in tables])
    sample = _sample(tables, nll, recipe.rescored)
    again = [job for rows in _AGAIN_ROWS for job in _again(sample, files, rows)]
    rescored = list(run_stage("rescore", again, building))
    how_sure = _how_sure(sample, [building.path(one.files[0].path) for one in rescored])
    there = nll[~np.isnan(nll)]
    # In thousandths of a nat: the UI plots them from run to run.
    millinats = {f"p{part:02d}": round(1000 * float(np.percentile(there, part))) for part in (5, 50, 95) if len(there)}
    counts = total_counts(receipts)
    unscored = {name.partition("/")[2]: count for name, count in counts.items() if name.startswith("unscored/")}
    # How long GPUs worked, those that a model is spread over added up; nothing of a CPU.
    gpu_seconds = sum(one.notes["gpu_seconds"] for one in [*receipts, *rescored])
    loaded_as = {"dtype": recipe.resolved_dtype, "device": recipe.device, "threads": recipe.threads}
    with_percentiles = _with_percentiles(tables, nll)
    told = ("documents", "tokens", "completion_tokens", "truncated", "tokens_lost", "batches", "halved_batches")
    return BuildResult(
        [write_table(building.path(SCORES_FILE), SCORES_FILE, in_row_groups(with_percentiles, SCORES), SCORES)],
        {"ledger": Ledger.from_counts({**selection.counts, "documents": counts["documents"]}).to_json()}
        | {name: counts.get(name, 0) for name in told}
        | {"unscored": unscored, "millinats": millinats},
        {"model": {"name": model, **loaded_as, **_single_value(receipts, "model", building)}, "how_sure": how_sure},
        provenance={
            "scored_by": _single_value(receipts, "made_by", building),
            **({"gpu_seconds": round(gpu_seconds, 3)} if gpu_seconds else {}),
            **lost_text({"rows": Losses.from_counts(counts)}),
        },
    )


def _places(recipe: ScoringRecipe, settings: RunSettings) -> int:
    """Shards at a time: a worker each on a CPU, a GPU each, one where the model is spread over all GPUs."""
    if recipe.device == "cpu":
        return max(settings.workers, 1)
    if detect_device() != "cuda":
        what, fix = "there is no GPU that PyTorch can use", "set `scoring.device` to cpu"
        raise UsageError(what, RecipeKey("scoring.device"), f"{fix}, or install a CUDA build")
    import torch

    return 1 if recipe.spreads else max(torch.cuda.device_count(), 1)


def _watched(receipts: Iterator[Receipt], rows: int, weights: object) -> Iterator[Receipt]:
    """The receipts, until too many rows have no finite score."""
    bad = 0
    for receipt in receipts:
        bad += receipt.counts.get(f"unscored/{NOT_FINITE}", 0)
        if bad > _MOST_NOT_FINITE * rows:
            what = f"the logits of {bad:,} of {rows:,} rows are no finite numbers, more than 1 %"
            fix = "look at the model's weights, or take bfloat16 in place of float16"
            raise InputError(what, weights, fix)
        yield receipt


def _single_value(receipts: Sequence[Receipt], note: str, building: StagingDir) -> Any:
    """What all receipts say; an upgrade between a build that was cut off and the next makes them differ."""
    said = {json.dumps(receipt.notes[note], sort_keys=True): receipt.notes[note] for receipt in receipts}
    if len(said) > 1:
        what = f"its shards were scored by different means: {'; '.join(sorted(said))}"
        fix = "remove this folder, and score all shards on machines that are alike, with the same libraries"
        raise InputError(what, building.folder, fix)
    return next(iter(said.values()))


def _sample(tables: Sequence[Path], nll: NDArray[np.float64], count: int) -> dict[tuple[str, int], float]:
    """`nll_mean` of some rows by their places in the pools, evenly from all that have a score, in their order."""
    there = np.flatnonzero(~np.isnan(nll))
    steps = np.linspace(0, len(there) - 1, min(count, len(there))).round().astype(np.int64)
    chosen, first, found = there[np.unique(steps)], 0, dict[tuple[str, int], float]()
    for path in tables:
        table = read_columns(path, _READ)
        inside = chosen[(chosen >= first) & (chosen < first + len(table))] - first
        for row in table.take(to_array(inside)).to_pylist():
            found[row["pool_file"], row["pool_row"]] = row["nll_mean"]
        first += len(table)
    return found


def _again(sample: Iterable[tuple[str, int]], files: Mapping[str, Path], batch_rows: int) -> Iterator[ScoreJob]:
    """Jobs that score the rows of a sample once more, a job for each file."""
    for number, (name, places) in enumerate(itertools.groupby(sample, key=itemgetter(0))):
        rows = tuple(row for _, row in places)
        yield ScoreJob(f"rows-{batch_rows}-{number:05d}", name, files[name], rows, batch_rows)


def _how_sure(sample: Mapping[tuple[str, int], float], rescoring_jobs: Sequence[Path]) -> dict[str, Any]:
    """How far nll_mean of rows that were scored again is from theirs, in nats a token: `error_bar` covers 95 % of the
    rows, `largest` all, as decimals; None where no row was scored again.
    """
    off: dict[tuple[str, int], float] = {}
    for path in rescoring_jobs:
        for row in read_columns(path, _READ).to_pylist():
            place, nll = (row["pool_file"], row["pool_row"]), row["nll_mean"]
            off[place] = max(off.get(place, 0.0), float("inf") if nll is None else abs(nll - sample[place]))
    if not off:
        return {"rescored": 0, "error_bar": None, "largest": None}
    differences = np.array([*off.values()])
    error_bar = float(np.quantile(differences, _COVERED, method="higher"))
    return {"rescored": len(off), "error_bar": repr(error_bar), "largest": repr(float(differences.max()))}


def _with_percentiles(tables: Sequence[Path], nll: NDArray[np.float64]) -> Iterator[pa.Table]:
    found, first = percentiles(nll), 0
    place = SCORES.get_field_index("percentile_within_split")
    for path in tables:
        table = read_columns(path)
        part = [None if np.isnan(one) else one for one in found[first : first + len(table)].tolist()]
        yield table.set_column(place, SCORES.field(place), nullable(part, pa.float64()))
        first += len(table)

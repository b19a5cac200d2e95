"""Scoring of a split: score shards, stability of scores, percentiles."""

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

from pipeline_assets.corpus.formats.arrow_columns import to_arrow, to_numpy
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.corpus.formats.python_columns import fill_null, to_column
from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.pool_selection import Selection
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe, require_gpu
from pipeline_assets.corpus.scoring.score_shard import NOT_FINITE, Scorer, score_shard
from pipeline_assets.corpus.scoring.scores import SCORES_FILE, SCORES_SCHEMA, SCORES_WITH_TOKENS_SCHEMA, percentiles
from pipeline_assets.corpus.tokens.losses import Losses, losses_to_provenance
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, StageRunner, stage_runner
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, total_counts

_NO_MEMORY_LIMIT = 1 << 62  # memory limit of a worker, which contains a model
_RESCORING_BATCH_ROWS = 1, 16  # rows per batch when rows are scored again
_ERROR_BAR_SHARE = 0.95  # share of rescored rows that are within the error bar
_MAX_NOT_FINITE_SHARE = 0.01  # maximum share of rows whose logits are not finite
_SUMS = ("documents", "tokens", "completion_tokens", "truncated", "tokens_lost", "batches", "halved_batches")
_ROW_COLUMNS = ["nll_mean", "pool_file", "pool_row"]


def local_runner(scorer: Scorer, settings: RunSettings) -> StageRunner[ScoreJob]:
    """Return a runner that scores on this machine; UsageError if the GPU is missing."""
    workers = max(settings.workers, 1)
    if scorer.recipe.device == "cuda":
        require_gpu()
        import torch

        workers = 1 if scorer.recipe.spreads else torch.cuda.device_count()  # one model for all GPUs, or one for each
    local_settings = replace(settings, engine="local", workers=workers, max_growth_bytes=_NO_MEMORY_LIMIT)
    return stage_runner(functools.partial(score_shard, scorer=scorer), local_settings, scorer.warm_up)


def score_split(
    staging: StagingDir,
    paths: Mapping[str, Path],
    selection: Selection,
    model_name: str,
    model_location: object,
    recipe: ScoringRecipe,
    run_stage: StageRunner[ScoreJob],
) -> BuildResult:
    """Score the selected rows of a split, and write `scores.parquet`.

    `paths` maps each pool file's name, as in the column `pool_file`, to its path. `model_name` is for the manifest,
    `model_location` for errors. `run_stage` runs score shards, on this machine or on others.

    Raises:
        InputError: More than 1 % of the rows have no finite logits, or shards were scored in different environments.
    """
    jobs = [
        ScoreJob(f"{file:05d}-{first:09d}", name, paths[name], tuple(rows[first : first + recipe.shard_rows].tolist()))
        for file, (name, rows) in enumerate(selection.row_numbers_by_file.items())
        for first in range(0, len(rows), recipe.shard_rows)
    ]
    receipts = list(_limit_not_finite(run_stage("score", jobs, staging), selection.row_count, model_location))
    score_files = [staging.path(receipt.files[0].path) for receipt in receipts]
    columns = (read_columns(path, ["nll_mean"])["nll_mean"] for path in score_files)
    nll = np.concatenate([to_numpy(fill_null(column, np.nan)) for column in columns])
    sample = _choose_sample(score_files, nll, recipe.rescored)
    rescoring_jobs = [job for rows in _RESCORING_BATCH_ROWS for job in _plan_rescoring(sample, paths, rows)]
    rescored = list(run_stage("rescore", rescoring_jobs, staging))
    stability = _measure_stability(sample, [staging.path(receipt.files[0].path) for receipt in rescored])
    scored = nll[~np.isnan(nll)]
    # Counts are integers, so quantiles are in thousandths of a nat; the UI plots them over runs.
    millinats = {f"p{q:02d}": round(1000 * float(np.percentile(scored, q))) for q in (5, 50, 95) if len(scored)}
    counts = total_counts(receipts)
    unscored = {name.partition("/")[2]: count for name, count in counts.items() if name.startswith("unscored/")}
    gpu_seconds = sum(receipt.notes["gpu_seconds"] for receipt in [*receipts, *rescored])
    model = _describe_model(model_name, recipe) | _read_shared_note(receipts, "model", staging)

    with_percentiles = _add_percentiles(score_files, nll)
    return BuildResult(
        [_write_scores(staging, with_percentiles, recipe)],
        {"ledger": Ledger.from_counts({**selection.counts, "documents": counts["documents"]}).to_json()}
        | {name: counts.get(name, 0) for name in _SUMS}
        | {"unscored": unscored, "millinats": millinats},
        {"model": model, "how_sure": stability},
        provenance={
            "scored_by": _read_shared_note(receipts, "made_by", staging),
            **({"gpu_seconds": round(gpu_seconds, 3)} if gpu_seconds else {}),
            **losses_to_provenance({"rows": Losses.from_counts(counts)}),
        },
    )


def write_no_scores(staging: StagingDir, model_name: str, recipe: ScoringRecipe) -> BuildResult:
    """Write a `scores.parquet` without rows, for a split without rows in the pools."""
    return BuildResult(
        [_write_scores(staging, [], recipe)],
        {"ledger": Ledger.from_counts({}).to_json(), **dict.fromkeys(_SUMS, 0), "unscored": {}, "millinats": {}},
        {"model": _describe_model(model_name, recipe), "how_sure": _measure_stability({}, [])},
        provenance=losses_to_provenance({"rows": Losses()}),
    )


def _write_scores(staging: StagingDir, tables: Iterable[pa.Table], recipe: ScoringRecipe) -> OutputFile:
    schema = SCORES_WITH_TOKENS_SCHEMA if recipe.token_nll else SCORES_SCHEMA
    return write_table(staging.path(SCORES_FILE), SCORES_FILE, regroup_rows(tables, schema), schema)


def _describe_model(name: str, recipe: ScoringRecipe) -> dict[str, Any]:
    return {"name": name, "dtype": recipe.resolved_dtype, "device": recipe.device, "threads": recipe.threads}


def _limit_not_finite(receipts: Iterator[Receipt], total_rows: int, model_location: object) -> Iterator[Receipt]:
    """Yield receipts; InputError if more than 1 % of the rows have non-finite logits."""
    not_finite = 0
    for receipt in receipts:
        not_finite += receipt.counts.get(f"unscored/{NOT_FINITE}", 0)
        if not_finite > _MAX_NOT_FINITE_SHARE * total_rows:
            what = f"the logits of {not_finite:,} of {total_rows:,} rows, more than 1 %, are not finite"
            fix = "check the model's weights, or use bfloat16 instead of float16"
            raise InputError(what, model_location, fix)
        yield receipt


def _read_shared_note(receipts: Sequence[Receipt], key: str, staging: StagingDir) -> Any:
    """Return the note `key` that all receipts share; InputError if the values differ."""
    values = {json.dumps(receipt.notes[key], sort_keys=True): receipt.notes[key] for receipt in receipts}
    if len(values) > 1:  # libraries were upgraded between an interrupted build and the next one
        what = f"shards were scored in different environments: {'; '.join(sorted(values))}"
        fix = "remove this folder, and score all shards on equal machines with equal library versions"
        raise InputError(what, staging.folder, fix)
    return next(iter(values.values()))


def _choose_sample(score_files: Sequence[Path], nll: NDArray[np.float64], count: int) -> dict[tuple[str, int], float]:
    """Choose scored rows at regular intervals; map (pool file, row) to `nll_mean`."""
    scored = np.flatnonzero(~np.isnan(nll))
    steps = np.linspace(0, len(scored) - 1, min(count, len(scored))).round().astype(np.int64)
    chosen, first, sample = scored[np.unique(steps)], 0, dict[tuple[str, int], float]()
    for path in score_files:
        table = read_columns(path, _ROW_COLUMNS)
        inside = chosen[(chosen >= first) & (chosen < first + len(table))] - first
        for row in table.take(to_arrow(inside)).to_pylist():
            sample[row["pool_file"], row["pool_row"]] = row["nll_mean"]
        first += len(table)
    return sample


def _plan_rescoring(
    sample: Iterable[tuple[str, int]], paths: Mapping[str, Path], max_batch_rows: int
) -> Iterator[ScoreJob]:
    """Yield a job for each pool file in the sample, to score its sampled rows again."""
    for number, (name, keys) in enumerate(itertools.groupby(sample, key=itemgetter(0))):
        rows = tuple(row for _, row in keys)
        yield ScoreJob(f"rows-{max_batch_rows}-{number:05d}", name, paths[name], rows, max_batch_rows)


def _measure_stability(sample: Mapping[tuple[str, int], float], rescored_files: Sequence[Path]) -> dict[str, Any]:
    """Measure how much rescoring changes the `nll_mean` of sampled rows.

    Keys: `rescored`, the number of rows; `error_bar`, the difference that 95 % of the rows do not exceed; `largest`,
    the largest difference. Differences are nats per token, as decimal strings; None if no row was scored again.
    """
    differences: dict[tuple[str, int], float] = {}
    for path in rescored_files:
        for row in read_columns(path, _ROW_COLUMNS).to_pylist():
            pool_row, nll = (row["pool_file"], row["pool_row"]), row["nll_mean"]
            difference = float("inf") if nll is None else abs(nll - sample[pool_row])
            differences[pool_row] = max(differences.get(pool_row, 0.0), difference)
    if not differences:
        return {"rescored": 0, "error_bar": None, "largest": None}
    values = np.array([*differences.values()])
    error_bar = float(np.quantile(values, _ERROR_BAR_SHARE, method="higher"))
    return {"rescored": len(values), "error_bar": repr(error_bar), "largest": repr(float(values.max()))}


def _add_percentiles(score_files: Sequence[Path], nll: NDArray[np.float64]) -> Iterator[pa.Table]:
    values, first = percentiles(nll), 0
    column = SCORES_SCHEMA.get_field_index("percentile_within_split")
    for path in score_files:
        table = read_columns(path)
        part = [None if np.isnan(value) else value for value in values[first : first + len(table)].tolist()]
        yield table.set_column(column, SCORES_SCHEMA.field(column), to_column(part, pa.float64()))
        first += len(table)

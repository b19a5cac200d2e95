"""Scores of a split: its score shards, how sure scores are, and one file of all with percentiles."""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import nullable, numbers, to_array
from pipeline_assets.corpus.formats.parquet import in_row_groups, open_parquet, read_columns, write_table
from pipeline_assets.corpus.scoring.launcher import ScoreJob
from pipeline_assets.corpus.scoring.recipe import ScoringRecipe, device_here
from pipeline_assets.corpus.scoring.score_shard import (
    LOSS_RULE,
    NOT_FINITE,
    POOL_COLUMNS,
    Scorer,
    score_shard,
)
from pipeline_assets.corpus.scoring.scores import SCORES, SCORES_FILE, naming_unreadable, percentiles
from pipeline_assets.corpus.tokens.losses import Losses, lost_text
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, RunStage, run_stages
from pipeline_assets.spine.errors import InputError, UsageError, bare, key, one_line
from pipeline_assets.spine.ledger import Ledger, dropped_key
from pipeline_assets.spine.staging import Receipt, StagingDir, total_counts

_HASH_BYTES = 16
_NO_LIMIT = 1 << 62  # of a worker's memory: it holds a model
_AGAIN_ROWS = 1, 16  # of the batches in which rows are scored again
_COVERED = 0.95  # of rows that were scored again: the error bar is as far as so many are off
_MOST_NOT_FINITE = 0.01  # of rows
_READ = ["nll_mean", "pool_file", "pool_row"]


@dataclass(frozen=True)
class Selection:
    """Rows that are scored.

    Attributes:
        rows: their numbers by file, ascending, shape (rows,).
        counts: `rows` of all pools, `dropped/repeated_id` (an earlier row has the id: pools overlap),
            `dropped/not_sampled`.
    """

    rows: Mapping[str, NDArray[np.int64]]
    counts: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(map(len, self.rows.values()))

    def text_bytes(self, files: Mapping[str, Path]) -> int:
        """What their texts hold, in proportion to their number: footers tell it of each file."""
        found = 0.0
        for name, rows in self.rows.items():
            with open_parquet(files[name]) as file:
                place, size = file.schema_arrow.names.index("text"), 0
                for group in map(file.metadata.row_group, range(file.num_row_groups)):
                    size += group.column(place).total_uncompressed_size
                found += size * len(rows) / max(file.metadata.num_rows, 1)
        return round(found)


def select_rows(files: Mapping[str, Path], max_rows: int | None) -> Selection:
    """The first row of each id, in the order of the files; of more than `max_rows` those whose ids have the lowest
    hashes. Memory: 16 bytes a row, and what sorting them takes.

    Raises:
        InputError: a file is no Parquet, or damaged; it lacks a column that is needed, or one is of another type; a row
            has no id; or there is no row.
    """
    hashes = {name: _id_hashes(path) for name, path in files.items()}
    together = np.concatenate([np.empty(0, f"V{_HASH_BYTES}"), *hashes.values()])
    if not len(together):
        raise InputError(
            "there is no row in the pools of this split", next(iter(files.values())), "give some that have"
        )
    _, first = np.unique(together, return_index=True)  # in the order of the hashes
    is_chosen = np.zeros(len(together), bool)
    is_chosen[first[:max_rows]] = True
    ends = np.cumsum([len(of_file) for of_file in hashes.values()])
    parts = np.split(is_chosen, ends[:-1])
    rows = {name: np.flatnonzero(part) for name, part in zip(files, parts, strict=True)}
    dropped = {"repeated_id": len(together) - len(first), "not_sampled": len(first) - int(is_chosen.sum())}
    return Selection(
        rows, {"rows": len(together)} | {dropped_key(reason): count for reason, count in dropped.items() if count}
    )


def _id_hashes(path: Path) -> NDArray[np.void]:
    """The first bytes of the sha256 of each id, shape (rows,)."""
    found: list[bytes] = []
    try:
        opened = open_parquet(path)
    except (OSError, ValueError) as error:
        what = f"this is no Parquet ({one_line(error, 120)})"
        fix = "give pools as Parquet: polars.read_ndjson(FILE).write_parquet(FILE) makes that of JSON lines"
        if path.suffix == ".parquet":
            what, fix = "it is cut short or damaged, or no Parquet", f"fetch or write it again; {fix}"
        raise InputError(what, path, fix) from None
    with opened as file:
        missing = [name for name in POOL_COLUMNS if name not in file.schema_arrow.names]
        if missing:
            present = ", ".join(file.schema_arrow.names[:12])
            fix = f"a pool needs the columns {', '.join(POOL_COLUMNS)}; this file has {present}"
            raise InputError(f"it has no column {', '.join(missing)}", path, fix)
        _refuse_other_types(file.schema_arrow, path)
        with naming_unreadable(path):
            for batch in file.iter_batches(columns=["id"], use_threads=False):
                ids = batch.column("id").to_pylist()
                if None in ids:
                    row = len(found) + ids.index(None)
                    raise InputError(f"row {row:,} has no id", path, "give every row an id: scores are told by it")
                found += (hashlib.sha256(str(one).encode()).digest()[:_HASH_BYTES] for one in ids)
    return np.frombuffer(b"".join(found), f"V{_HASH_BYTES}")


def _refuse_other_types(schema: pa.Schema, path: Path) -> None:
    for name in (*POOL_COLUMNS, LOSS_RULE):
        if name not in schema.names:
            continue
        kind = schema.field(name).type
        values = kind.value_type if pa.types.is_dictionary(kind) else kind
        is_text = pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values)
        if not (is_text or pa.types.is_null(values) or (name == "id" and pa.types.is_integer(values))):
            raise InputError(f"its column {name} is {kind}, and no text", path, "write that column as text")


def scoring_here(scorer: Scorer, settings: RunSettings) -> RunStage[ScoreJob]:
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
    loaded_as = {"dtype": recipe.dtype_of_device, "device": recipe.device, "threads": recipe.threads}
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
    if device_here() != "cuda":
        what, fix = "there is no GPU that PyTorch can use", f"set {key('scoring.device', '`device: cpu`', '{} cpu')}"
        raise UsageError(what, bare("scoring.device"), f"{fix}, or install a CUDA build")
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

"""The training subsets of scored rows.

    subset_<rule>/<dataset>/<split>-00000-of-0000N.parquet   rows, `SUBSET_SCHEMA`, in the order of the scores
    tokens/<rule>/…                                          the same rows as tokens, see `token_rows`

Two passes. First scores and the columns that conditions ask: of each row some numbers are held. Then chosen rows are
read with all their columns, for each rule: memory is that of a row group of a pool, and of a file of the subset.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import mask, numbers, repeated, to_array
from pipeline_assets.corpus.formats.parquet import ParquetOutput
from pipeline_assets.corpus.nemotron.pools import PUBLISHED
from pipeline_assets.corpus.nemotron.pools_recipe import matching_rows
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.scoring import scores
from pipeline_assets.corpus.scoring.row_choice import choose_rows, near_a_boundary, selection_order
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.corpus.scoring.scores import SCORES
from pipeline_assets.corpus.scoring.subset_recipe import SubsetsRecipe
from pipeline_assets.corpus.scoring.subset_tokens import TokenLoss, write_token_files
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.stage import Window, grouped_by_size
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingDir, StagingView

SUBSETS = "subset_"
RULE = "training_subset"
_SCORED = ["nll_mean", "nll_sum", "ppl", "completion_token_count", "percentile_within_split", "bits_per_byte"]
SUBSET_SCHEMA = pa.schema([*SCHEMA, (RULE, pa.string()), *(SCORES.field(name) for name in _SCORED)])
COLUMNS: Final[dict[str, str]] = {
    RULE: "The rule of the recipe that chose the row; its config is named after it.",
    **{name: scores.COLUMNS[name] for name in _SCORED},
}
"""What those columns of a subset hold that rows of pools don't have."""
_FILE_BYTES = 64 << 20  # of rows, uncompressed, that become a file: about as many as of a pool
_COUNTED = ["meta_domain", "stats_tokens", "stats_completion_tokens"]


@dataclass(frozen=True)
class _Shard:
    """The rows of a split that a rule took; `chosen` is a work file: truths, of each scored row."""

    name: str
    rule: str
    split: ScoredSplit
    chosen: Path
    rows: int = 0  # a split is read whole


def choose_subsets(
    building: StagingDir,
    splits: Sequence[ScoredSplit],
    recipe: SubsetsRecipe,
    tokenizer: Encoder,
    settings: RunSettings,
) -> BuildResult:
    """The files above. Neither the order of the splits nor workers change a byte. A rule that takes no row has no file.

    Raises:
        InputError: a value can't be what a condition makes of it, a column can't be of the schema's type, scores
            don't fit their pools, or a row's tokens aren't its text.
    """
    splits = sorted(splits, key=lambda split: split.name)
    pools = {file for split in splits for file in split.pool_files.values()}
    settings = limit_workers(building, settings, [file.stat().st_size for file in pools])
    asked = _ScoredRows(splits, recipe)
    chosen = choose_rows(asked.candidates, asked.turn, asked.domains, recipe.ordered, disjoint=recipe.disjoint)
    files = _write(building, asked, chosen, settings)
    loss = TokenLoss(recipe.terminators, recipe.headers)
    tokens = write_token_files(building, files, tokenizer, loss, settings) if recipe.tokens else []
    is_out, is_candidate = np.any(chosen, axis=1), np.any(asked.candidates, axis=1)
    has_score = ~np.isnan(asked.nll)
    gone = {"no_score": ~has_score, "in_no_subset": has_score & ~is_candidate, "over_max_rows": is_candidate & ~is_out}
    dropped = {reason: int(rows.sum()) for reason, rows in gone.items() if rows.any()}
    return BuildResult(
        files=sorted([*(file for of_rule in files.values() for file in of_rule), *tokens], key=lambda file: file.path),
        counts={
            "ledger": Ledger(len(chosen), int(is_out.sum()), dropped).to_json(),
            "documents": int(is_out.sum()),
            "tokens": int(asked.tokens[is_out].sum()),
            "completion_tokens": int(asked.completion_tokens[is_out].sum()),
            "subsets": {name: int(chosen[:, place].sum()) for place, name in enumerate(recipe.order)},
        },
        decisions=_decisions(asked, chosen),
    )


class _ScoredRows:
    """The first pass: what is held of each scored row, in the order of the splits. Raises as `choose_subsets`.

    Attributes:
        nll, percentile: NaN without a score, shape (rows,).
        domains: number of its domain, by name; shape (rows,).
        tokens, completion_tokens: as its pool has them, 0 where that doesn't say; shape (rows,).
        holds: whether the conditions of a rule hold, shape (rows, rules); of `candidates` the row is in its band too.
        turn: of candidates of a rule that doesn't take all, shape (rows, rules).
        said: columns that conditions ask, and of which some row has a value.
    """

    def __init__(self, splits: Sequence[ScoredSplit], recipe: SubsetsRecipe) -> None:
        self._splits, self.recipe = splits, recipe
        self._stops = np.cumsum([pq.read_metadata(split.scores).num_rows for split in splits]).tolist()
        shape = (self._stops[-1] if splits else 0, len(recipe.order))
        self.nll, self.percentile = np.empty(shape[0]), np.empty(shape[0])
        self.domains = np.empty(shape[0], np.int32)
        self.tokens, self.completion_tokens = np.empty(shape[0], np.int64), np.empty(shape[0], np.int64)
        self.holds, self.candidates = np.ones(shape, bool), np.empty(shape, bool)
        self.turn = np.zeros(shape, np.uint64)
        self.said = set[str]()
        domains: dict[str, int] = {}
        for split, rows in self.splits():
            first = rows.start
            columns = sorted({*recipe.columns, *_COUNTED})
            for table in split.rows(["id", "nll_mean", "percentile_within_split"], columns):
                self._hold(_has_types(table, columns, split), slice(first, first + len(table)), split.name, domains)
                first += len(table)
        self.domains = np.argsort(np.argsort(np.array([*domains], object))).astype(np.int32)[self.domains]

    def splits(self) -> Iterator[tuple[ScoredSplit, slice]]:
        """Each with the place of its rows."""
        for split, first, stop in zip(self._splits, [0, *self._stops], self._stops, strict=False):
            yield split, slice(first, stop)

    def _hold(self, table: pa.Table, rows: slice, split: str, domains: dict[str, int]) -> None:
        self.nll[rows] = numbers(table["nll_mean"].fill_null(math.nan))
        self.percentile[rows] = numbers(table["percentile_within_split"].fill_null(math.nan))
        self.domains[rows] = [domains.setdefault(one or "", len(domains)) for one in table["meta_domain"].to_pylist()]
        self.tokens[rows] = numbers(table["stats_tokens"].fill_null(0))
        self.completion_tokens[rows] = numbers(table["stats_completion_tokens"].fill_null(0))
        self.said |= {name for name in self.recipe.columns if table[name].null_count < len(table)}
        if any(rule.where for rule in self.recipe.ordered):
            import polars as pl  # in this process alone, and where it is asked: its threads are lost in a fork

            frame = pl.DataFrame(pl.from_arrow(table))
        for place, (name, rule) in enumerate(zip(self.recipe.order, self.recipe.ordered, strict=True)):
            for condition in rule.where:
                self.holds[rows, place] &= matching_rows(frame, condition)
            low, high = rule.band  # a row without a percentile, NaN, is in none
            candidates = self.holds[rows, place] & (self.percentile[rows] >= low) & (self.percentile[rows] <= high)
            self.candidates[rows, place] = candidates
            if rule.max_rows is not None or rule.balance:
                places = np.flatnonzero(candidates)
                ids = table["id"].take(to_array(places)).to_pylist()
                self.turn[rows.start + places, place] = selection_order(self.recipe.seed, name, split, ids)


def _has_types(table: pa.Table, columns: Sequence[str], split: ScoredSplit) -> pa.Table:
    """The table, some columns of which are of the types of the schema; what a pool doesn't have is null."""
    for name in columns:
        asked, place = SCHEMA.field(name), table.column_names.index(name)
        try:
            table = table.set_column(place, asked, table[name].cast(asked.type))
        except pa.ArrowException as error:
            what = f"its column {name} is {table[name].type}, and of rows it is {asked.type} ({str(error)[:100]})"
            raise InputError(what, split.name, "score rows that have the columns of normalised ones") from None
    return table


def _write(
    building: StagingDir, asked: _ScoredRows, chosen: NDArray[np.bool_], settings: RunSettings
) -> dict[str, list[OutputFile]]:
    """The second pass: the files of each rule, by split."""
    shards = []
    for place, rule in enumerate(asked.recipe.order):
        for number, (split, rows) in enumerate(asked.splits()):
            name = f"{rule}-{number:05d}"
            shards.append(_Shard(name, rule, split, building.path(f"{WORK}/chosen/{name}.npy")))
            with DurableFile(shards[-1].chosen) as work:
                np.save(work, chosen[rows, place])
    files: dict[str, list[OutputFile]] = {rule: [] for rule in asked.recipe.order}
    receipts = run_stage("subsets", write_rows, shards, building, settings)
    for shard, receipt in zip(shards, receipts, strict=True):
        for number, file in enumerate(receipt.files):
            of = f"{number:05d}-of-{len(receipt.files):05d}"
            final = f"{SUBSETS}{shard.rule}/{shard.split.name}-{of}.parquet"
            files[shard.rule].append(file.linked(final, building))
    return files


def write_rows(shard: _Shard, window: Window, folder: StagingView) -> Receipt:
    """Work files of its rows, one row group each.

    Args:
        window: has no part in this: a split is read whole.
    """
    files: list[OutputFile] = []
    for tables in grouped_by_size(_chosen_rows(shard), lambda table: int(table.nbytes), _FILE_BYTES):
        table, name = pa.concat_tables(tables).combine_chunks(), f"{WORK}/subsets/{shard.name}-{len(files):05d}.parquet"
        with ParquetOutput(folder.path(name), SUBSET_SCHEMA, len(table), **PUBLISHED) as output:
            output.write(table)
        files.append(output.output(name))
    return Receipt(files, {"documents": sum(file.rows for file in files)})


def _chosen_rows(shard: _Shard) -> Iterator[pa.Table]:
    chosen, first = np.load(shard.chosen), 0
    for table in shard.split.rows(["id", *_SCORED], SCHEMA.names) if chosen.any() else ():
        rows = chosen[first : first + len(table)]
        first += len(table)
        if rows.any():
            taken = _has_types(table.filter(mask(rows)), SCHEMA.names, shard.split)
            yield taken.append_column(RULE, repeated(shard.rule, len(taken))).select(SUBSET_SCHEMA.names)


def _decisions(asked: _ScoredRows, chosen: NDArray[np.bool_]) -> dict[str, Any]:
    """`error_bar` of each split's NLL, null where its scores have none. Of each rule `candidates`, by band and
    conditions; `taken`; the lowest and the highest `nll_mean` and percentile taken of each split; and `could_flip`:
    rows of which its conditions hold, near a boundary of its band in splits with an error bar (`near_a_boundary`), and
    their share of those and the candidates there. Null where no split has an error bar. `unsaid`: columns that it asks
    and no row has a value of, where there are any.
    """
    bars = {split.name: (split.decisions.get("how_sure") or {}).get("error_bar") for split, _ in asked.splits()}
    told: dict[str, Any] = {"error_bar": {name: bar if bar is None else str(bar) for name, bar in bars.items()}}
    told["rules"], is_known = {}, set(bars.values()) != {None}
    for place, (name, rule) in enumerate(zip(asked.recipe.order, asked.recipe.ordered, strict=True)):
        flips, could_be, of_splits = 0, 0, {}
        for split, rows in asked.splits():
            nll, percentile, bar = asked.nll[rows], asked.percentile[rows], bars[split.name]
            if (taken := chosen[rows, place]).any():
                bounds = {"nll_mean": nll[taken], "percentile": percentile[taken]}
                lowest_highest = {key: [repr(float(of.min())), repr(float(of.max()))] for key, of in bounds.items()}
                of_splits[split.name] = {"rows": int(taken.sum()), **lowest_highest}
            if bar is not None:
                near = near_a_boundary(nll, percentile, rule, float(bar)) & asked.holds[rows, place]
                flips += int(near.sum())
                could_be += int((near | asked.candidates[rows, place]).sum())
        told["rules"][name] = {
            "candidates": int(asked.candidates[:, place].sum()),
            "taken": int(chosen[:, place].sum()),
            "splits": of_splits,
            "could_flip": {"rows": flips, "share": f"{flips / max(could_be, 1):.6f}"} if is_known else None,
        }
        if unsaid := [column for column in rule.columns if column not in asked.said]:
            told["rules"][name]["unsaid"] = unsaid
    return told

"""Training subsets of scored rows.

    subset_<rule>/<dataset>/<split>-00000-of-0000N.parquet   rows, `SUBSET_SCHEMA`, in the order of the scores
    tokens/<rule>/…                                          tokens of these rows, see `subset_tokens`

Memory use is a few numbers for each row, one row group of a pool, and one file of a subset.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import bool_column, repeat_text, to_arrow, to_numpy
from pipeline_assets.corpus.formats.checked_file import CheckedFile, map_values
from pipeline_assets.corpus.formats.parquet import ParquetOutput, read_footer
from pipeline_assets.corpus.formats.python_columns import fill_null
from pipeline_assets.corpus.nemotron.pools import PARQUET_OPTIONS
from pipeline_assets.corpus.nemotron.pools_recipe import condition_columns, condition_mask
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.scoring import scores
from pipeline_assets.corpus.scoring.row_choice import boundary_mask, choose_rows, selection_ranks
from pipeline_assets.corpus.scoring.scored_split import ScoredSplit
from pipeline_assets.corpus.scoring.scores import SCORES_SCHEMA
from pipeline_assets.corpus.scoring.subset_recipe import SubsetsRecipe
from pipeline_assets.corpus.scoring.subset_tokens import CountedControlTokens, write_token_files
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.stage import Window, group_by_size
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingDir, StagingView

SUBSET_PREFIX = "subset_"
RULE_COLUMN = "training_subset"
_SCORE_COLUMNS = ["nll_mean", "nll_sum", "ppl", "completion_token_count", "percentile_within_split", "bits_per_byte"]
SUBSET_SCHEMA = pa.schema(
    [*SCHEMA, (RULE_COLUMN, pa.string()), *(SCORES_SCHEMA.field(name) for name in _SCORE_COLUMNS)]
)
COLUMN_DESCRIPTIONS: Final[dict[str, str]] = {
    RULE_COLUMN: "The rule of the recipe that chose the row; its config is named after it.",
    **{name: scores.COLUMN_DESCRIPTIONS[name] for name in _SCORE_COLUMNS},
}
"""Descriptions of the columns that a subset has in addition to the columns of pools."""
_FILE_BYTES = 64 << 20  # uncompressed rows per file, similar to pools
_COUNTED_COLUMNS = ["meta_domain", "stats_tokens", "stats_completion_tokens"]


@dataclass(frozen=True)
class _Shard:
    """Rows that a rule chose from one split."""

    name: str
    rule: str
    split: ScoredSplit
    mask_file: Path  # work file: a mask of the scored rows
    rows: int = 0  # so the engine does not search the shard for poison rows


def choose_subsets(
    staging: StagingDir,
    splits: Sequence[ScoredSplit],
    recipe: SubsetsRecipe,
    tokenizer: Tokenizer,
    settings: RunSettings,
) -> BuildResult:
    """Choose and write the training subsets of splits.

    Neither the order of the splits nor the number of workers changes a byte. A rule without rows has no file.
    """
    splits = sorted(splits, key=lambda split: split.name)
    pools = {file for split in splits for file in split.pool_files.values()}
    settings = limit_workers(staging, settings, [file.stat().st_size for file in pools])
    scored_rows = _ScoredRows(splits, recipe)
    candidates, ranks, strata = scored_rows.candidates, scored_rows.ranks, scored_rows.strata
    is_chosen = choose_rows(candidates, ranks, strata, recipe.ordered_rules, disjoint=recipe.disjoint)
    files = _write_subsets(staging, scored_rows, is_chosen, settings)
    control_tokens = CountedControlTokens(recipe.terminators, recipe.headers)
    tokens = write_token_files(staging, files, tokenizer, control_tokens, settings) if recipe.tokens else []
    is_out, is_candidate = np.any(is_chosen, axis=1), np.any(scored_rows.candidates, axis=1)
    has_score = ~np.isnan(scored_rows.nll)
    masks = {
        scores.NO_SCORE: ~has_score,
        "in_no_subset": has_score & ~is_candidate,
        "over_max_rows": is_candidate & ~is_out,
    }
    dropped = {reason: int(rows.sum()) for reason, rows in masks.items() if rows.any()}
    return BuildResult(
        files=sorted([*itertools.chain(*files.values()), *tokens], key=lambda file: file.path),
        counts={
            "ledger": Ledger(len(is_chosen), int(is_out.sum()), dropped).to_json(),
            "documents": int(is_out.sum()),
            "tokens": int(scored_rows.tokens[is_out].sum()),
            "completion_tokens": int(scored_rows.completion_tokens[is_out].sum()),
            "subsets": {name: int(is_chosen[:, column].sum()) for column, name in enumerate(recipe.order)},
        },
        decisions=_describe_decisions(scored_rows, is_chosen),
    )


class _ScoredRows:
    """Result of the first pass: figures of each row of the scores, in split order."""

    def __init__(self, splits: Sequence[ScoredSplit], recipe: SubsetsRecipe) -> None:
        self._splits, self.recipe = splits, recipe
        self._stops = np.cumsum([read_footer(split.scores_file).num_rows for split in splits]).tolist()
        shape = (self._stops[-1] if splits else 0, len(recipe.order))  # rows, rules
        # Mean NLL, and percentile within the split; NaN without a score.
        self.nll, self.percentile = np.empty(shape[0]), np.empty(shape[0])
        # Numbers of tokens from the pool; 0 if unknown.
        self.tokens, self.completion_tokens = np.empty(shape[0], np.int64), np.empty(shape[0], np.int64)
        # Rows that meet all conditions of a rule, and those of them that are in its range of percentiles.
        self.meets_conditions, self.candidates = np.ones(shape, bool), np.empty(shape, bool)
        # `selection_ranks` of candidates for a rule with `max_rows` or `balance`, else 0; index of a row's stratum in a
        # rule's sorted strata, 0 if the rule has no strata.
        self.ranks, self.strata = np.zeros(shape, np.uint64), np.zeros(shape, np.int32)
        self.present_columns = set[str]()  # columns of conditions that have a value in some row
        self._stratum_numbers: list[dict[tuple[str, ...], int]] = [{} for _ in recipe.order]  # by first appearance
        strata_columns = itertools.chain.from_iterable(rule.strata_columns for rule in recipe.ordered_rules)
        columns = sorted({*recipe.condition_columns, *_COUNTED_COLUMNS, *strata_columns})
        for split, rows in self.split_ranges():
            first = rows.start
            for table in split.rows(["id", "nll_mean", "percentile_within_split"], columns):
                self._add(_cast_columns(table, columns, split), slice(first, first + len(table)), split.name)
                first += len(table)
        for column, numbers in enumerate(self._stratum_numbers):
            if numbers:  # number the strata by name instead of by first appearance
                order = {name: number for number, name in enumerate(sorted(numbers))}
                self.strata[:, column] = np.array([order[name] for name in numbers], np.int32)[self.strata[:, column]]

    def split_ranges(self) -> Iterator[tuple[ScoredSplit, slice]]:
        for split, first, stop in zip(self._splits, [0, *self._stops], self._stops, strict=False):
            yield split, slice(first, stop)

    def _add(self, table: pa.Table, row_range: slice, split: str) -> None:
        self.nll[row_range] = to_numpy(fill_null(table["nll_mean"], math.nan))
        self.percentile[row_range] = to_numpy(fill_null(table["percentile_within_split"], math.nan))
        self.tokens[row_range] = to_numpy(fill_null(table["stats_tokens"], 0))
        self.completion_tokens[row_range] = to_numpy(fill_null(table["stats_completion_tokens"], 0))
        self.present_columns |= {name for name in self.recipe.condition_columns if table[name].null_count < len(table)}
        if any(rule.where for rule in self.recipe.ordered_rules):
            import polars as pl  # only in this process and only if needed: its threads do not survive a fork

            frame = pl.DataFrame(pl.from_arrow(table))
        for column, (name, rule) in enumerate(zip(self.recipe.order, self.recipe.ordered_rules, strict=True)):
            for condition in rule.where:
                self.meets_conditions[row_range, column] &= condition_mask(frame, condition)
            low, high = rule.percentile_range  # a NaN percentile is in no band
            in_band = (self.percentile[row_range] >= low) & (self.percentile[row_range] <= high)
            candidates = self.meets_conditions[row_range, column] & in_band
            self.candidates[row_range, column] = candidates
            if rule.strata_columns:
                values = (
                    ["" if value is None else str(value) for value in table[name].to_pylist()]
                    for name in rule.strata_columns
                )
                names, numbers = zip(*values, strict=True), self._stratum_numbers[column]
                self.strata[row_range, column] = [numbers.setdefault(name, len(numbers)) for name in names]
            if rule.max_rows is not None or rule.balance:
                numbers_in_table = np.flatnonzero(candidates)
                ids = table["id"].take(to_arrow(numbers_in_table)).to_pylist()
                ranks = selection_ranks(self.recipe.seed, name, split, ids)
                self.ranks[row_range.start + numbers_in_table, column] = ranks


def _cast_columns(table: pa.Table, columns: Sequence[str], split: ScoredSplit) -> pa.Table:
    """Cast columns of a split's table to their types in `SCHEMA`."""
    for name in columns:
        target, index = SCHEMA.field(name), table.column_names.index(name)
        try:
            table = table.set_column(index, target, table[name].cast(target.type))
        except pa.ArrowException as error:
            what = f"column {name} must be {target.type}, got {table[name].type} ({str(error)[:100]})"
            raise InputError(what, split.name, "score rows that have the columns of normalized rows") from None
    return table


def _write_subsets(
    staging: StagingDir, scored_rows: _ScoredRows, is_chosen: NDArray[np.bool_], settings: RunSettings
) -> dict[str, list[OutputFile]]:
    """Write the chosen rows in a second pass; return each rule's files in split order."""
    shards = []
    for column, rule in enumerate(scored_rows.recipe.order):
        for number, (split, rows) in enumerate(scored_rows.split_ranges()):
            name = f"{rule}-{number:05d}"
            shards.append(_Shard(name, rule, split, staging.path(f"{WORK_FOLDER}/chosen/{name}")))
            with CheckedFile(shards[-1].mask_file) as work:
                work.write(is_chosen[rows, column].tobytes())
    files: dict[str, list[OutputFile]] = {rule: [] for rule in scored_rows.recipe.order}
    receipts = run_stage("subsets", write_rows, shards, staging, settings)
    for shard, receipt in zip(shards, receipts, strict=True):
        for number, file in enumerate(receipt.files):
            suffix = f"{number:05d}-of-{len(receipt.files):05d}"
            path = f"{SUBSET_PREFIX}{shard.rule}/{shard.split.name}-{suffix}.parquet"
            files[shard.rule].append(file.link_as(path, staging))
    return files


def write_rows(shard: _Shard, window: Window, folder: StagingView) -> Receipt:
    """Write a shard's chosen rows to work files of one row group each."""
    files: list[OutputFile] = []
    for tables in group_by_size(_read_chosen_rows(shard), lambda table: int(table.nbytes), _FILE_BYTES):
        table = pa.concat_tables(tables).combine_chunks()
        name = f"{WORK_FOLDER}/subsets/{shard.name}-{len(files):05d}.parquet"
        with ParquetOutput(folder.path(name), SUBSET_SCHEMA, len(table), **PARQUET_OPTIONS) as output:
            output.write(table)
        files.append(output.output(name))
    return Receipt(files, {"documents": sum(file.rows for file in files)})


def _read_chosen_rows(shard: _Shard) -> Iterator[pa.Table]:
    chosen, first = map_values(shard.mask_file, np.bool_), 0
    for table in shard.split.rows(["id", *_SCORE_COLUMNS], SCHEMA.names) if chosen.any() else ():
        rows = chosen[first : first + len(table)]
        first += len(table)
        if rows.any():
            table = _cast_columns(table.filter(bool_column(rows)), SCHEMA.names, shard.split)
            yield table.append_column(RULE_COLUMN, repeat_text(shard.rule, len(table))).select(SUBSET_SCHEMA.names)


def _describe_decisions(scored_rows: _ScoredRows, is_chosen: NDArray[np.bool_]) -> dict[str, Any]:
    """Describe the choice for the manifest.

    `error_bar` maps each split to the error bar of its NLL, null if unknown. `rules` maps each rule to:

    - `candidates`: number of rows that meet all conditions and are in the rule's range of percentiles;
    - `taken`: number of chosen rows;
    - `splits`: for each split with chosen rows, their number, and their lowest and highest `nll_mean` and percentile;
    - `could_flip`: figures of the splits with an error bar, null if no split has one: `rows`, the number of rows that
      meet the conditions and are near a boundary (`boundary_mask`); `share`, `rows` divided by the number of rows that
      are candidates or counted in `rows`;
    - `unsaid`: columns of conditions that have no value in any row; omitted if empty.
    """
    splits = (split for split, _ in scored_rows.split_ranges())
    bars = {split.name: (split.decisions.get("how_sure") or {}).get("error_bar") for split in splits}
    rules, is_known = dict[str, Any](), set(bars.values()) != {None}
    for column, (name, rule) in enumerate(zip(scored_rows.recipe.order, scored_rows.recipe.ordered_rules, strict=True)):
        flips, could_be, by_split = 0, 0, {}
        for split, rows in scored_rows.split_ranges():
            nll, percentile, bar = scored_rows.nll[rows], scored_rows.percentile[rows], bars[split.name]
            if (selected := is_chosen[rows, column]).any():
                values = {"nll_mean": nll[selected], "percentile": percentile[selected]}
                ranges = {key: [repr(float(array.min())), repr(float(array.max()))] for key, array in values.items()}
                by_split[split.name] = {"rows": int(selected.sum()), **ranges}
            if bar is not None:
                near = boundary_mask(nll, percentile, rule, float(bar)) & scored_rows.meets_conditions[rows, column]
                flips += int(near.sum())
                could_be += int((near | scored_rows.candidates[rows, column]).sum())
        rules[name] = {
            "candidates": int(scored_rows.candidates[:, column].sum()),
            "taken": int(is_chosen[:, column].sum()),
            "splits": by_split,
            "could_flip": {"rows": flips, "share": f"{flips / max(could_be, 1):.6f}"} if is_known else None,
        }
        if empty_columns := sorted({*condition_columns(rule.where)} - scored_rows.present_columns):
            rules[name]["unsaid"] = empty_columns
    return {"error_bar": {name: bar if bar is None else str(bar) for name, bar in bars.items()}, "rules": rules}

"""Recipe section of candidate pools, with SQL conditions on rows."""

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import to_column
from pipeline_assets.corpus.licences import check_tag
from pipeline_assets.corpus.nemotron.condition_sql import NOT_OF_ONE_ROW, read_condition
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import Name, RecipeSection

if TYPE_CHECKING:
    import polars as pl


POOLS_STAGE = StageVersion("nemotron_candidate_pools", 2)
CAPABILITY = "capability"  # prefix of pools by capability
_PURPOSE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_INVALID = re.compile(r"[^a-z0-9]+")


def _check_condition(condition: str) -> str:
    if not any(condition in conditions for conditions in RULES.values()):  # polars and sqlglot take time to import
        parse_condition(condition)
    return condition


Condition = Annotated[str, pydantic.AfterValidator(_check_condition)]
Conditions = Annotated[tuple[Condition, ...], pydantic.Field(strict=False, min_length=1)]
RULES: Mapping[str, tuple[str, ...]] = {
    "missing_correctness_meta": ("meta_correctness IS NULL",),
    "tool_use": ("stats_tool_calls > 0",),
    "long_context": ("stats_tokens >= 16384",),
    "verified_correct": ("meta_correctness = 1",),
    "high_correctness": ("meta_correctness >= 0.75",),
    "medium_correctness": ("meta_correctness >= 0.5", "meta_correctness < 0.75"),
    "low_correctness": ("meta_correctness > 0", "meta_correctness < 0.5"),
    "unsolved": ("meta_correctness = 0",),
    "reasoning_on": ("meta_reasoning = 'on'",),
    "reasoning_off": ("meta_reasoning = 'off'",),
}


class SealedPools(RecipeSection):
    """Candidate pools of a dataset, built by another recipe.

    Attributes:
        folder: Folder of the pools, absolute or relative to the data root. It does not change any byte of the result.
        dataset: Partition of the pools, such as `nemotron-math-v2`.
        splits: Splits whose rows are scored.
    """

    folder: str
    dataset: Name
    splits: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]


class PoolsRecipe(RecipeSection):
    """Candidate pools of a dataset; a row may be in several pools.

    Attributes:
        rules: SQL conditions on the columns of a row (`parse_condition`), by pool. A row is in a pool if it meets all
            conditions of the pool.
        by_capability: Add rows with a capability target to the pool `capability_<target>`.
        refuse_licences: Licence tags whose rows are in no pool; a row without a licence has the tag `unknown`.
    """

    rules: Mapping[str, Conditions] = pydantic.Field(default_factory=lambda: dict(RULES))
    by_capability: bool = True
    refuse_licences: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = ()

    @pydantic.field_validator("rules")
    @classmethod
    def _check_pool_names(cls, rules: Mapping[str, Conditions]) -> Mapping[str, Conditions]:
        for purpose in rules:
            raise_if_invalid_name(purpose)
            if purpose.startswith(f"{CAPABILITY}_"):
                raise ValueError(f"{purpose!r} is reserved for a pool by capability; choose another name")
        return rules

    @pydantic.field_validator("refuse_licences")
    @classmethod
    def _check_licence_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(map(check_tag, tags)))

    @property
    def columns(self) -> list[str]:
        """Columns that the conditions use."""
        conditions = (parse_condition(sql) for conditions in self.rules.values() for sql in conditions)
        return sorted({column for condition in conditions for column in condition.meta.root_names()})


def raise_if_invalid_name(purpose: str) -> None:
    """Raise ValueError if a pool's name cannot name a folder and a hub's config."""
    if not _PURPOSE.fullmatch(purpose):
        raise ValueError(f"{purpose!r} must be lower-case words joined by `_`, since it names a folder and a config")


@functools.cache
def parse_condition(condition: str) -> "pl.Expr":
    """Parse an SQL condition on a row.

    Raises:
        ValueError: The condition is not one expression, is too large, uses no column, an unknown column (the error
            suggests a known one) or an unsupported operation, compares incompatible values, has an invalid pattern, is
            not boolean, or depends on files, other rows or the clock.
    """
    import polars as pl

    try:
        expression = read_condition(condition, _one_row())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())  # without the query plan after an empty line
        raise ValueError(f"the condition is invalid ({reason})") from None
    if not expression.meta.root_names():
        raise ValueError(NOT_OF_ONE_ROW)
    return expression


@functools.cache
def _one_row() -> "pl.DataFrame":
    """Return a row on which the types of conditions are checked."""
    import polars as pl

    # polars compares some types only if a value exists, so lists have one.
    values = [to_column([[""] if pa.types.is_list(field.type) else None], field.type) for field in SCHEMA]
    return pl.DataFrame(pl.from_arrow(pa.Table.from_arrays(values, schema=SCHEMA)))


def matching_rows(frame: "pl.DataFrame", condition: str) -> NDArray[np.bool_]:
    """Return a mask of the rows that meet a condition, shape (rows,); null is false."""
    expression = parse_condition(condition).fill_null(False).alias("holds")
    holds: NDArray[np.bool_] = frame.select(expression)["holds"].to_numpy()
    return holds


def capability_pool(target: str) -> str:
    return f"{CAPABILITY}_{_INVALID.sub('_', target.lower()).strip('_')}"

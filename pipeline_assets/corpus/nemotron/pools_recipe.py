"""Which rows are candidates for what: conditions over columns, in SQL."""

import difflib
import functools
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.parquet import nullable
from pipeline_assets.corpus.licences import known_tag
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.recipe import RecipePart

if TYPE_CHECKING:
    import polars as pl

POOLS_STAGE = StageVersion("nemotron_candidate_pools", 1)
CAPABILITY = "capability"  # of which pools by capability are named
_PURPOSE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_CLOCK = re.compile(r"\b(now|current_(date|time|timestamp))\b", re.IGNORECASE)
_UNFIT = re.compile(r"[^a-z0-9]+")


def _is_condition(condition: str) -> str:
    condition_of(condition)
    return condition


Condition = Annotated[str, pydantic.AfterValidator(_is_condition)]
Conditions = Annotated[tuple[Condition, ...], pydantic.Field(strict=False, min_length=1)]
RULES: Mapping[str, tuple[str, ...]] = {
    "missing_correctness_meta": ("meta_correctness IS NULL",),
    "tool_use": ("stats_tool_calls > 0",),
    "long_context": ("stats_tokens >= 16384",),
    "verified_correct": ("meta_correctness = 1",),
    "high_correctness": ("meta_correctness >= 0.75",),
    "low_correctness": ("meta_correctness > 0", "meta_correctness < 0.5"),
    "reasoning_on": ("meta_reasoning = 'on'",),
    "reasoning_off": ("meta_reasoning = 'off'",),
}


class PoolsRecipe(RecipePart):
    """The pools of a dataset. A row may be in several.

    Attributes:
        rules: conditions by purpose, all of which hold of the rows of its pool: SQL over the columns of a row, see
            `condition_of`.
        by_capability: whether rows that say what they are meant to teach are in a pool of that, `capability_<target>`.
        refuse_licences: tags of which no row is in any pool; a row that says none is `unknown`.
    """

    rules: Mapping[str, Conditions] = pydantic.Field(default_factory=lambda: dict(RULES))
    by_capability: bool = True
    refuse_licences: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = ()

    @pydantic.field_validator("rules")
    @classmethod
    def _name_folders(cls, rules: Mapping[str, Conditions]) -> Mapping[str, Conditions]:
        for purpose in rules:
            refuse_unfit_name(purpose)
            if purpose.startswith(f"{CAPABILITY}_"):
                raise ValueError(f"{purpose!r} is the name of a pool by capability: give it another")
        return rules

    @pydantic.field_validator("refuse_licences")
    @classmethod
    def _are_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(map(known_tag, tags)))

    @property
    def columns(self) -> list[str]:
        """Columns that the conditions ask."""
        conditions = (condition_of(one) for conditions in self.rules.values() for one in conditions)
        return sorted({column for condition in conditions for column in condition.meta.root_names()})


def refuse_unfit_name(purpose: str) -> None:
    """
    Raises:
        ValueError: a name can't be that of a folder and of a config.
    """
    if not _PURPOSE.fullmatch(purpose):
        raise ValueError(f"{purpose!r} names a folder and a config: write lower-case words with `_` between")


@functools.cache
def condition_of(condition: str) -> "pl.Expr":
    """A condition on a row, from its SQL.

    Raises:
        ValueError: it is none: no expression, of an unknown column (with the nearest that there is), of values that
            can't be compared, no truth, or one that other rows or the clock have a part in.
    """
    import polars as pl

    if _CLOCK.search(condition):
        raise ValueError("it asks the clock, and rows would be others tomorrow")
    # Some types are compared where there are values alone: a list, of which a row has none or some.
    of_row = [nullable([[""] if pa.types.is_list(field.type) else None], field.type) for field in SCHEMA]
    one_row = pl.DataFrame(pl.from_arrow(pa.Table.from_arrays(of_row, schema=SCHEMA)))
    try:
        expression = pl.sql_expr(condition)
        found = one_row.select(expression.alias("holds")).schema["holds"]
    except pl.exceptions.ColumnNotFoundError:
        unknown = next(column for column in pl.sql_expr(condition).meta.root_names() if column not in SCHEMA.names)
        nearest = difflib.get_close_matches(unknown, SCHEMA.names, n=1)
        hint = f", did you mean {nearest[0]}?" if nearest else ""
        raise ValueError(f"there is no column {unknown}{hint}") from None
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"it can't be asked ({str(error).splitlines()[0]})") from None
    if found != pl.Boolean:
        raise ValueError(f"it is no condition, but a value of type {found}")
    if not expression.meta.root_names() or not _is_of_one_row(json.loads(expression.meta.serialize(format="json"))):
        raise ValueError("it isn't about one row: write it over the columns of a row alone")
    return expression


def rows_that_hold(frame: "pl.DataFrame", condition: str, section: str) -> NDArray[np.bool_]:
    """Of which rows a condition holds, shape (rows,); not where it can't be told.

    Args:
        section: of the recipe, which has the condition.
    Raises:
        InputError: a value can't be what the condition makes of it.
    """
    import polars as pl

    try:
        holds = frame.select(condition_of(condition).fill_null(False).alias("holds"))["holds"]
    except pl.exceptions.PolarsError as error:
        fix = f"correct that condition of `{section}`"
        raise InputError(str(error).splitlines()[0], f"`{condition}`", fix) from None
    rows: NDArray[np.bool_] = holds.to_numpy()
    return rows


# What polars calls functions that look at one row, in the form in which it writes expressions.
_FUNCTIONS = {"Abs", "Boolean", "Coalesce", "ListExpr", "MaxHorizontal", "MinHorizontal", "Sql", "StringExpr"}


def _is_of_one_row(node: Any) -> bool:
    """Whether an expression, as polars writes it, looks at one row alone: no aggregate, window, order, or query."""
    match node:
        case {"Column": _} | {"Literal": _}:
            return True
        case {"Cast": {"expr": part}}:
            return _is_of_one_row(part)
        case {"BinaryExpr": {"left": left, "right": right}}:
            return _is_of_one_row(left) and _is_of_one_row(right)
        case {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}:
            return all(map(_is_of_one_row, (predicate, truthy, falsy)))
        case {"Function": {"input": parts, "function": function}}:
            kind = next(iter(function)) if isinstance(function, dict) else function
            return kind in _FUNCTIONS and all(map(_is_of_one_row, parts))
    return False


def capability_pool(target: str) -> str:
    """The pool of the rows that are meant to teach something."""
    return f"{CAPABILITY}_{_UNFIT.sub('_', target.lower()).strip('_')}"


def no_row_has_all(conditions: Mapping[str, int]) -> str:
    """Why a pool is empty, by the rows that each of its conditions holds of."""
    return "no row has all, " + ", ".join(f"{rows:,} {condition}" for condition, rows in conditions.items())

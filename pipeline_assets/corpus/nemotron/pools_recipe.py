"""Recipe of pools."""

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import nullable
from pipeline_assets.corpus.licences import known_tag
from pipeline_assets.corpus.nemotron.condition_sql import NOT_OF_ONE_ROW, read_condition
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import Name, RecipeSection

if TYPE_CHECKING:
    import polars as pl


POOLS_STAGE = StageVersion("nemotron_candidate_pools", 2)
CAPABILITY = "capability"  # of which pools by capability are named
_PURPOSE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_INVALID = re.compile(r"[^a-z0-9]+")


def _is_condition(condition: str) -> str:
    parse_condition(condition)
    return condition


Condition = Annotated[str, pydantic.AfterValidator(_is_condition)]
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
    """Candidate pools of a dataset that another recipe sealed.

    Attributes:
        folder: absolute, or below the data root; changes no byte.
        dataset: partition of the pools, such as `nemotron-math-v2`.
        splits: splits whose rows are scored.
    """

    folder: str
    dataset: Name
    splits: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]


class PoolsRecipe(RecipeSection):
    """The pools of a dataset. A row may be in several.

    Attributes:
        rules: conditions by purpose, all of which hold of the rows of its pool: SQL over the columns of a row, see
            `parse_condition`.
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
            raise_if_invalid_name(purpose)
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
        conditions = (parse_condition(one) for conditions in self.rules.values() for one in conditions)
        return sorted({column for condition in conditions for column in condition.meta.root_names()})


def raise_if_invalid_name(purpose: str) -> None:
    """
    Raises:
        ValueError: a name can't be that of a folder and of a config.
    """
    if not _PURPOSE.fullmatch(purpose):
        raise ValueError(f"{purpose!r} names a folder and a config: write lower-case words with `_` between")


@functools.cache
def parse_condition(condition: str) -> "pl.Expr":
    """A condition on a row, from its SQL.

    Raises:
        ValueError: it is none: no expression, of an unknown column (with the nearest that there is), of values that
            can't be compared, no truth, or one that files, other rows or the clock have a part in.
    """
    import polars as pl

    try:
        expression = read_condition(condition, _one_row())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())  # without the query plan after an empty line
        raise ValueError(f"it can't be asked ({reason})") from None
    if not expression.meta.root_names():
        raise ValueError(NOT_OF_ONE_ROW)
    return expression


@functools.cache
def _one_row() -> "pl.DataFrame":
    """Return a row to try conditions on. Some types are compared only if there is a value: a list, empty or not."""
    import polars as pl

    values = [nullable([[""] if pa.types.is_list(field.type) else None], field.type) for field in SCHEMA]
    return pl.DataFrame(pl.from_arrow(pa.Table.from_arrays(values, schema=SCHEMA)))


def matching_rows(frame: "pl.DataFrame", condition: str) -> NDArray[np.bool_]:
    """Return the rows that a condition holds of, shape (rows,); not those where it can't be told."""
    holds: NDArray[np.bool_] = frame.select(parse_condition(condition).fill_null(False).alias("holds"))[
        "holds"
    ].to_numpy()
    return holds


def capability_pool(target: str) -> str:
    """The pool of the rows that are meant to teach something."""
    return f"{CAPABILITY}_{_INVALID.sub('_', target.lower()).strip('_')}"

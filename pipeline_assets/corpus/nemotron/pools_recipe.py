"""Recipe section of candidate pools, with SQL conditions on rows."""

import difflib
import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.python_columns import to_column
from pipeline_assets.corpus.licences import require_tag
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.spine.key_types import MAX_NAME, Name
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import RecipeSection

if TYPE_CHECKING:
    import polars as pl


POOLS_STAGE = StageVersion("nemotron_candidate_pools", 3)
CAPABILITY_PREFIX = "capability"
EVERY_POOL = "every_pool"  # key of `quotas`
_VALID_NAME = re.compile(r"[a-z0-9]+(_[a-z0-9]+)*")
_INVALID_CHARACTERS = re.compile(r"[^a-z0-9]+")
_MAX_WORDS_CHARACTERS = 150  # names of files have at most 255 bytes, with prefixes and a hash
_PLAIN_CAPABILITY_TARGET = re.compile(r"[a-z0-9]+([ _-]+[a-z0-9]+)*")


def _check_condition(condition: str) -> str:
    # polars and sqlglot take time to import.
    if not any(condition in conditions for conditions in DEFAULT_RULES.values()):
        parse_condition(condition)
    return condition


Condition = Annotated[str, pydantic.AfterValidator(_check_condition)]
Conditions = Annotated[tuple[Condition, ...], pydantic.Field(strict=False, min_length=1)]
DEFAULT_RULES: Mapping[str, tuple[str, ...]] = {
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
    """Candidate pools of a dataset, built by another recipe."""

    folder: str  # absolute or relative to the data root; changes no byte of the result
    dataset: Name  # partition of the pools, such as `nemotron-math-v2`
    splits: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]  # whose rows are scored


def _check_columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    for name in columns:
        if name not in SCHEMA.names:
            near = difflib.get_close_matches(name, SCHEMA.names, 1)
            raise ValueError(f"column {name!r} not found" + (f"; did you mean {near[0]}?" if near else ""))
    return columns


StratumColumns = Annotated[tuple[str, ...], pydantic.Field(strict=False), pydantic.AfterValidator(_check_columns)]
"""Columns whose combinations of values get equal shares of rows."""


class PoolQuota(RecipeSection):
    """Maximum number of rows of a pool, shared equally among strata.

    The unused share of a small stratum is divided among the others. `stratify` has columns, such as `meta_domain`; each
    combination of their values is a stratum. Without columns, all rows are one stratum.
    """

    max_rows: int = pydantic.Field(ge=1)  # over all splits of the dataset
    stratify: StratumColumns = ()


class PoolsRecipe(RecipeSection):
    """Candidate pools of a dataset; a row may be in several pools."""

    OMITTABLE_KEYS = frozenset({"quotas", "seed"})

    # SQL conditions (`parse_condition`) by pool; the rows of a pool meet all conditions of the pool.
    rules: Mapping[str, Conditions] = pydantic.Field(default_factory=lambda: dict(DEFAULT_RULES))
    by_capability: bool = True  # rows with a capability target are in a pool `capability_<target>`
    # Licence tags whose rows are in no pool; a row without a licence has the tag `unknown`.
    refuse_licences: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = ()
    quotas: Mapping[str, PoolQuota] | None = None  # by pool; `every_pool` applies to pools without one of their own
    seed: int = pydantic.Field(0, ge=0)  # of the selection of rows by quotas

    @pydantic.model_validator(mode="after")
    def _check_quotas(self) -> Self:
        for name in self.quotas or ():
            is_by_capability = self.by_capability and name.startswith(f"{CAPABILITY_PREFIX}_")
            if name not in (EVERY_POOL, *self.rules) and not is_by_capability:
                known = ", ".join((EVERY_POOL, *self.rules))
                raise ValueError(f"`quotas` names {name!r}, but the recipe has no such pool; use one of {known}")
        return self

    def quota(self, pool: str) -> PoolQuota | None:
        """Return a pool's own quota, else the quota `every_pool`, else None."""
        quotas = self.quotas or {}
        return quotas.get(pool) or quotas.get(EVERY_POOL)

    @pydantic.field_validator("rules")
    @classmethod
    def _check_pool_names(cls, rules: Mapping[str, Conditions]) -> Mapping[str, Conditions]:
        for pool in rules:
            check_folder_name(pool)
            if pool.startswith(f"{CAPABILITY_PREFIX}_") or pool == EVERY_POOL:
                use = "all pools" if pool == EVERY_POOL else "a pool by capability"
                raise ValueError(f"{pool!r} is reserved for {use}; choose another name")
        return rules

    @pydantic.field_validator("refuse_licences")
    @classmethod
    def _check_licence_tags(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(map(require_tag, tags)))

    @property
    def columns(self) -> list[str]:
        """Columns that the conditions use, sorted."""
        return condition_columns(itertools.chain.from_iterable(self.rules.values()))


def describe_quotas(recipe: Mapping[str, Any]) -> str:
    """Describe the quotas in the stored recipe of pools; empty without quotas."""
    quotas = (recipe["pools"].get("quotas") or {}).items()
    parts = [
        f"{quota['max_rows']:,} of {name}" + (f" by {' and '.join(quota['stratify'])}" if quota["stratify"] else "")
        for name, quota in quotas
    ]
    return f"rows of a dataset, at most: {', '.join(parts)}" if parts else ""


def check_folder_name(name: str) -> None:
    """Raise ValueError unless `name` consists of lower-case words joined by `_`."""
    if not _VALID_NAME.fullmatch(name):
        raise ValueError(f"{name!r} must be lower-case words joined by `_`, since it names a folder and a config")
    if len(name) > MAX_NAME:
        raise ValueError(f"{name!r} must have at most {MAX_NAME} characters")


@functools.cache
def parse_condition(condition: str) -> "pl.Expr":
    """Parse an SQL condition on a row into a boolean expression of polars.

    Raises:
        ValueError: The condition is not one boolean expression, is too large, uses no column or an unknown one, has an
            unsupported operation or an invalid pattern, compares incompatible values, or depends on other rows or the
            clock.
    """
    import polars as pl

    from pipeline_assets.corpus.nemotron.condition_sql import SINGLE_ROW_RULE, compile_condition

    try:
        expression = compile_condition(condition, _example_row())
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = " ".join(str(error).partition("\n\n")[0].split())  # without the query plan after an empty line
        raise ValueError(f"the condition is invalid ({reason})") from None
    if not expression.meta.root_names():
        raise ValueError(SINGLE_ROW_RULE)
    return expression


@functools.cache
def _example_row() -> "pl.DataFrame":
    """Return a one-row table, used to type-check conditions."""
    import polars as pl

    # polars compares some types only if a value exists, so lists have one.
    values = [to_column([[""] if pa.types.is_list(field.type) else None], field.type) for field in SCHEMA]
    return pl.DataFrame(pl.from_arrow(pa.Table.from_arrays(values, schema=SCHEMA)))


def condition_mask(frame: "pl.DataFrame", condition: str) -> NDArray[np.bool_]:
    """Return a mask of the rows that meet a condition, shape (rows,); null is false."""
    expression = parse_condition(condition).fill_null(False).alias("holds")
    holds: NDArray[np.bool_] = frame.select(expression)["holds"].to_numpy()
    # polars reduces a condition such as `COALESCE(1, stats_tokens) = 1` to one value.
    return np.broadcast_to(holds, frame.height)


def condition_columns(conditions: Iterable[str]) -> list[str]:
    """List the columns that conditions use, sorted."""
    return sorted({column for condition in conditions for column in parse_condition(condition).meta.root_names()})


def needed_columns(conditions: Iterable[str]) -> list[str]:
    """List the columns of conditions that a row without values does not meet, sorted."""
    return condition_columns(sql for sql in conditions if not condition_mask(_example_row(), sql)[0])


def pool_name_for(capability_target: str) -> str:
    """Return the name of the pool for a capability.

    The name consists of `capability` and the words of `capability_target`, in lower case and joined by `_`. If the
    target has characters such as `+`, a hash is added to the name, so that `C++` and `C` get different names. A long
    name is cut, and also gets a hash.
    """
    text = " ".join(capability_target.lower().split())
    words = _INVALID_CHARACTERS.sub("_", text).strip("_")
    cut, is_plain = words[:_MAX_WORDS_CHARACTERS].strip("_"), _PLAIN_CAPABILITY_TARGET.fullmatch(text)
    hashed = text if not is_plain else words if cut != words else None
    code = "" if hashed is None else hashlib.sha256(hashed.encode("utf-8")).hexdigest()[:8]
    return "_".join(filter(None, (CAPABILITY_PREFIX, cut, code)))

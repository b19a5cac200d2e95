"""Recipe of training subsets: which scored rows each subset contains."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.nemotron.pools_recipe import Condition, StratumColumns, check_folder_name, condition_columns
from pipeline_assets.spine.key_types import Decimal
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import RecipeSection

SUBSETS_STAGE = StageVersion("nemotron_training_subsets", 2)


class SubsetRule(RecipeSection):
    """Rule that selects the rows of a subset.

    Attributes:
        percentile: Lowest and highest `percentile_within_split`, both included: numbers from 0 to 100.
        where: Conditions that must all hold, in SQL over the columns of a row; see `parse_condition`.
        max_rows: Maximum number of rows over all splits; None for no limit.
        balance: Columns that divide rows into strata, one for each combination of values (null is a value); True means
            `meta_domain`. Strata get equal shares of `max_rows`; the unused part of a small stratum's share is divided
            among the other strata. Without `max_rows`, each stratum gets as many rows as the smallest stratum has.
    """

    percentile: Annotated[tuple[Decimal, Decimal], pydantic.Field(strict=False)] = ("0", "100")
    where: Annotated[tuple[Condition, ...], pydantic.Field(strict=False)] = ()
    max_rows: int | None = pydantic.Field(default=None, ge=1)
    balance: bool | StratumColumns = False

    @pydantic.field_validator("percentile")
    @classmethod
    def _check_percentile(cls, percentile: tuple[str, str]) -> tuple[str, str]:
        low, high = map(Fraction, percentile)
        if not low <= high <= 100:
            raise ValueError("must be the lower percentile, then the higher one, at most 100")
        return percentile

    @property
    def percentile_range(self) -> tuple[float, float]:
        """Lowest and highest percentile, as floats."""
        return float(self.percentile[0]), float(self.percentile[1])

    @property
    def strata_columns(self) -> tuple[str, ...]:
        """Columns whose values divide rows into strata; empty without `balance`."""
        return ("meta_domain",) if self.balance is True else self.balance or ()


_UNVERIFIED_CONDITIONS = (  # unknown correctness, and no reported fault; a null flag reports none
    "meta_correctness IS NULL",
    "COALESCE(quality_valid_harmony, TRUE)",
    "COALESCE(quality_completion_nonempty, TRUE)",
    "COALESCE(quality_valid_tool_schema, TRUE)",
    "COALESCE(quality_known_channels, TRUE)",
    "NOT COALESCE(quality_is_duplicate, FALSE)",
    "COALESCE(quality_control_characters, 0) = 0",
    "COALESCE(quality_stalled_calls, 0) = 0",
    "COALESCE(quality_repetition, 0) < 0.5",
)


def _default_rules() -> dict[str, SubsetRule]:
    rules = {
        # Rows that the model handles well, to preserve its behaviour while weights change.
        "anchor": SubsetRule(percentile=("0", "25"), where=("meta_correctness = 1",)),
        # Typical rows, to restore abilities that a change of the model's architecture damaged.
        "restoration": SubsetRule(percentile=("40", "60")),
        # Rows that surprise the model most. With fewer correct attempts, a high NLL indicates wrong answers.
        "challenge": SubsetRule(percentile=("90", "100"), where=("meta_correctness >= 0.5",)),
        # Rows from which the model can gain most. Few have the highest NLL, because `challenge` selects first.
        "learning": SubsetRule(percentile=("75", "100"), where=("meta_correctness >= 0.75",)),
    }
    by_correctness = {name: rule for name, rule in rules.items() if rule.where}
    return rules | {
        f"{name}_unverified": rule.model_copy(update={"where": _UNVERIFIED_CONDITIONS})
        for name, rule in by_correctness.items()
    }


class SubsetsRecipe(RecipeSection):
    """Training subsets of scored rows.

    If `disjoint`, a row belongs only to the first rule that selects it. If `max_rows` prevents a rule from selecting a
    row, a later rule may select the row.
    """

    rules: Annotated[Mapping[str, SubsetRule], pydantic.Field(default_factory=_default_rules, min_length=1)]
    # Order in which rules select rows; by default the order of `rules`, which manifests do not keep.
    order: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = ()
    disjoint: bool = True
    seed: int = 0  # of the random choice if a rule selects only some of its candidates
    tokens: bool = True  # whether token files are written; see `subset_tokens`
    terminators: bool = True  # whether terminators count in loss masks; see `CountedControlTokens`
    headers: bool = False  # whether headers count in loss masks; see `CountedControlTokens`

    @pydantic.field_validator("rules")
    @classmethod
    def _check_names(cls, rules: Mapping[str, SubsetRule]) -> Mapping[str, SubsetRule]:
        for name in rules:
            check_folder_name(name)
        return rules

    @pydantic.model_validator(mode="before")
    @classmethod
    def _store_order(cls, values: Any) -> Any:
        rules = values.get("rules", _default_rules()) if isinstance(values, Mapping) else None
        return {"order": [*rules], **values} if isinstance(rules, Mapping) else values

    @pydantic.model_validator(mode="after")
    def _check_order(self) -> Self:
        if sorted(self.order) != sorted(self.rules):
            raise ValueError(f"`order` must list each of {', '.join(self.rules)} once, got {', '.join(self.order)}")
        return self

    @property
    def ordered_rules(self) -> list[SubsetRule]:
        """Rules in the order in which they select rows."""
        return [self.rules[name] for name in self.order]

    @property
    def condition_columns(self) -> list[str]:
        """All columns that the conditions of the rules use, sorted."""
        return condition_columns(condition for rule in self.rules.values() for condition in rule.where)

"""Recipe of training subsets: which scored rows each subset contains."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.nemotron.pools_recipe import Condition, parse_condition, raise_if_invalid_name
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.section import Decimal, RecipeSection

SUBSETS_STAGE = StageVersion("nemotron_training_subsets", 2)
Percentile = Annotated[Decimal, pydantic.BeforeValidator(lambda value: str(value) if type(value) is int else value)]


class SubsetRule(RecipeSection):
    """The rows of a subset.

    Attributes:
        percentile: the lowest and the highest `percentile_within_split`, both included: whole numbers from 0 to 100, or
            decimal strings.
        where: conditions that all hold, in SQL over the columns of a row, see `parse_condition`.
        max_rows: at most so many, over all splits; None for all.
        balance: whether domains (`meta_domain`; none is one too) have equal shares of `max_rows`; what one lacks goes
            to the others. Without `max_rows` each has as many rows as the domain with the fewest.
    """

    percentile: Annotated[tuple[Percentile, Percentile], pydantic.Field(strict=False)] = ("0", "100")
    where: Annotated[tuple[Condition, ...], pydantic.Field(strict=False)] = ()
    max_rows: int | None = pydantic.Field(default=None, ge=1)
    balance: bool = False

    @pydantic.field_validator("percentile")
    @classmethod
    def _ascends(cls, percentile: tuple[str, str]) -> tuple[str, str]:
        low, high = map(Fraction, percentile)
        if not low <= high <= 100:
            raise ValueError("write the lower percentile first, and 100 at most")
        return percentile

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and the highest percentile."""
        return float(self.percentile[0]), float(self.percentile[1])

    @property
    def columns(self) -> list[str]:
        """Columns that the conditions ask."""
        return sorted({column for one in self.where for column in parse_condition(one).meta.root_names()})


_UNVERIFIED = (
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
        "anchor": SubsetRule(percentile=("0", "25"), where=("meta_correctness = 1",)),
        "restoration": SubsetRule(percentile=("40", "60")),
        "challenge": SubsetRule(percentile=("90", "100"), where=("meta_correctness >= 0.5",)),
        "learning": SubsetRule(percentile=("75", "100"), where=("meta_correctness >= 0.75",)),
    }
    by_correctness = {name: rule for name, rule in rules.items() if rule.where}
    return rules | {
        f"{name}_unverified": rule.model_copy(update={"where": _UNVERIFIED}) for name, rule in by_correctness.items()
    }


class SubsetsRecipe(RecipeSection):
    """The training subsets of scored rows. The default ones, by the NLL of a completion under the scoring model:

    - `anchor`: low NLL, always right. What the model does well: it holds behaviour in place while weights change.
    - `restoration`: the middle of each split. The model's usual ground, neither easy nor hard, to bring back what
      surgery on the model damaged.
    - `challenge`: the highest NLL, right in half of the attempts or more. What surprises the model most; below that, a
      high NLL says more of wrong answers than of hard questions.
    - `learning`: high NLL, mostly right. What the model can gain most from. `challenge` has the first choice of the
      top, so these are mostly the rows below it.
    - `anchor_unverified`, `challenge_unverified`, `learning_unverified`: the same bands, of rows without a correctness
      whose quality flags report no fault. Their answers are unverified. A flag that is null reports no fault.

    Attributes:
        rules: by the names of the subsets.
        order: in which rules take rows; by default that of `rules`. It is written down, as manifests sort keys.
        disjoint: whether a row goes to the first rule alone that takes it. A rule takes its rows, at most `max_rows`,
            from those that no earlier rule has taken: what an earlier one left over its `max_rows` is there for others.
        seed: of the choice where there are too many rows.
        tokens: whether token files are made, see `token_rows`.
        terminators, headers: tokens that count in their loss masks in addition to bodies, see `TokenLoss`.
    """

    rules: Annotated[Mapping[str, SubsetRule], pydantic.Field(default_factory=_default_rules, min_length=1)]
    order: Annotated[tuple[str, ...], pydantic.Field(strict=False)] = ()
    disjoint: bool = True
    seed: int = 0
    tokens: bool = True
    terminators: bool = True
    headers: bool = False

    @pydantic.field_validator("rules")
    @classmethod
    def _name_folders(cls, rules: Mapping[str, SubsetRule]) -> Mapping[str, SubsetRule]:
        for name in rules:
            raise_if_invalid_name(name)
        return rules

    @pydantic.model_validator(mode="before")
    @classmethod
    def _writes_its_order_down(cls, values: Any) -> Any:
        rules = values.get("rules", _default_rules()) if isinstance(values, Mapping) else None
        return {"order": [*rules], **values} if isinstance(rules, Mapping) else values

    @pydantic.model_validator(mode="after")
    def _orders_all_rules(self) -> Self:
        if sorted(self.order) != sorted(self.rules):
            raise ValueError(f"`order` has {', '.join(self.order)}: write each of {', '.join(self.rules)} in it once")
        return self

    @property
    def ordered(self) -> list[SubsetRule]:
        """Rules, in the order in which they take rows."""
        return [self.rules[name] for name in self.order]

    @property
    def columns(self) -> list[str]:
        """Columns that the conditions of all rules ask."""
        return sorted({column for rule in self.rules.values() for column in rule.columns})

"""Weights of several sources: decimals that sum to 1."""

import decimal
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import pydantic

from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.section import RecipeError


def largest_remainders(weights: Sequence[Fraction], total: int) -> list[int]:
    """Divide a total by weights into integers, by the largest remainder method.

    Each share is rounded down; the rest goes to the largest remainders, the first ones of equals.
    """
    shares = [int(weight * total) for weight in weights]
    remainders = [weight * total - share for weight, share in zip(weights, shares, strict=True)]
    for number in sorted(range(len(shares)), key=lambda number: -remainders[number])[: total - sum(shares)]:
        shares[number] += 1
    return shares


def check_weights(weights: Mapping[str, str]) -> Mapping[str, str]:
    """Return the weights; raise ValueError unless all are above 0 with sum 1."""
    for source, weight in weights.items():
        if not _is_above_zero(weight):
            raise ValueError(f"weight of {source} must be a decimal above 0, such as '0.25', got {weight!r}")
    if wrong := _wrong_sum(weights.values()):
        raise ValueError(wrong)
    return weights


Weights = Annotated[Mapping[str, str], pydantic.AfterValidator(check_weights)]


def _is_above_zero(weight: str) -> bool:
    digits = weight.replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and weight[0] != "." and weight[-1] != "." and Decimal(weight) > 0


def _wrong_sum(weights: Collection[str]) -> str | None:
    """Return an error message if weights, each a decimal above 0, do not sum to 1."""
    with decimal.localcontext(prec=1 + sum(map(len, weights))):  # enough for each digit of the sum
        total = sum(map(Decimal, weights), Decimal(0))
    return None if total == 1 else f"weights must sum to 1, got {total:f}"


def check_recipe_weights(
    recipe: Mapping[str, Any], place: tuple[str, ...], sources: Collection[str], *, require_all: bool
) -> Iterator[RecipeError]:
    """Yield the errors of a recipe's weights against its sources.

    A wrong sum is an error here only if a weight has no quotes; the section itself checks quoted weights.

    Args:
        recipe: The recipe before validation.
        place: Keys of the weights in the recipe.
        sources: Names of the sources.
        require_all: Whether a source without a weight is an error if others have one.
    """
    weights = section_at(recipe, *place)
    numbers = [*map(str, weights.values())]
    if numbers != [*weights.values()] and all(map(_is_above_zero, numbers)) and (wrong := _wrong_sum(numbers)):
        yield RecipeError(place, wrong, "correct the weights")
    for name in weights:
        if name not in sources:
            yield RecipeError(
                (*place, name), f"{name} has a weight but is not a source", "correct the name, or remove it"
            )
    for name in sources:
        if require_all and weights and name not in weights:
            yield RecipeError(place, f"source {name} has no weight", f"add one, or remove `{place[-1]}`")

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
    """Whole shares of a total: each rounded down, and one more for those that lose most by it, of equals the first."""
    shares = [int(weight * total) for weight in weights]
    losses = [weight * total - share for weight, share in zip(weights, shares, strict=True)]
    for number in sorted(range(len(shares)), key=lambda number: -losses[number])[: total - sum(shares)]:
        shares[number] += 1
    return shares


def check_weights(weights: Mapping[str, str]) -> Mapping[str, str]:
    """Return the weights; raise ValueError if one is no decimal above 0, or their sum isn't 1."""
    for source, weight in weights.items():
        if not _is_above_zero(weight):
            raise ValueError(f"the weight of {source} is {weight!r}: it is a decimal above 0, such as '0.25'")
    if wrong := _wrong_sum(weights.values()):
        raise ValueError(wrong)
    return weights


Weights = Annotated[Mapping[str, str], pydantic.AfterValidator(check_weights)]


def _is_above_zero(weight: str) -> bool:
    digits = weight.replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and weight[0] != "." and weight[-1] != "." and Decimal(weight) > 0


def _wrong_sum(weights: Collection[str]) -> str | None:
    """What is wrong with the sum of weights, each a decimal above 0; None where it is 1."""
    with decimal.localcontext(prec=1 + sum(map(len, weights))):  # enough for each digit of the sum
        total = sum(map(Decimal, weights), Decimal(0))
    return None if total == 1 else f"the weights sum to {total:f}, not to 1"


def check_recipe_weights(
    recipe: Mapping[str, Any], place: tuple[str, ...], sources: Collection[str], *, of_all: bool
) -> Iterator[RecipeError]:
    """Weights at a place of a recipe, as it was read, of no source, and a wrong sum of weights that aren't all in
    quotes: of others the section says it.

    Args:
        of_all: whether a source without a weight is one too, where others have one.
    """
    weights = section_at(recipe, *place)
    numbers = [*map(str, weights.values())]
    if numbers != [*weights.values()] and all(map(_is_above_zero, numbers)) and (wrong := _wrong_sum(numbers)):
        yield RecipeError(place, wrong, "correct them")
    for name in weights:
        if name not in sources:
            yield RecipeError((*place, name), f"{name} has a weight, and is no source", "correct it, or leave it out")
    for name in sources:
        if of_all and weights and name not in weights:
            yield RecipeError(place, f"source {name} has no weight", f"give it one, or leave out `{place[-1]}`")

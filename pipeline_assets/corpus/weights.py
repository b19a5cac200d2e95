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

    Each share is rounded down; the shares with the largest remainders get one more, the first shares on ties.
    """
    shares = [int(weight * total) for weight in weights]
    remainders = [weight * total - share for weight, share in zip(weights, shares, strict=True)]
    for number in sorted(range(len(shares)), key=lambda number: -remainders[number])[: total - sum(shares)]:
        shares[number] += 1
    return shares


def check_weights(weights: Mapping[str, str]) -> Mapping[str, str]:
    """Return the weights; raise ValueError unless all are above 0 and they sum to 1."""
    for source, weight in weights.items():
        if not _is_positive_decimal(weight):
            raise ValueError(f"weight of {source} must be a decimal above 0, such as '0.25', got {weight!r}")
    if wrong := _sum_error(weights.values()):
        raise ValueError(wrong)
    return weights


Weights = Annotated[Mapping[str, str], pydantic.AfterValidator(check_weights)]


def _is_positive_decimal(weight: str) -> bool:
    digits = weight.replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and weight[0] != "." and weight[-1] != "." and Decimal(weight) > 0


def _sum_error(weights: Collection[str]) -> str | None:
    """Return an error message if decimals do not sum to 1."""
    with decimal.localcontext(prec=1 + sum(map(len, weights))):  # enough for each digit of the sum
        total = sum(map(Decimal, weights), Decimal(0))
    return None if total == 1 else f"weights must sum to 1, got {total:f}"


def check_recipe_weights(
    recipe: Mapping[str, Any], place: tuple[str, ...], sources: Collection[str], *, require_all: bool
) -> Iterator[RecipeError]:
    """Yield the errors of the weights at a place in a recipe, before its validation.

    Weights must name sources; with `require_all`, every source needs a weight if any has one. If all weights are text,
    their sum is not checked here, because the recipe section checks it.
    """
    weights = section_at(recipe, *place)
    numbers = [*map(str, weights.values())]
    if numbers != [*weights.values()] and all(map(_is_positive_decimal, numbers)) and (wrong := _sum_error(numbers)):
        yield RecipeError(place, wrong, "correct the weights")
    for name in weights:
        if name not in sources:
            what = f"{name} has a weight but is not a source"
            yield RecipeError((*place, name), what, "correct the name, or remove it")
    for name in sources:
        if require_all and weights and name not in weights:
            yield RecipeError(place, f"source {name} has no weight", f"add one, or remove `{place[-1]}`")

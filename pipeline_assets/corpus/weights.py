"""Weights of several sources: shares that sum to 1, or ratios such as 7 and 3."""

import decimal
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any

import pydantic

from pipeline_assets.spine.key_types import DecimalText, decimal_text
from pipeline_assets.spine.recipe_validation import RecipeProblem
from pipeline_assets.spine.recipe_yaml import section_at

# Shares computed from ratios may be fractions, such as 1/3.
_WEIGHT = re.compile(r"[0-9]{1,99}(\.[0-9]{1,99})?|[0-9]{1,999}/[1-9][0-9]{0,999}")


def apportion(weights: Sequence[Fraction], total: int) -> list[int]:
    """Divide a total in proportion to weights that sum to 1, by largest remainder.

    Each share is rounded down. Then 1 is added to the shares with the largest remainders; on ties, to the first ones.
    """
    shares = [int(weight * total) for weight in weights]
    remainders = [weight * total - share for weight, share in zip(weights, shares, strict=True)]
    for number in sorted(range(len(shares)), key=lambda number: -remainders[number])[: total - sum(shares)]:
        shares[number] += 1
    return shares


def to_shares(weights: Mapping[str, str]) -> Mapping[str, str]:
    """Return weights as shares that sum to 1, as decimals if possible.

    Weights that sum to 1 are returned unchanged. Other weights are ratios, such as 7 and 3. Raise ValueError for a
    weight that is not a number above 0, or for ratios that are all below 1 (probably shares with a wrong sum).
    """
    for source, weight in weights.items():
        if not _is_positive(weight):
            raise ValueError(f"weight of {source} must be a number above 0, such as 0.25, got {weight!r}")
    values = {source: Fraction(weight) for source, weight in weights.items()}
    total = sum(values.values(), Fraction())
    if total != 1 and all(value < 1 for value in values.values()):
        raise ValueError(f"weights must sum to 1, got {_format_weight(total)} (ratios, such as 7 and 3, are allowed)")
    return weights if total == 1 else {source: _format_weight(value / total) for source, value in values.items()}


Weights = Annotated[Mapping[str, DecimalText], pydantic.AfterValidator(to_shares)]


def _is_positive(weight: str) -> bool:
    return _WEIGHT.fullmatch(weight) is not None and Fraction(weight) > 0


def _format_weight(weight: Fraction) -> str:
    """Format a weight as a decimal, or as a fraction if no decimal is exact."""
    digits = len(str(weight.numerator)) + weight.denominator.bit_length()  # enough for an exact quotient
    with decimal.localcontext(prec=digits):
        text = f"{(decimal.Decimal(weight.numerator) / weight.denominator).normalize():f}"
    return text if Fraction(text) == weight else str(weight)


def add_missing_weight(recipe: Any, key_path: tuple[str, ...], sources: Collection[str]) -> Any:
    """Add the weight of the only source without one, so that all weights sum to 1.

    `recipe` is the content of a recipe file, valid or not; the weights are at `key_path`. Return a changed copy if
    exactly one weight is missing, and the others are valid and sum to less than 1. Otherwise, return `recipe`.
    """
    weights, missing = section_at(recipe, *key_path), _missing_sources(recipe, key_path, sources)
    if len(missing) != 1 or not (remaining := _remaining_weight(weights)):
        return recipe
    filled: Any = {**weights, missing[0]: remaining}
    for depth in range(len(key_path) - 1, -1, -1):
        filled = {**section_at(recipe, *key_path[:depth]), key_path[depth]: filled}
    return filled


def _missing_sources(recipe: Any, key_path: tuple[str, ...], sources: Collection[str]) -> list[str]:
    weights = section_at(recipe, *key_path)
    return [name for name in dict.fromkeys(sources) if name not in weights] if weights else []


def _remaining_weight(weights: Mapping[str, Any]) -> str | None:
    """Return 1 minus the sum of weights; None if <= 0, or if a weight is invalid."""
    try:
        texts = [*map(decimal_text, weights.values())]
    except ValueError:
        return None
    total = sum(map(Fraction, texts), Fraction()) if all(map(_is_positive, texts)) else Fraction(1)
    return _format_weight(1 - total) if total < 1 else None


def check_recipe_weights(
    recipe: Mapping[str, Any], key_path: tuple[str, ...], sources: Collection[str], *, require_all: bool
) -> Iterator[RecipeProblem]:
    """Yield an error for each unknown or missing source in a recipe's weights.

    The weights are at `key_path`. With `require_all`, a recipe with weights needs a weight for every source; a single
    missing weight is allowed if the other weights sum to less than 1.
    """
    weights, missing = section_at(recipe, *key_path), _missing_sources(recipe, key_path, sources)
    for name in weights:
        if name not in sources:
            what = f"{name} has a weight but is not a source"
            yield RecipeProblem((*key_path, name), what, "correct the name, or remove it")
    if require_all and not (len(missing) == 1 and _remaining_weight(weights)):
        for name in missing:
            yield RecipeProblem(key_path, f"source {name} has no weight", f"add one, or remove `{key_path[-1]}`")

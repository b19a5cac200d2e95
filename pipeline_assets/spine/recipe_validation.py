"""Validation of recipes, with all errors in one report, sorted by line."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pydantic

from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError, combine_errors
from pipeline_assets.spine.recipe_errors import format_validation_errors
from pipeline_assets.spine.section import RecipeSection

FOLDER_KEY = "folder"  # validation context: the folder of the recipe file, whose files sections may name


@dataclass(frozen=True)
class RecipeProblem:
    """Problem of a recipe that types alone do not reveal, such as a contradiction.

    `location` is the path of the key to correct, from the top of the recipe; positions in lists count from 0.
    """

    location: tuple[int | str, ...]
    what: str
    fix: str


R = TypeVar("R", bound=RecipeSection)


def validate_section(
    section_type: type[R],
    values: Mapping[str, object],
    locate: Callable[[Sequence[int | str]], object],
    other_problems: Iterable[RecipeProblem] = (),
    folder: Path | None = None,
) -> R:
    """Build a section from values; raise UsageError with all errors, sorted by line.

    `locate` returns the place of a key, or of its section if the key is missing. `folder` is the folder of the recipe
    file, if the values are from a file.
    """
    errors: list[InputError] = []
    checked = None
    try:
        checked = section_type.model_validate(dict(values), context={FOLDER_KEY: folder})
    except pydantic.ValidationError as error:
        errors += format_validation_errors(error, section_type, locate)
    for problem in _problems_until_error(other_problems, checked is not None):
        dotted = ".".join(map(str, problem.location))
        errors.append(UsageError(problem.what, RecipeKey(dotted, str(locate(problem.location))), problem.fix))
    if checked is None or errors:
        raise combine_errors(sorted(errors, key=_line_number))
    return checked


def _problems_until_error(other_problems: Iterable[RecipeProblem], types_are_valid: bool) -> Iterator[RecipeProblem]:
    """Yield the problems, until the search for them fails on a value of a wrong type.

    If `types_are_valid`, such a failure has another cause, and is raised.
    """
    try:
        yield from other_problems
    except (TypeError, AttributeError, LookupError):
        if types_are_valid:
            raise


def _line_number(error: InputError) -> int:
    line = re.search(r":([0-9]+)$", error.where)
    return int(line[1]) if line else 0


def reject_duplicates(names: Sequence[str], prefix: str, fix: str) -> None:
    """Raise ValueError, with the message `prefix NAME; fix`, if a name occurs twice."""
    repeated = next((name for name, times in Counter(names).items() if times > 1), None)
    if repeated is not None:
        raise ValueError(f"{prefix} {repeated}; {fix}")

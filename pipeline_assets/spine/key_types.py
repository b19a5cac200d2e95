"""Types of recipe keys: names, decimal numbers, shares, file patterns."""

import decimal
import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Annotated

import pydantic

from pipeline_assets.spine.command_option import Option

UNPINNED = "0" * 40  # revision of a dataset that is not pinned yet
COMMIT_PATTERN = r"^[0-9a-f]{40}$"
SHARD_TEXT_BYTES = 1 << 26


def text_rule(is_valid: Callable[[str], object], rule: str) -> pydantic.AfterValidator:
    """Return a validator that raises ValueError(rule) if `is_valid` rejects a text."""

    def check(text: str) -> str:
        if not is_valid(text):
            raise ValueError(rule)
        return text

    return pydantic.AfterValidator(check)


def pattern_rule(pattern: str, rule: str) -> pydantic.AfterValidator:
    """Return a validator that raises ValueError(rule) if a text does not match."""
    return text_rule(re.compile(pattern).fullmatch, rule)


Commit = Annotated[str, pattern_rule(COMMIT_PATTERN, "must be a commit of 40 hex digits")]
SHA256_RULE = "must be a sha256 of 64 hex digits"
Sha256 = Annotated[str, pattern_rule("[0-9a-f]{64}", SHA256_RULE)]
MAX_NAME = 150  # files may have 255 bytes, and their names contain names of recipes and sources
DOTS, DOTS_RULE = "...", "must not contain `...`, which is a range in Dagster's names of partitions"
_NAME_RULE = "must contain only lower-case letters, digits, `_`, `.` and `-`, and start with a letter or digit"

Name = Annotated[
    str,
    pattern_rule(r"[a-z0-9][a-z0-9_.-]*", _NAME_RULE),
    text_rule(lambda name: DOTS not in name, DOTS_RULE),
    text_rule(lambda name: len(name) <= MAX_NAME, f"must have at most {MAX_NAME} characters"),
]


_NUMBER_RULE = "must be a decimal number, such as 0.3"


def decimal_text(value: object) -> str:
    """Return a number's shortest decimal text, or a text unchanged; else ValueError."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(_NUMBER_RULE)
    text = f"{decimal.Decimal(str(value)):f}"  # the repr of NumPy's float64 has its type
    return text.rstrip("0").rstrip(".") if "." in text else text


DecimalText = Annotated[str, pydantic.BeforeValidator(decimal_text, json_schema_input_type=str | int | float)]
"""Text that a recipe may write as a number; quoted text keeps its digits."""
Decimal = Annotated[DecimalText, pattern_rule(r"[0-9]+(\.[0-9]+)?", _NUMBER_RULE)]
Share = Annotated[
    DecimalText,
    pattern_rule(r"-?[0-9]+(\.[0-9]+)?", _NUMBER_RULE),
    text_rule(lambda share: 0 <= Fraction(share) <= 1, "must be in [0, 1]"),
]


def split_patterns(patterns: object) -> object:
    """Split a text into patterns, one per line; return any other value unchanged."""
    return [line.strip() for line in patterns.splitlines() if line.strip()] if isinstance(patterns, str) else patterns


OptionalPatterns = Annotated[
    tuple[str, ...],
    pydantic.Field(strict=False),
    pydantic.BeforeValidator(split_patterns, json_schema_input_type=tuple[str, ...] | str),
]
Patterns = Annotated[OptionalPatterns, pydantic.Field(min_length=1)]
"""File patterns, relative to the source's folder (see `list_files`); on a hub, in fnmatch syntax."""


MaxRejectShare = Annotated[Share, Option("Maximum share of rejected rows; a larger one stops the build.")]

"""Values as JSON text: the content of a message, and defaults in the comments of tool types."""

import json
import math
from decimal import Decimal
from typing import TypeAlias

from pipeline_assets.corpus.harmony.refusal import Reason, Refusal

# openai-harmony reads no JSON beyond a depth of 128; a schema takes two levels a property.
MAX_DEPTH = 60

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


def content_text(content: JsonValue) -> str:
    """The content of a message: a string as it is, anything else as JSON with sorted keys; NaN and infinities, which
    JSON has not, as null.
    """
    if isinstance(content, str):
        return content
    try:
        return json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(finite(content), sort_keys=True, ensure_ascii=False)


def finite(value: JsonValue) -> JsonValue:
    """The value with null for NaN and infinities, at any depth."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def compact_json(value: JsonValue, depth: int = 0) -> str:
    """JSON without blanks, keys in their own order, numbers as openai-harmony (Rust's serde_json) writes them.

    A number is written exactly. openai-harmony, which reads it first, is off in the last digit for some that have more
    than 15 digits or are smaller than 1e-22 or larger than 1e22.

    Raises:
        Refusal: a number that openai-harmony can't read: NaN, infinity, an integer beyond all floats; or a value nested
            deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise Refusal(Reason.SCHEMA_TOO_DEEP, f"a default is nested more than {MAX_DEPTH} deep")
    match value:
        case dict():
            pairs = (f"{_quoted(key)}:{compact_json(one, depth + 1)}" for key, one in value.items())
            return "{" + ",".join(pairs) + "}"
        case list():
            return "[" + ",".join(compact_json(one, depth + 1) for one in value) + "]"
        case bool() | str() | None:
            return _quoted(value)
        case int() if -(2**63) <= value < 2**64:
            return str(value)
    return _float_text(value)


def _quoted(value: str | bool | None) -> str:
    return json.dumps(value, ensure_ascii=False)


def _float_text(value: float) -> str:
    """The shortest digits that give the number back: plain from 1e-5 to below 1e16, else with an exponent."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refusal(Reason.NUMBER_OUT_OF_RANGE, f"{value!r:.40} in a tool's schema")
    sign = "-" if math.copysign(1, number) < 0 else ""
    shortest = Decimal(repr(abs(number))).as_tuple()
    written = "".join(map(str, shortest.digits))
    digits = written.rstrip("0")
    if not digits:
        return f"{sign}0.0"
    point = len(written) + int(shortest.exponent)  # digits before the decimal point
    if 0 < point <= 16:
        digits = digits.ljust(point, "0")
        return f"{sign}{digits[:point]}.{digits[point:] or '0'}"
    if -5 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1}"

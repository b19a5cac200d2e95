"""How often a problem was solved, from the evaluations in `metadata` of Math-v2.

Six conditions, `reason_{high,medium,low}_{with,no}_tool`, each `{count, pass, accuracy}`: of `count` attempts, `pass`
were right.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from pipeline_assets.corpus.harmony.json_text import JsonValue

# Of conditions with equal correctness the first here is the best.
CONDITIONS = ("high_with_tool", "high_no_tool", "medium_with_tool", "medium_no_tool", "low_with_tool", "low_no_tool")


class Correctness(NamedTuple):
    """What the conditions say of a problem; each null where no attempt tells it.

    Attributes:
        correctness: the highest over the conditions, 0 to 1, rounded to four digits as the stored accuracy is.
        correctness_high: the highest over the two of high reasoning effort.
        pass_k: the attempts of the best condition.
        correct_count: how many of them were right.
        correctness_condition: the best condition, as `CONDITIONS` names it.
        difficulty_bin: from all attempts under all conditions together: `unsolved`, none was right; `hard`, up to a
            quarter; `medium`, up to three quarters; `easy`, more.
    """

    correctness: float | None
    correctness_high: float | None
    pass_k: int | None
    correct_count: int | None
    correctness_condition: str | None
    difficulty_bin: str | None


class _Attempts(NamedTuple):
    accuracy: float
    attempts: int | None
    passed: int | None


UNKNOWN = Correctness(None, None, None, None, None, None)


def correctness_of(evaluations: Mapping[str, JsonValue]) -> Correctness:
    """What the conditions say together.

    A condition says nothing whose count is 0, or which contradicts itself (more right than attempted, no numbers). If
    count or pass is missing, the accuracy counts, and pass_k and correct_count are null. Numbers may be text.
    """
    found = {}
    for condition in CONDITIONS:
        given = evaluations.get(f"reason_{condition}")
        if isinstance(given, dict) and (attempts := _attempts(given)) is not None:
            found[condition] = attempts
    if not found:
        return UNKNOWN
    best = max(found, key=lambda condition: found[condition].accuracy)  # the first of equals
    high = [attempts.accuracy for condition, attempts in found.items() if condition.startswith("high_")]
    return Correctness(
        found[best].accuracy,
        max(high, default=None),
        found[best].attempts,
        found[best].passed,
        best,
        _difficulty_bin([attempts for attempts in found.values() if attempts.attempts]),
    )


def _difficulty_bin(attempts: list[_Attempts]) -> str | None:
    count = sum(one.attempts or 0 for one in attempts)
    passed = sum(one.passed or 0 for one in attempts)
    if not count:
        return None
    if not passed:
        return "unsolved"
    if 4 * passed <= count:
        return "hard"
    return "medium" if 4 * passed <= 3 * count else "easy"


def _attempts(condition: Mapping[str, JsonValue]) -> _Attempts | None:
    count, passed = _whole(condition.get("count")), _whole(condition.get("pass"))
    if count is not None and passed is not None:
        return _Attempts(round(passed / count, 4), count, passed) if 0 <= passed <= count and count else None
    accuracy = _number(condition.get("accuracy"))
    if count == 0 or accuracy is None or not 0 <= accuracy <= 1:
        return None
    return _Attempts(round(accuracy, 4), None, None)


def _whole(value: JsonValue) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) and abs(number) < 2**31 else None


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None

"""Conversion of the times of pandas, which Arrow returns for nanoseconds."""

from typing import Any


def to_stdlib_times(value: Any) -> Any:
    """Convert pandas times, also in lists and dicts, to standard types or text."""
    match type(value).__name__:
        case "list" | "tuple":
            return [to_stdlib_times(item) for item in value]
        case "dict":
            return {key: to_stdlib_times(item) for key, item in value.items()}
        case "Timestamp":
            return str(value) if value.nanosecond else value.to_pydatetime()
        case "Timedelta":
            return str(value) if value.nanoseconds else value.to_pytimedelta()
    return value

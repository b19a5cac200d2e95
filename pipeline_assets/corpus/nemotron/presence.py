"""What a row has: absent, null, `""` and `[]` all mean that it has not.

The same rows reach us as published JSON, where a key is absent, and through Arrow, which fills it with null.
"""

import json
from collections.abc import Mapping
from typing import TypeAlias

from pipeline_assets.corpus.harmony.json_text import JsonValue, finite

Row: TypeAlias = Mapping[str, JsonValue]

# Made once: json.dumps would make an encoder for every value. JSON can't hold itself.
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, check_circular=False, allow_nan=False
).encode


def is_there(value: JsonValue) -> bool:
    """Whether a column or key has a value; `{}`, 0 and false are values."""
    return value is not None and value != "" and value != []


def canonical_text(value: JsonValue) -> str:
    """JSON with sorted keys and without blanks: one value, one text. Numbers are written as Python writes them; NaN and
    infinities, which Parquet has and JSON has not, as null.
    """
    try:
        return _encode(value)
    except ValueError:
        return _encode(finite(value))


def text_of(value: JsonValue) -> str | None:
    """A column that should be text: null if it is not there, canonical JSON if it is of another type."""
    if not is_there(value):
        return None
    return value if isinstance(value, str) else canonical_text(value)

"""The bytes that are hashed when a value is named by its content."""

import hashlib
import json

_ALLOWED = "canonical JSON holds dicts with text keys, lists, text, whole numbers, booleans and null"


def canonical_json(value: object) -> bytes:
    """UTF-8 JSON with keys sorted by code point and no spaces: one value, one byte string, on every machine.

    Floats are refused, not rounded: a fraction belongs in a decimal string, which says exactly what was meant.

    Raises:
        TypeError: a float, bytes, a key that is not text, or any other type.
        UnicodeEncodeError: text with a lone surrogate, which UTF-8 can't hold.
    """
    _refuse_others(value)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def sha256_of(value: object) -> str:
    """Hex sha256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def _refuse_others(value: object) -> None:
    match value:
        case None | bool() | int() | str():
            return
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise TypeError(f"{_ALLOWED}; got the key {key!r}")
                _refuse_others(item)
        case list() | tuple():
            for item in value:
                _refuse_others(item)
        case _:
            raise TypeError(f"{_ALLOWED}; got {type(value).__name__} {value!r}")

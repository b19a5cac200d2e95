"""Recipe keys whose values changed."""

import re
from collections.abc import Mapping
from typing import Any

_SHOWN_CHARACTERS = 60
_SHA256 = re.compile("[0-9a-f]{64}")


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Map the dotted key of each changed value to the text `old → new`, keys sorted."""
    changed = dict[str, str]()
    for part in sorted(old.keys() | new.keys()):
        before, after = old.get(part), new.get(part)
        if before == after or (part == "code" and "pins" in old.keys() & new.keys()):  # the text of a pinned file
            continue
        # A missing section counts as empty, so that each key of a new or removed section is listed.
        was, is_now = ({} if value is None else value for value in (before, after))
        if isinstance(was, Mapping) and isinstance(is_now, Mapping) and (was or is_now):
            changed |= changed_keys(was, is_now, f"{prefix}{part}.")
        else:
            changed[f"{prefix}{part}"] = f"{_short(before)} → {_short(after)}"
    return changed


def _short(value: object) -> str:
    text = str(value)
    if _SHA256.fullmatch(text):
        return f"{text[:12]}…"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

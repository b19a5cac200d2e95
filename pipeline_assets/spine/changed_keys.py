"""Recipe keys whose values changed."""

import itertools
import re
from collections.abc import Mapping
from typing import Any

_PREVIEW_CHARACTERS, _CONTEXT_CHARACTERS = 60, 20  # of a value; before the first difference of long values
_SHA256 = re.compile("[0-9a-f]{64}")


def changed_keys(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Map the dotted keys of changed recipe values to descriptions, sorted by key.

    Each description is `OLD → NEW`, `added NEW` or `removed OLD`, with long values cut. The description of a
    long list has only the added and removed entries, if any. The key `code` is skipped if `old` and `new` both have the
    key `pins`, which contains a hash of the code. Each returned key begins with `prefix`.
    """
    changed = dict[str, str]()
    for part in sorted(old.keys() | new.keys()):
        before, after = old.get(part), new.get(part)
        if before == after or (part == "code" and "pins" in old.keys() & new.keys()):  # `pins` has its hash
            continue
        # A missing section counts as empty, so that each key of a new or removed section is listed.
        was, now = ({} if value is None else value for value in (before, after))
        if isinstance(was, Mapping) and isinstance(now, Mapping) and (was or now):
            changed |= changed_keys(was, now, f"{prefix}{part}.")
        else:
            changed[f"{prefix}{part}"] = _describe(before, after)
    return changed


def _describe(old: object, new: object) -> str:
    if old is None or new is None:
        return f"added {_shorten(str(new))}" if old is None else f"removed {_shorten(str(old))}"
    texts = str(old), str(new)
    is_long = max(map(len, texts)) > _PREVIEW_CHARACTERS
    if is_long and isinstance(old, list | tuple) and isinstance(new, list | tuple):
        known, current = ({str(entry) for entry in entries} for entries in (old, new))
        differing = {
            "added": [entry for entry in new if str(entry) not in known],
            "removed": [entry for entry in old if str(entry) not in current],
        }
        if any(differing.values()):
            return "; ".join(f"{word} {_shorten(str(part)[1:-1])}" for word, part in differing.items() if part)
    equal = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
    start = sum(1 for _ in equal) - _CONTEXT_CHARACTERS
    if is_long and start > 0 and not any(map(_SHA256.fullmatch, texts)):
        texts = f"…{texts[0][start:]}", f"…{texts[1][start:]}"
    return " → ".join(map(_shorten, texts))


def _shorten(text: str) -> str:
    if _SHA256.fullmatch(text):
        return f"{text[:12]}…"
    return text if len(text) <= _PREVIEW_CHARACTERS else f"{text[:_PREVIEW_CHARACTERS]}…"

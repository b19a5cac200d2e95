"""The id of a text that has no other."""

import hashlib


def sha1_text_id(text: str) -> str:
    """Hex sha1 of its UTF-8, 40 characters.

    Raises:
        UnicodeEncodeError: it holds a lone surrogate; no UTF-8 has it.
    """
    return hashlib.sha1(text.encode("utf-8"), usedforsecurity=False).hexdigest()

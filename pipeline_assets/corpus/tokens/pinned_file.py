"""Tokenizer files: assets with a pinned sha256, checked whenever they are loaded."""

import hashlib
from pathlib import Path
from typing import Annotated

import pydantic

from pipeline_assets.corpus.spine.errors import InputError

Sha256 = Annotated[str, pydantic.Field(pattern="^[0-9a-f]{64}$")]


def read_pinned(path: Path, sha256: str, fix: str) -> bytes:
    """The bytes of a tokenizer file.

    Args:
        fix: what to do where there is none.
    Raises:
        InputError: it can't be read, or its hash is not the pinned one (names both).
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the tokenizer file can't be read ({error.strerror})", path, fix) from None
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        cure = "restore the file, or pin the hash of the one you mean"
        raise InputError(f"sha256 is {actual}, pinned {sha256}", path, cure)
    return data

"""Recipe and reader of a tokenizer file that is pinned by its sha256."""

import hashlib
from pathlib import Path
from typing import Literal

from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.key_types import Sha256
from pipeline_assets.spine.section import RecipeSection


class FileTokenizerRecipe(RecipeSection):
    """Recipe of a tokenizer file: its family, sha256 and end-of-document token."""

    family: Literal["hf_tokenizer", "sentencepiece"]
    sha256: Sha256
    end_of_document: str


def read_pinned(path: Path, sha256: str, fix: str) -> bytes:
    """Read a tokenizer file; InputError if it is unreadable or its hash is wrong."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the tokenizer file ({error.strerror})", path, fix) from None
    actual = hashlib.sha256(data).hexdigest()
    if actual != sha256:
        remedy = "restore the file, or pin the hash of the intended file"
        raise InputError(f"sha256 is {actual}, pinned {sha256}", path, remedy)
    return data

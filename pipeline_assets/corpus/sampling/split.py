"""Train or valid, by a hash of the document id: the same document always lands in the same split; and its budget."""

import hashlib
from collections.abc import Callable
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = ("train", "valid")
RULE = "int.from_bytes(sha256(doc_id as UTF-8)[:8], 'big') < int(Fraction(valid_fraction) * 2**64) is valid"


def describe_split(valid_fraction: str) -> dict[str, str]:
    """The rule for who reads a manifest: its name, in words, as a formula, and the fraction."""
    return {
        "name": "sha256_first_64_bits",
        "in_words": "a document is valid if the first 64 bits of its doc_id's sha256, taken as a number, are below "
        "valid_fraction of 2**64; else it is train",
        "formula": RULE,
        "valid_fraction": valid_fraction,
    }


def split_rule(valid_fraction: str) -> Callable[[str], Split]:
    """The split of a doc_id: valid if the first 64 bits of its sha256, as a number, are below valid_fraction * 2**64.

    Args:
        valid_fraction: a decimal string in [0, 1], such as "0.1".
    """
    threshold = int(Fraction(valid_fraction) * 2**64)

    def split_of(doc_id: str) -> Split:
        digest = hashlib.sha256(doc_id.encode("utf-8")).digest()
        return "valid" if int.from_bytes(digest[:8], "big") < threshold else "train"

    return split_of


def split_budget(token_budget: int, valid_fraction: str, split: Split) -> int:
    """Tokens of one split: valid has its fraction of the budget, rounded down, train has the rest."""
    valid = int(Fraction(valid_fraction) * token_budget)
    return valid if split == "valid" else token_budget - valid


def documents_that_fit(lengths: NDArray[np.int32], budget: int) -> int:
    """How many documents, from the first on, have at most `budget` tokens together.

    The first document that doesn't fit ends it; shorter ones after it are not looked at.

    Args:
        lengths: tokens per document, shape (documents,); may be empty.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    return int(np.searchsorted(ends, budget, side="right"))

"""Training set of a corpus: shards, splits and token budget."""

import fnmatch
import hashlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.document_shards import SHARDS_FOLDER
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.key_types import Share
from pipeline_assets.spine.manifest import FileContent, Manifest, StageVersion
from pipeline_assets.spine.section import RecipeSection

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = ("train", "valid")
SPLIT_RULE = "int.from_bytes(sha256(doc_id as UTF-8)[:8], 'big') < int(Fraction(valid_fraction) * 2**64) is valid"
SELECTION_STAGE = StageVersion("text_selection", 2)
_PREVIEW_SHARDS = 5


class SelectionRecipe(RecipeSection):
    """Path patterns that select shards of a snapshot; shards keep the manifest order."""

    shards: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)] = (f"{SHARDS_FOLDER}/*",)


class TextRecipe(SelectionRecipe):
    """Selection of shards, and the division into the splits `train` and `valid`.

    Attributes:
        valid_fraction: Fraction of documents in the split `valid`. A hash of the doc_id decides a document's split.
    """

    valid_fraction: Share


def select_shards(corpus: Artifact, recipe: TextRecipe) -> BuildResult:
    """Build a text manifest of selected shards; UsageError if a pattern has no match."""
    available = [file for file in corpus.manifest.identity.files if file.path.startswith(f"{SHARDS_FOLDER}/")]
    for pattern in recipe.shards:
        if not any(fnmatch.fnmatchcase(file.path, pattern) for file in available):
            existing = f"{available[0].path} to {available[-1].path}" if available else "none"
            fix = f"correct `selection.shards`; existing shards: {existing}"
            raise UsageError(f"no shard matches {pattern!r}", corpus.folder, fix)
    chosen = [file for file in available if any(fnmatch.fnmatchcase(file.path, pattern) for pattern in recipe.shards)]
    for file in chosen:
        corpus.path(file.path)
    counts, decided = corpus.manifest.identity.counts, corpus.manifest.identity.decisions
    return BuildResult(
        files=[],
        counts={"documents": sum(file.rows for file in chosen), "shards": len(chosen)},
        decisions={
            "shards": [vars(file) for file in chosen],
            "invariants": {
                "doc_ids_unique": True,
                "doc_id": decided["doc_id"],
                "english_filter_applied": decided["english_filter_applied"],
                "normalisation": decided["normalisation"],
                "nul_characters_removed": counts["nul_characters_removed"],
                "split": describe_split(recipe.valid_fraction),
            },
        },
    )


def read_selection(selection: Manifest) -> Sequence[FileContent]:
    """List the shards of a text manifest, in manifest order."""
    return [FileContent(**shard) for shard in selection.identity.decisions["shards"]]


def preview_selection(selection: Artifact) -> list[dict[str, str]]:
    """Return path, document count and sha256 of a text manifest's first shards."""
    shards = read_selection(selection.manifest)[:_PREVIEW_SHARDS]
    return [{"shard": file.path, "documents": f"{file.rows:,}", "sha256": file.content_sha256} for file in shards]


def describe_split(valid_fraction: str) -> dict[str, str]:
    """Describe the split rule for a manifest: name, text, formula and fraction."""
    return {
        "name": "sha256_first_64_bits",
        "in_words": "a document is valid if the first 64 bits of its doc_id's sha256, taken as a number, are below "
        "valid_fraction of 2**64; else it is train",
        "formula": SPLIT_RULE,
        "valid_fraction": valid_fraction,
    }


def split_rule(valid_fraction: str) -> Callable[[str], Split]:
    """Return a function that assigns a doc_id to a split by `SPLIT_RULE`.

    `valid_fraction` is a decimal string in [0, 1], such as "0.1".
    """
    threshold = int(Fraction(valid_fraction) * 2**64)  # a float would round the decimal
    # Bytes are compared from the left, like big-endian numbers. The first 64 bits of 32 bytes are below 2**64.
    below = threshold.to_bytes(8, "big") if threshold < 2**64 else b"\xff" * 33

    def assign_split(doc_id: str) -> Split:
        return "valid" if hashlib.sha256(doc_id.encode()).digest() < below else "train"

    return assign_split


def split_budget(token_budget: int, valid_fraction: str, split: Split) -> int:
    """Return the token budget of one split; the budget of `valid` is rounded down."""
    valid = int(Fraction(valid_fraction) * token_budget)
    return valid if split == "valid" else token_budget - valid


def count_fitting(lengths: NDArray[np.int32], budget: int) -> int:
    """Return how many leading documents have at most `budget` tokens in total.

    `lengths` has the tokens per document, shape (documents,), and may be empty.
    """
    ends = np.cumsum(lengths, dtype=np.int64)  # tokens of each prefix, ascending
    return int(np.searchsorted(ends, budget, side="right"))

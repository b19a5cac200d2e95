"""A text manifest: which Document shards of a snapshot a training set is made of, and what holds for them."""

import fnmatch
from collections.abc import Sequence
from typing import Annotated

import pydantic

from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.sampling import describe_split
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.manifest import FileContent, Manifest, StageVersion
from pipeline_assets.corpus.spine.recipe import RecipePart, Share
from pipeline_assets.corpus.spine.target import BuildResult

SELECTION_STAGE = StageVersion("text_selection", 2)


class SelectionRecipe(RecipePart):
    """Which shards of the snapshot belong to the set, by patterns of their paths, in manifest order."""

    shards: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)] = (f"{SHARDS}/*",)


class TextRecipe(SelectionRecipe):
    """The selection as a training set: which documents are its valid ones too.

    Attributes:
        valid_fraction: share of the documents, by hash.
    """

    valid_fraction: Share


def select_shards(corpus: Artifact, recipe: TextRecipe) -> BuildResult:
    """The selection and its invariants; the build that asks for it holds each shard against its hash.

    Raises:
        UsageError: a pattern that matches no shard.
    """
    available = [file for file in corpus.manifest.identity.files if file.path.startswith(f"{SHARDS}/")]
    for pattern in recipe.shards:
        if not any(fnmatch.fnmatchcase(file.path, pattern) for file in available):
            shown = f"{available[0].path} to {available[-1].path}" if available else "none"
            fix = f"correct `selection.shards`; there are {shown}"
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


def selected_shards(selection: Manifest) -> Sequence[FileContent]:
    """The shards that a text manifest names, in manifest order."""
    return [FileContent(**shard) for shard in selection.identity.decisions["shards"]]

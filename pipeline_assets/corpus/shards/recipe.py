"""Recipes of token shards and of their segments."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.normalize.sources import FileSource, HubSource
from pipeline_assets.corpus.packing.recipe import SeqLen
from pipeline_assets.corpus.tokens.loss_limit import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.trained_tokenizer import TrainRecipe
from pipeline_assets.corpus.weights import Weights
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.key_types import Name
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.recipe_validation import RecipeProblem, reject_duplicates
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.spine.section import RecipeSection

SHARDS_STAGE = StageVersion("token_shards", 1)
INVENTORY_STAGE = StageVersion("token_inventory", 2)
SEGMENTS_STAGE = StageVersion("token_segments", 1)
Dtype = Literal["uint16", "int32"]
_UINT16_ID_COUNT = 1 << 16
AnySource = Annotated[HubSource | FileSource, pydantic.Field(discriminator="kind")]


class ShardsRecipe(RecipeSection):
    """Format of token shards.

    Attributes:
        seq_len: Tokens per row.
        rows_per_shard: Rows per file; the last file may have fewer.
        dtype: Dtype of token ids. Default (None): uint16 if it can hold every id of the vocabulary, otherwise int32.
    """

    seq_len: SeqLen = 2048
    rows_per_shard: int = pydantic.Field(16_384, ge=1)
    dtype: Dtype | None = None

    def dtype_for(self, vocabulary_size: int) -> Dtype:
        """Return the dtype of token ids; UsageError if uint16 is set but too small."""
        fits = vocabulary_size <= _UINT16_ID_COUNT
        if self.dtype == "uint16" and not fits:
            what = f"uint16 allows only ids below {_UINT16_ID_COUNT:,}, and the vocabulary has {vocabulary_size:,}"
            raise UsageError(what, RecipeKey("shards.dtype"), "remove it, or set int32")
        return self.dtype or ("uint16" if fits else "int32")


class SegmentSection(RecipeSection):
    """Recipe section of one segment of a continual training run.

    Attributes:
        tokens: Number of tokens, which is rounded down to whole rows.
        weights: Share of each corpus in these tokens.
    """

    name: Name
    tokens: int = pydantic.Field(ge=1)
    weights: Weights


class SegmentsRecipe(RecipeSection):
    """Recipe section `segments`: all segments, in training order."""

    segments: Annotated[tuple[SegmentSection, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.field_validator("segments")
    @classmethod
    def _check_names(cls, segments: tuple[SegmentSection, ...]) -> tuple[SegmentSection, ...]:
        reject_duplicates([segment.name for segment in segments], "there are two segments", "give each its own name")
        return segments

    def corpora(self) -> list[str]:
        """Return the names of all corpora that segments use, in order of first use."""
        return list(dict.fromkeys(name for segment in self.segments for name in segment.weights))

    def tokens_by_corpus(self) -> dict[str, int]:
        """Return the total tokens that the segments need, by corpus, rounded down."""
        shares = [
            (name, segment.tokens * Fraction(share))
            for segment in self.segments
            for name, share in segment.weights.items()
        ]
        return {corpus: int(sum(share for name, share in shares if name == corpus)) for corpus in self.corpora()}


class TrainedTokenizerSection(TrainRecipe):
    """Recipe section of a tokenizer that is trained on sources of the recipe."""

    kind: Literal["trained"]


class ExternalTokenizerSection(FileTokenizerRecipe):
    """Recipe section of a tokenizer in an existing file.

    Attributes:
        path: Path of the file, absolute or relative to the data root. The path changes no byte, because `sha256` pins
            the content.
    """

    kind: Literal["file"]
    path: str

    def without_path(self) -> FileTokenizerRecipe:
        """Return the section without `kind` and `path`, which change no byte."""
        return FileTokenizerRecipe(family=self.family, sha256=self.sha256, end_of_document=self.end_of_document)


AnyTokenizer = Annotated[TrainedTokenizerSection | ExternalTokenizerSection, pydantic.Field(discriminator="kind")]


class ShardsSection(ShardsRecipe):
    """Recipe section of token shards.

    Attributes:
        sources: Sources to shard, and the share of each in the training mixture; no shard depends on these shares.
        max_unknown_fraction: Largest share of a source's text that the tokenizer may lose; changes no byte.
    """

    sources: Weights
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    def corpus_content(self) -> dict[str, Any]:
        """Return the settings on which the bytes of a corpus's shards depend."""
        return {key: value for key, value in self.content().items() if key in ShardsRecipe.model_fields}


_KINDS_WITH_LICENCES = ("wikipedia", "stackexchange", "normalized")  # in each document or in the reader


def check_licences(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield an error for each source whose documents would have no licence.

    The licence tag `unknown` suffices only for sources that neither the tokenizer nor the shards use.
    """
    used = {*section_at(recipe, "tokenizer", "sources"), *section_at(recipe, "shards", "sources")}
    for position, section in sections_at(recipe, "sources"):
        columns, tag = section_at(section, "columns"), section.get("license_tag")
        is_unknown = tag is None or (tag == UNKNOWN and section.get("source") in used)
        has_licence = (
            columns.get("license") or section.get("license_files") or section.get("kind") in _KINDS_WITH_LICENCES
        )
        if is_unknown and not has_licence:
            fix = "set `license_tag` to it, or `columns.license` to the column that contains it"
            what = f"no licence is set for {section.get('source')}"
            yield RecipeProblem(("sources", position, "license_tag"), what, fix)


def check_segment_lengths(recipe: Mapping[str, Any]) -> Iterator[RecipeProblem]:
    """Yield an error for each segment that is shorter than a row of shards."""
    seq_len = section_at(recipe, "shards").get("seq_len", ShardsRecipe.model_fields["seq_len"].default)
    segments = [] if recipe.get("shards") is None else sections_at(recipe, "segments", "segments")
    for position, segment in segments:
        tokens = segment.get("tokens")
        if isinstance(tokens, int) and isinstance(seq_len, int) and 0 < tokens < seq_len:
            what = f"segment {segment.get('name')} has {tokens:,} tokens, fewer than a row of {seq_len:,}"
            yield RecipeProblem(("segments", "segments", position, "tokens"), what, "request at least one row")

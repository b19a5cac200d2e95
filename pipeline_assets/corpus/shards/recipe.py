"""Recipes of token shards and of their segments."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.normalize.sources import FileSource, HubSource
from pipeline_assets.corpus.packing.recipe import SeqLen
from pipeline_assets.corpus.tokens.losses import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.corpus.tokens.tokenizer import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.trained_tokenizer import TrainRecipe
from pipeline_assets.corpus.weights import Weights
from pipeline_assets.spine.errors import RecipeKey, UsageError
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.recipe_yaml import section_at, sections_at
from pipeline_assets.spine.section import Name, RecipeError, RecipeSection, reject_duplicate_keys

SHARDS_STAGE = StageVersion("token_shards", 1)
INVENTORY_STAGE = StageVersion("token_inventory", 2)
SEGMENTS_STAGE = StageVersion("token_segments", 1)
Dtype = Literal["uint16", "int32"]
_UINT16_IDS = 1 << 16
Source = Annotated[HubSource | FileSource, pydantic.Field(discriminator="kind")]


class ShardsRecipe(RecipeSection):
    """Token shards.

    Attributes:
        seq_len: tokens in a row.
        rows_per_shard: of each file but the last.
        dtype: of ids; None takes uint16 where it holds every id of the vocabulary, else int32.
    """

    seq_len: SeqLen = 2048
    rows_per_shard: int = pydantic.Field(16_384, ge=1)
    dtype: Dtype | None = None

    def dtype_for(self, vocabulary_size: int) -> Dtype:
        """Raises UsageError where uint16 is asked for, and doesn't hold every id."""
        fits = vocabulary_size <= _UINT16_IDS
        if self.dtype == "uint16" and not fits:
            what = f"uint16 holds ids below {_UINT16_IDS:,}, and the vocabulary has {vocabulary_size:,}"
            raise UsageError(what, RecipeKey("shards.dtype"), "leave it out, or ask for int32")
        return self.dtype or ("uint16" if fits else "int32")


class SegmentSection(RecipeSection):
    """A segment: `tokens`, rounded down to whole rows, of which each corpus gives its weight."""

    name: Name
    tokens: int = pydantic.Field(ge=1)
    weights: Weights


class SegmentsRecipe(RecipeSection):
    """Segments, in the order in which they are trained on."""

    segments: Annotated[tuple[SegmentSection, ...], pydantic.Field(strict=False, min_length=1)]

    @pydantic.field_validator("segments")
    @classmethod
    def _have_names_of_their_own(cls, segments: tuple[SegmentSection, ...]) -> tuple[SegmentSection, ...]:
        reject_duplicate_keys([one.name for one in segments], "there are two segments", "give each its own name")
        return segments

    def corpora(self) -> list[str]:
        """Names of the corpora that segments take rows of, each once, as they come."""
        return list(dict.fromkeys(name for segment in self.segments for name in segment.weights))


class TrainedTokenizer(TrainRecipe):
    """A tokenizer that is trained on sources of the recipe."""

    kind: Literal["trained"]


class ExternalTokenizer(FileTokenizerRecipe):
    """A tokenizer that is there already.

    Attributes:
        path: of its file, absolute or below the data root; changes no byte, since `sha256` pins what is in it.
    """

    kind: Literal["file"]
    path: str

    def file(self) -> FileTokenizerRecipe:
        """What bytes depend on."""
        return FileTokenizerRecipe(family=self.family, sha256=self.sha256, end_of_document=self.end_of_document)


class ShardsSection(ShardsRecipe):
    """Token shards of sources.

    Attributes:
        sources: whose, with the share of each in what is trained on; no shard depends on these shares.
        max_unknown_fraction: largest share of a source that its tokenizer may lose; changes no byte.
    """

    sources: Weights
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    def corpus_content(self) -> dict[str, Any]:
        """What the shards of one corpus depend on."""
        return {key: value for key, value in self.content().items() if key in ShardsRecipe.model_fields}


_OWN_LICENCES = ("wikipedia", "stackexchange", "normalized")  # kinds whose documents say theirs, or whose readers do


def check_licences(values: Mapping[str, Any]) -> Iterator[RecipeError]:
    """Yield sources without a licence. An explicit `unknown` is enough for a source that trains nothing."""
    used = {*section_at(values, "tokenizer", "sources"), *section_at(values, "shards", "sources")}
    for position, section in sections_at(values, "sources"):
        columns, tag = section_at(section, "columns"), section.get("license_tag")
        is_unknown = tag is None or (tag == UNKNOWN and section.get("source") in used)
        has_licence = columns.get("license") or section.get("license_files") or section.get("kind") in _OWN_LICENCES
        if is_unknown and not has_licence:
            fix = "set `license_tag` to it, or `columns.license` to the column that contains it"
            what = f"nothing says the licence of {section.get('source')}"
            yield RecipeError(("sources", position, "license_tag"), what, fix)

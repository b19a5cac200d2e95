"""What counts as a duplicate, and which of several stays."""

from fractions import Fraction
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.sampling.row_groups import Decimal
from pipeline_assets.corpus.spine.errors import key
from pipeline_assets.corpus.spine.recipe import Option, RecipePart

_FINEST = 10**6
Mode = Literal["exact", "near", "both"]
Scope = Literal["global", "per-source"]
Selection = Literal["first", "longest", "quality"]


class MinHashRecipe(RecipePart):
    """Which documents are proposed as near duplicates: those with all rows of a band alike.

    Attributes:
        shingle_words: words in a row that make a shingle.
        permutations: numbers in a signature; bands × rows of them are used, and there are no others.
        seed: of the permutations.
    """

    shingle_words: Annotated[int, Option("Words in a shingle.", default=5)] = pydantic.Field(ge=1, le=100)
    permutations: Annotated[int, Option("Numbers in a signature: bands times rows.", default=112)] = pydantic.Field(
        ge=1, le=4096
    )
    bands: Annotated[int, Option("Default: what `dedup explain` recommends.", default=None)] = pydantic.Field(ge=1)
    rows: int = pydantic.Field(ge=1)
    seed: Annotated[int, Option("Of the permutations.", default=1)] = pydantic.Field(ge=0, lt=2**32)

    @pydantic.model_validator(mode="after")
    def _uses_every_permutation(self) -> Self:
        if self.bands * self.rows != self.permutations:
            what = f"{self.bands} bands of {self.rows} rows use {self.bands * self.rows} permutations"
            raise ValueError(f"{what}, and there are {self.permutations}: make them equal")
        return self


class BinarySketchRecipe(RecipePart):
    """Which documents are proposed as near duplicates: those with binary sketches that differ in few bits.

    Attributes:
        shingle_words: words in a row that make a shingle.
        bits: in a sketch, a multiple of 8.
        max_distance: how many of them may differ.
        seed: of the permutations of which each gives a bit.
    """

    shingle_words: Annotated[int, Option("Words in a shingle.", default=5)] = pydantic.Field(ge=1, le=100)
    bits: Annotated[int, Option("Bits of a sketch, of faiss.", default=256)] = pydantic.Field(
        ge=8, le=4096, multiple_of=8
    )
    max_distance: Annotated[
        int,
        Option("Bits that may differ, of faiss. Default: what `dedup explain` recommends.", default=None),
    ] = pydantic.Field(ge=0)
    seed: Annotated[int, Option("Of the permutations.", default=1)] = pydantic.Field(ge=0, lt=2**32)

    @property
    def permutations(self) -> int:
        """Numbers in a signature."""
        return self.bits

    @pydantic.model_validator(mode="after")
    def _tells_documents_apart(self) -> Self:
        if self.max_distance >= self.bits // 2:
            what = f"{key('near.faiss.max_distance')} is {self.max_distance} of {self.bits} bits"
            raise ValueError(f"{what}, and half of them differ by chance: give a smaller one")
        return self


class NearRecipe(RecipePart):
    """Near duplicates: proposed by MinHash bands or by binary sketches, decided by the shingles of the texts.

    Attributes:
        minhash, faiss: one of them.
        threshold: of the Jaccard similarity of two sets of shingles; at it or above they are duplicates.
        max_compared: in a bucket of documents that share a band, or of those with sketches near its own, each document
            is compared to the first so many.
    """

    minhash: MinHashRecipe | None = None
    faiss: BinarySketchRecipe | None = None
    threshold: Annotated[Decimal, Option("Jaccard similarity from which on two are duplicates.", default="0.7")]
    max_compared: Annotated[int, Option("In a bucket each is compared to so many.", default=100)] = pydantic.Field(ge=1)

    @property
    def proposer(self) -> MinHashRecipe | BinarySketchRecipe:
        """The one that is given."""
        proposer = self.minhash or self.faiss
        assert proposer is not None
        return proposer

    @pydantic.model_validator(mode="after")
    def _has_one_proposer(self) -> Self:
        if (self.minhash is None) == (self.faiss is None):
            raise ValueError("give one of `minhash` and `faiss`, which proposes what is compared")
        return self

    @pydantic.field_validator("threshold")
    @classmethod
    def _is_a_similarity(cls, threshold: str) -> str:
        if not 0 < Fraction(threshold) <= 1:
            raise ValueError(f"a similarity of {threshold}: it is above 0, and 1 at most")
        if Fraction(threshold).denominator > _FINEST:
            raise ValueError(f"a similarity of {threshold}: it has six digits after the point at most")
        return threshold


class DedupRecipe(RecipePart):
    """Which documents of a corpus go because another one stays.

    Attributes:
        mode: `exact` compares normalised texts, `near` sets of shingles, `both` first the one, then the other.
        scope: whether a document may be the duplicate of one in another source.
        selection: which of several stays: the first one in the order of sources and rows, the longest (in UTF-8 bytes),
            or the one with the highest `quality_column`; of several of those the first.
        quality_column: a number in the documents' meta, compared as float32; documents without it come last.
    """

    mode: Annotated[Mode, Option("exact, near or both.", default="both")]
    scope: Annotated[Scope, Option("global or per-source.", default="global")]
    selection: Annotated[
        Selection, Option("Which stays: first, longest or quality.", "near-selection", default="first")
    ]
    quality_column: Annotated[str | None, Option("A number in the documents' meta.", default=None)] = None
    near: NearRecipe | None = None

    def signatures(self) -> dict[str, Any]:
        """The part of it that signatures depend on, by which documents are compared that were never read together."""
        if self.near is None:
            return {"scope": self.scope}
        name = "minhash" if self.near.minhash is not None else "faiss"
        return {"scope": self.scope, name: self.near.proposer.content()}

    @pydantic.model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        if (self.mode == "exact") == (self.near is not None):
            missing = "leave the section `near` out" if self.near else "say what is near, in a section `near`"
            raise ValueError(f"{key('mode')} is {self.mode}: {missing}")
        if (self.selection == "quality") != (self.quality_column is not None):
            raise ValueError(f"{key('selection')} quality goes with a {key('quality_column')}, and no other does")
        return self

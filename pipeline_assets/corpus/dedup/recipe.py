"""Recipe of deduplication: comparison of documents and choice of those to keep."""

import contextlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.dedup.proposal import Banding, DistanceLimit, recommend_banding, recommend_distance
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import Decimal
from pipeline_assets.spine.section import RecipeSection

MAX_DOCUMENTS = 2**32  # in one deduplication, because document numbers have 32 bits
TARGET_RECALL = 0.95  # share that the defaults should propose of the pairs at the threshold
_MAX_DENOMINATOR, _MAX_PERMUTATIONS = 10**6, 4096
_ONE_PROPOSER_FIX = "pairs need one proposer; set one of `minhash` and `faiss`"
Mode = Literal["exact", "near", "both"]
Scope = Literal["global", "per-source"]
Selection = Literal["first", "longest", "quality"]
ShingleWords = Annotated[int, Option("Words per shingle."), pydantic.Field(ge=1, le=100)]
Seed = Annotated[int, Option("Random seed for MinHash."), pydantic.Field(ge=0, lt=2**32)]


def _check_fraction(fraction: str) -> str:
    if not 0 < Fraction(fraction) <= 1:
        raise ValueError(f"must be in (0, 1], got {fraction}")
    if Fraction(fraction).denominator > _MAX_DENOMINATOR:
        raise ValueError(f"must have at most six decimal places, got {fraction}")
    return fraction


PositiveFraction = Annotated[Decimal, pydantic.AfterValidator(_check_fraction)]
"""A decimal in (0, 1] with at most six places."""


class MinHashRecipe(RecipeSection):
    """Settings of `minhash`, which proposes pairs that share a band, see `band_keys`."""

    shingle_words: ShingleWords = 5
    permutations: Annotated[int, Option("Hash values per signature: bands times rows.")] = pydantic.Field(
        112, ge=1, le=_MAX_PERMUTATIONS
    )
    bands: Annotated[int, Option("Number of bands. Default: as `dedup explain` advises.", default=None)] = (
        pydantic.Field(ge=1)
    )
    rows: int = pydantic.Field(ge=1)
    seed: Seed = 1

    @pydantic.model_validator(mode="after")
    def _check_permutations(self) -> Self:
        if self.bands * self.rows != self.permutations:
            rows = f"{self.rows} row{'s' * (self.rows > 1)}"
            rule = f"`near.minhash.bands` times {rows} must equal {self.permutations} permutations"
            raise ValueError(f"{rule}, got {self.bands * self.rows}")
        return self


class BinarySketchRecipe(RecipeSection):
    """Settings of `faiss`, which proposes pairs whose sketches differ in few bits."""

    shingle_words: ShingleWords = 5
    bits: Annotated[int, Option("Bits per sketch for faiss.")] = pydantic.Field(256, ge=8, le=4096, multiple_of=8)
    max_distance: Annotated[
        int, Option("Maximum differing bits. Default: as `dedup explain` advises.", default=None)
    ] = pydantic.Field(ge=0)
    seed: Seed = 1

    @property
    def permutations(self) -> int:
        """Number of MinHash permutations, one per bit of a sketch."""
        return self.bits

    @pydantic.model_validator(mode="after")
    def _check_distance(self) -> Self:
        if self.max_distance >= self.bits // 2:
            what = f"`near.faiss.max_distance` must be below {self.bits // 2}, got {self.max_distance}"
            raise ValueError(f"{what}: of {self.bits} bits, half of them differ by chance")
        return self


class NearRecipe(RecipeSection):
    """Rules for near duplicates: the method that proposes pairs, and the limits.

    Attributes:
        threshold: Minimum Jaccard similarity of the shingle sets of two duplicates.
        max_compared: Maximum number of earlier documents to compare a document with. With `minhash`, the limit applies
            to each band of the document; with `faiss`, to the document as a whole.
    """

    minhash: MinHashRecipe | None = None
    faiss: BinarySketchRecipe | None = None
    threshold: Annotated[
        PositiveFraction,
        Option("Lowest Jaccard similarity of duplicates.", other_names=("--similarity",)),
    ] = "0.7"
    max_compared: Annotated[int, Option("Maximum comparisons per document in a bucket.")] = pydantic.Field(100, ge=1)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _fill_in_proposal(cls, content: object) -> object:
        """Set the missing keys of `minhash` or `faiss` to recommended values."""
        if not isinstance(content, Mapping):
            return content
        if content.get("minhash") is not None and content.get("faiss") is not None:
            raise ValueError(_ONE_PROPOSER_FIX)
        threshold, sketch = 0.0, content.get("faiss")
        if isinstance(sketch, Mapping):  # if the threshold is invalid, no other error is reported
            content = {**content, "faiss": {"max_distance": 0, **sketch}}
        with contextlib.suppress(ValueError, TypeError, ArithmeticError):  # the validator of the key reports the error
            threshold = float(content.get("threshold", cls.model_fields["threshold"].default))
            if isinstance(sketch, Mapping) and "max_distance" not in sketch and 0 < threshold <= 1:
                bits = int(sketch.get("bits", BinarySketchRecipe.model_fields["bits"].default))
                distance = recommend_distance(min(bits, _MAX_PERMUTATIONS), threshold, TARGET_RECALL).max_distance
                content = {**content, "faiss": {**sketch, "max_distance": distance}}
        bands_section = content.get("minhash")
        if sketch is not None or not isinstance({} if bands_section is None else bands_section, Mapping):
            return content
        minhash = {"permutations": MinHashRecipe.model_fields["permutations"].default}
        minhash |= dict(bands_section or {})
        with contextlib.suppress(ValueError, TypeError, ArithmeticError):
            permutations = int(minhash["permutations"])
            if 0 < threshold <= 1 and 0 < permutations <= _MAX_PERMUTATIONS:
                banding = recommend_banding(permutations, threshold, TARGET_RECALL)
                bands = minhash.get("bands") or permutations // (minhash.get("rows") or banding.rows)
                minhash = {"bands": bands, "rows": permutations // bands or 1} | minhash
        permutations = minhash["permutations"]
        rows = permutations if isinstance(permutations, int) and permutations > 0 else 1  # 1 avoids a second error
        return {**content, "minhash": {"bands": 1, "rows": rows} | minhash}

    @property
    def proposer(self) -> MinHashRecipe | BinarySketchRecipe:
        """Section `minhash` or `faiss`: settings of the method that proposes pairs."""
        proposer = self.minhash or self.faiss
        assert proposer is not None
        return proposer

    def proposal(self) -> "Banding | DistanceLimit":
        """Return the banding or the distance limit of this recipe."""
        if self.faiss is not None:
            return DistanceLimit(self.faiss.bits, self.faiss.max_distance)
        assert self.minhash is not None
        return Banding(self.minhash.bands, self.minhash.rows)

    def recommended_proposal(self) -> "Banding | DistanceLimit":
        """Return the cheapest proposal that reaches `TARGET_RECALL` at the threshold.

        If no proposal reaches it, return the proposal with the highest recall.
        """
        recommend = recommend_banding if self.minhash is not None else recommend_distance
        return recommend(self.proposer.permutations, float(self.threshold), TARGET_RECALL)

    @pydantic.model_validator(mode="after")
    def _check_proposer(self) -> Self:
        if (self.minhash is None) == (self.faiss is None):
            raise ValueError(_ONE_PROPOSER_FIX)
        return self


class DedupRecipe(RecipeSection):
    """Rules for dropping the duplicates of a corpus.

    Attributes:
        mode: `exact` compares normalized texts; `near` compares sets of shingles; `both` compares texts, then sets.
        scope: `global` compares documents of all sources; `per-source`, only documents of the same source.
        selection: Duplicate to keep: the first in the order of sources and rows, the longest (in UTF-8 bytes), or the
            one with the highest `quality_column`. Of equally good documents, the first is kept.
        quality_column: Numeric column in the documents' meta, compared as float32. Documents with the column are kept
            rather than documents without it.
        near: Rules for near duplicates; None if the mode is `exact`.
    """

    mode: Annotated[Mode, Option("Duplicates to find: exact, near or both.")] = "both"
    scope: Annotated[Scope, Option("Scope of duplicates: global or per-source.")] = "global"
    selection: Annotated[Selection, Option("Duplicate to keep: first, longest or quality.", "near-selection")] = "first"
    quality_column: Annotated[str | None, Option("Column of quality scores, in the documents' meta.")] = None
    near: NearRecipe | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _fill_in_near(cls, content: object) -> object:
        """Add the default `near` if the mode needs it."""
        if isinstance(content, Mapping) and content.get("mode") != "exact" and "near" not in content:
            return {**content, "near": {}}
        return content

    def signature_keys(self) -> dict[str, Any]:
        """Return the settings that must be equal if two recipes' signatures are compared."""
        if self.near is None:
            return {"scope": self.scope}
        name = "minhash" if self.near.minhash is not None else "faiss"
        return {"scope": self.scope, name: self.near.proposer.content()}

    @pydantic.model_validator(mode="after")
    def _check_keys(self) -> Self:
        if (self.mode == "exact") == (self.near is not None):
            fix = "remove the section `near`" if self.near else "add a section `near`"
            raise ValueError(f"`mode` is {self.mode}; {fix}")
        if (self.selection == "quality") != (self.quality_column is not None):
            what = "`selection` quality requires `quality_column`"
            raise ValueError(f"{what}, and other selections do not allow it")
        return self

"""Recipe of deduplication: comparison, selection and caps on removal."""

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
import pydantic

from pipeline_assets.spine.artifact import Verdict
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.section import Decimal, Option, PerSource, RecipeError, RecipeSection

RECALL = 0.95  # share of the pairs at the threshold that are proposed
_MAX_DENOMINATOR, _MAX_PERMUTATIONS = 10**6, 4096
Mode = Literal["exact", "near", "both"]
Scope = Literal["global", "per-source"]
Selection = Literal["first", "longest", "quality"]
ShingleWords = Annotated[int, Option("Words per shingle."), pydantic.Field(ge=1, le=100)]
Seed = Annotated[int, Option("Random seed for MinHash."), pydantic.Field(ge=0, lt=2**32)]


def above_zero(what: str) -> pydantic.AfterValidator:
    """Return a validator of decimals in (0, 1] with at most six decimal places.

    Args:
        what: Name of the value in messages.
    """

    def check(fraction: str) -> str:
        if not 0 < Fraction(fraction) <= 1:
            raise ValueError(f"{what} must be in (0, 1], got {fraction}")
        if Fraction(fraction).denominator > _MAX_DENOMINATOR:
            raise ValueError(f"{what} must have at most six decimal places, got {fraction}")
        return fraction

    return pydantic.AfterValidator(check)


class MinHashRecipe(RecipeSection):
    """Proposal of pairs by MinHash.

    A pair is proposed if all rows of a band are equal, in one of two cuts of the signatures into bands, see
    `band_keys`.
    """

    shingle_words: ShingleWords = 5
    permutations: Annotated[int, Option("Numbers in a signature: bands times rows.")] = pydantic.Field(
        112, ge=1, le=_MAX_PERMUTATIONS
    )
    bands: Annotated[int, Option("Bands. Default: see `dedup explain`.", default=None)] = pydantic.Field(ge=1)
    rows: int = pydantic.Field(ge=1)
    seed: Seed = 1

    @pydantic.model_validator(mode="after")
    def _uses_every_permutation(self) -> Self:
        if self.bands * self.rows != self.permutations:
            what = f"{self.bands} bands of {self.rows} rows use {self.bands * self.rows} permutations"
            raise ValueError(f"{what}, but signatures have {self.permutations}: make them equal")
        return self


class BinarySketchRecipe(RecipeSection):
    """Proposal of pairs by binary sketches that differ in few bits.

    Each permutation gives one bit.
    """

    shingle_words: ShingleWords = 5
    bits: Annotated[int, Option("Bits per sketch for faiss.")] = pydantic.Field(256, ge=8, le=4096, multiple_of=8)
    max_distance: Annotated[int, Option("Differing bits for faiss. Default: see `dedup explain`.", default=None)] = (
        pydantic.Field(ge=0)
    )
    seed: Seed = 1

    @property
    def permutations(self) -> int:
        """Numbers in a signature."""
        return self.bits

    @pydantic.model_validator(mode="after")
    def _check_distance(self) -> Self:
        if self.max_distance >= self.bits // 2:
            what = f"`near.faiss.max_distance` must be below {self.bits // 2}, got {self.max_distance}"
            raise ValueError(f"{what}: of {self.bits} bits, half of them differ by chance")
        return self


class NearRecipe(RecipeSection):
    """Rules for near duplicates.

    MinHash bands or binary sketches propose pairs; the shingles of the texts decide.

    Attributes:
        minhash: Proposal by MinHash; None if `faiss` proposes.
        faiss: Proposal by binary sketches; None if `minhash` proposes.
        threshold: Lowest Jaccard similarity of two sets of shingles that makes documents duplicates.
        max_compared: Each document is compared with at most this many earlier documents of a bucket of equal bands, or
            with near sketches.
    """

    minhash: MinHashRecipe | None = None
    faiss: BinarySketchRecipe | None = None
    threshold: Annotated[
        Decimal,
        above_zero("the similarity"),
        Option("Lowest Jaccard similarity of duplicates.", other_names=("--similarity",)),
    ] = "0.7"
    max_compared: Annotated[int, Option("Comparisons per document in a bucket.")] = pydantic.Field(100, ge=1)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_bands(cls, content: object) -> object:
        """Fill in the recommended bands, or with faiss the recommended distance."""
        if not isinstance(content, Mapping):
            return content
        threshold, sketch = 0.0, content.get("faiss")
        with contextlib.suppress(ValueError, TypeError):  # the validator of the key reports the error
            threshold = float(content.get("threshold", cls.model_fields["threshold"].default))
            if isinstance(sketch, Mapping) and "max_distance" not in sketch and 0 < threshold <= 1:
                bits = int(sketch.get("bits", BinarySketchRecipe.model_fields["bits"].default))
                distance = smallest_distance(min(bits, _MAX_PERMUTATIONS), threshold, RECALL).max_distance
                content = {**content, "faiss": {**sketch, "max_distance": distance}}
        if sketch is not None:
            return content
        minhash = {"permutations": MinHashRecipe.model_fields["permutations"].default}
        minhash |= dict(content.get("minhash") or {})
        with contextlib.suppress(ValueError, TypeError):
            permutations = int(minhash["permutations"])
            if 0 < threshold <= 1 and 0 < permutations <= _MAX_PERMUTATIONS:
                banding = recommended(permutations, threshold, RECALL)
                bands = minhash.get("bands") or permutations // (minhash.get("rows") or banding.rows)
                minhash = {"bands": bands, "rows": permutations // bands} | minhash
        return {**content, "minhash": {"bands": 1, "rows": minhash["permutations"]} | minhash}

    @property
    def proposer(self) -> MinHashRecipe | BinarySketchRecipe:
        """The section that proposes pairs."""
        proposer = self.minhash or self.faiss
        assert proposer is not None
        return proposer

    def proposal(self) -> "Banding | Distance":
        """Return the banding or the distance that proposes pairs."""
        if self.faiss is not None:
            return Distance(self.faiss.bits, self.faiss.max_distance)
        assert self.minhash is not None
        return Banding(self.minhash.bands, self.minhash.rows)

    def recommended(self) -> "Banding | Distance":
        """Return the proposal with the fewest needless comparisons that reaches `RECALL`."""
        recommend = recommended if self.minhash is not None else smallest_distance
        return recommend(self.proposer.permutations, float(self.threshold), RECALL)

    @pydantic.model_validator(mode="after")
    def _has_one_proposer(self) -> Self:
        if (self.minhash is None) == (self.faiss is None):
            raise ValueError("give one of `minhash` and `faiss`, to propose pairs")
        return self


class DedupRecipe(RecipeSection):
    """Rules that drop the duplicates of a corpus.

    Attributes:
        mode: `exact` compares normalized texts, `near` sets of shingles, `both` first texts, then sets.
        scope: Whether a document may be the duplicate of a document in another source.
        selection: Duplicate to keep: the first in the order of sources and rows, the longest (in UTF-8 bytes), or the
            one with the highest `quality_column`; the first of several such documents.
        quality_column: Numeric column in the documents' meta, compared as float32; documents without it come last.
        near: Rules for near duplicates; None if the mode is `exact`.
    """

    mode: Annotated[Mode, Option("Duplicates to find: exact, near or both.")] = "both"
    scope: Annotated[Scope, Option("Scope of duplicates: global or per-source.")] = "global"
    selection: Annotated[Selection, Option("Duplicate to keep: first, longest or quality.", "near-selection")] = "first"
    quality_column: Annotated[str | None, Option("Numeric column in the documents' meta.")] = None
    near: NearRecipe | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_near(cls, content: object) -> object:
        """Add the default `near` if the mode needs it."""
        if isinstance(content, Mapping) and content.get("mode") != "exact" and "near" not in content:
            return {**content, "near": {}}
        return content

    def signatures(self) -> dict[str, Any]:
        """Return the keys that signatures of different corpora must have in common."""
        if self.near is None:
            return {"scope": self.scope}
        name = "minhash" if self.near.minhash is not None else "faiss"
        return {"scope": self.scope, name: self.near.proposer.content()}

    @pydantic.model_validator(mode="after")
    def _has_required_keys(self) -> Self:
        if (self.mode == "exact") == (self.near is not None):
            fix = "remove the section `near`" if self.near else "add a section `near`"
            raise ValueError(f"`mode` is {self.mode}: {fix}")
        if (self.selection == "quality") != (self.quality_column is not None):
            what = "`selection` quality requires `quality_column`"
            raise ValueError(f"{what}, and other selections do not allow it")
        return self


_ADVICE = "look at some with `corpusmill dedup show`, then raise `max_removed`, or change the rules of `dedup`"


class _Removals(msgspec.Struct, rename={"rows_in": "in"}):
    """Counts of a source in the manifest."""

    rows_in: int
    exact_duplicate: int
    near_duplicate: int


_BySource = dict[str, _Removals]


class RemovalCaps(PerSource):
    """Caps on the fraction of a source's documents that are dropped.

    They change no byte."""

    check: ClassVar[str] = "removals_within_caps"
    every_source: Annotated[
        Decimal,
        Option("Exit 1 if more of a source is dropped (fraction).", "max-removed", default=None),
    ]

    @pydantic.model_validator(mode="after")
    def _are_fractions(self) -> Self:
        too_large = [cap for cap in (self.every_source, *self.sources.values()) if Fraction(cap) > 1]
        if too_large:
            raise ValueError(f"a fraction must be at most 1 (0.3 for 30 %), got {too_large[0]}")
        return self

    def evaluate(self, deduplicated: Manifest) -> Verdict:
        """Check that no source lost more documents than its cap allows."""
        try:
            by_source = msgspec.convert(deduplicated.identity.counts.get("by_source"), _BySource)
        except msgspec.ValidationError as error:
            return Verdict(False, f"the manifest has no document counts by source: {error}")
        passed, summaries = [], []
        for source, counts in by_source.items():
            dropped, cap = counts.exact_duplicate + counts.near_duplicate, self.cap(source)
            passed.append(dropped <= cap * counts.rows_in)
            sign = "at most " if passed[-1] else "MORE THAN "
            share = dropped / max(counts.rows_in, 1)
            summaries.append(f"{source}: {dropped:,} of {counts.rows_in:,} ({share:.1%}, {sign}{float(cap):.1%})")
        return Verdict(all(passed), "; ".join(summaries) + ("" if all(passed) else f": {_ADVICE}"))


def check_caps(recipe: Mapping[str, Any], sources: Collection[str]) -> Iterator[RecipeError]:
    """Yield the errors in a recipe's caps: unknown sources, or caps without `dedup`.

    Args:
        recipe: Content of the recipe file.
        sources: Names of its sources.
    """
    fix = "correct or remove it"
    if recipe.get("max_removed") is not None and recipe.get("dedup") is None:
        yield RecipeError(("max_removed",), "`max_removed` requires a section `dedup`", fix)
    for name in section_at(recipe, "max_removed", "sources"):
        if name not in sources:
            yield RecipeError(("max_removed", "sources", name), f"{name} has a cap but is not a source", fix)


@dataclass(frozen=True)
class Banding:
    """Signature cut into bands; documents with equal rows in one band are compared.

    Attributes:
        bands: Number of bands.
        rows: Numbers of the signature in a band.
    """

    bands: int
    rows: int

    def __str__(self) -> str:
        return f"{self.bands} bands of {self.rows} rows"

    def proposes(self, similarity: float) -> float:
        """Return the probability that one cut proposes a pair of this Jaccard similarity.

        `band_keys` cuts twice, so this is a lower bound: with 14 bands of 8 rows, the second cut finds five in six of
        the pairs at 0.8 that the first one misses.
        """
        return float(1 - (1 - similarity**self.rows) ** self.bands)


def recommended(permutations: int, threshold: float, recall: float) -> Banding:
    """Return the banding with the most rows that proposes a share `recall` of pairs.

    More rows mean fewer needless comparisons. Every permutation is used. Pairs above the threshold are found more
    often.

    Args:
        permutations: Numbers in a signature.
        threshold: Jaccard similarity of the pairs.
        recall: Share of the pairs to propose.

    Returns:
        Bands of one row if no banding reaches `recall`.
    """
    divisors = (rows for rows in range(permutations, 0, -1) if permutations % rows == 0)
    bandings = (Banding(permutations // rows, rows) for rows in divisors)
    return next(banding for banding in bandings if banding.rows == 1 or banding.proposes(threshold) >= recall)


@dataclass(frozen=True)
class Distance:
    """Largest distance of binary sketches whose documents are compared.

    Attributes:
        bits: Bits in a sketch.
        max_distance: Bits that may differ.
    """

    bits: int
    max_distance: int

    def __str__(self) -> str:
        return f"{self.max_distance} of {self.bits} bits may differ"

    def proposes(self, similarity: float) -> float:
        """Return the probability that a pair of this Jaccard similarity is proposed.

        Each bit differs with a probability of (1 - s) / 2.
        """
        differs = (1 - similarity) / 2
        if differs == 0:
            return 1.0
        # Binomial probabilities of all distances up to the largest, by logarithms, as the binomials are huge.
        logs = (
            math.log(math.comb(self.bits, distance))
            + distance * math.log(differs)
            + (self.bits - distance) * math.log1p(-differs)
            for distance in range(self.max_distance + 1)
        )
        return min(sum(map(math.exp, logs)), 1.0)


def smallest_distance(bits: int, threshold: float, recall: float) -> Distance:
    """Return the smallest distance that proposes a share `recall` of pairs.

    Args:
        bits: Bits in a sketch.
        threshold: Jaccard similarity of the pairs.
        recall: Share of the pairs to propose.

    Returns:
        Just below half of the bits if no distance reaches `recall`.
    """
    largest = max(bits // 2 - 1, 0)
    distances = (Distance(bits, max_distance) for max_distance in range(largest))
    return next((distance for distance in distances if distance.proposes(threshold) >= recall), Distance(bits, largest))

"""What counts as a duplicate, which of several stays, how likely a pair is found, and how much of a source may go."""

import contextlib
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, Self

import msgspec
import pydantic

from pipeline_assets.spine.artifact import Verdict
from pipeline_assets.spine.errors import key
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.recipe_yaml import section_at
from pipeline_assets.spine.section import Decimal, Option, PerSource, RecipeError, RecipeSection

RECALL = 0.95  # of the pairs at the threshold
_FINEST, _MOST_PERMUTATIONS = 10**6, 4096
Mode = Literal["exact", "near", "both"]
Scope = Literal["global", "per-source"]
Selection = Literal["first", "longest", "quality"]
ShingleWords = Annotated[int, Option("Words in a shingle."), pydantic.Field(ge=1, le=100)]
Seed = Annotated[int, Option("Of the permutations."), pydantic.Field(ge=0, lt=2**32)]


def above_zero(what: str) -> pydantic.AfterValidator:
    """Of a decimal, `what` in words: above 0, and 1 at most, with six digits."""

    def refuse_others(fraction: str) -> str:
        if not 0 < Fraction(fraction) <= 1:
            raise ValueError(f"{what} of {fraction}: it is above 0, and 1 at most")
        if Fraction(fraction).denominator > _FINEST:
            raise ValueError(f"{what} of {fraction}: it has six digits after the point at most")
        return fraction

    return pydantic.AfterValidator(refuse_others)


class MinHashRecipe(RecipeSection):
    """Which documents are proposed as near duplicates: those with all rows of a band alike, in one of two cuts of their
    signatures into bands, see `band_keys`.
    """

    shingle_words: ShingleWords = 5
    permutations: Annotated[int, Option("Numbers in a signature: bands times rows.")] = pydantic.Field(
        112, ge=1, le=_MOST_PERMUTATIONS
    )
    bands: Annotated[int, Option("Default: what `dedup explain` recommends.", default=None)] = pydantic.Field(ge=1)
    rows: int = pydantic.Field(ge=1)
    seed: Seed = 1

    @pydantic.model_validator(mode="after")
    def _uses_every_permutation(self) -> Self:
        if self.bands * self.rows != self.permutations:
            bands = key("near.minhash.bands", "bands", "{}")
            what = f"{self.bands} {bands} of {self.rows} rows use {self.bands * self.rows} permutations"
            raise ValueError(f"{what}, and there are {self.permutations}: make them equal")
        return self


class BinarySketchRecipe(RecipeSection):
    """Which documents are proposed as near duplicates: those with binary sketches that differ in few bits; each
    permutation gives a bit.
    """

    shingle_words: ShingleWords = 5
    bits: Annotated[int, Option("Bits of a sketch, of faiss.")] = pydantic.Field(256, ge=8, le=4096, multiple_of=8)
    max_distance: Annotated[
        int, Option("Bits that may differ, of faiss. Default: what `dedup explain` recommends.", default=None)
    ] = pydantic.Field(ge=0)
    seed: Seed = 1

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


class NearRecipe(RecipeSection):
    """Near duplicates: proposed by MinHash bands or by binary sketches, decided by the shingles of the texts.

    Attributes:
        minhash, faiss: one of them.
        threshold: of the Jaccard similarity of two sets of shingles.
        max_compared: in a bucket of documents that share a band, or of those with sketches near its own, each document
            is compared to the first so many.
    """

    minhash: MinHashRecipe | None = None
    faiss: BinarySketchRecipe | None = None
    threshold: Annotated[
        Decimal,
        above_zero("a similarity"),
        Option("Jaccard similarity from which on two are duplicates.", other_names=("--similarity",)),
    ] = "0.7"
    max_compared: Annotated[int, Option("In a bucket each is compared to so many.")] = pydantic.Field(100, ge=1)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_bands(cls, content: object) -> object:
        """By MinHash where nothing else is said, in the recommended bands; by faiss, up to the recommended distance."""
        if not isinstance(content, Mapping):
            return content
        threshold, sketch = 0.0, content.get("faiss")
        with contextlib.suppress(ValueError, TypeError):  # what is wrong is said of its key
            threshold = float(content.get("threshold", cls.model_fields["threshold"].default))
            if isinstance(sketch, Mapping) and "max_distance" not in sketch and 0 < threshold <= 1:
                bits = int(sketch.get("bits", BinarySketchRecipe.model_fields["bits"].default))
                distance = smallest_distance(min(bits, _MOST_PERMUTATIONS), threshold, RECALL).max_distance
                content = {**content, "faiss": {**sketch, "max_distance": distance}}
        if sketch is not None:
            return content
        said = {"permutations": MinHashRecipe.model_fields["permutations"].default} | dict(content.get("minhash") or {})
        with contextlib.suppress(ValueError, TypeError):
            permutations = int(said["permutations"])
            if 0 < threshold <= 1 and 0 < permutations <= _MOST_PERMUTATIONS:
                banding = recommended(permutations, threshold, RECALL)
                bands = said.get("bands") or permutations // (said.get("rows") or banding.rows)
                said = {"bands": bands, "rows": permutations // bands} | said
        return {**content, "minhash": {"bands": 1, "rows": said["permutations"]} | said}

    @property
    def proposer(self) -> MinHashRecipe | BinarySketchRecipe:
        """The one that is given."""
        proposer = self.minhash or self.faiss
        assert proposer is not None
        return proposer

    def proposal(self) -> "Banding | Distance":
        """How it has pairs proposed."""
        if self.faiss is not None:
            return Distance(self.faiss.bits, self.faiss.max_distance)
        assert self.minhash is not None
        return Banding(self.minhash.bands, self.minhash.rows)

    def recommended(self) -> "Banding | Distance":
        """The way that finds `RECALL` of the pairs at the threshold with the fewest needless comparisons."""
        way = recommended if self.minhash is not None else smallest_distance
        return way(self.proposer.permutations, float(self.threshold), RECALL)

    @pydantic.model_validator(mode="after")
    def _has_one_proposer(self) -> Self:
        if (self.minhash is None) == (self.faiss is None):
            raise ValueError("give one of `minhash` and `faiss`, which proposes what is compared")
        return self


class DedupRecipe(RecipeSection):
    """Which documents of a corpus go because another one stays.

    Attributes:
        mode: `exact` compares normalised texts, `near` sets of shingles, `both` first the one, then the other.
        scope: whether a document may be the duplicate of one in another source.
        selection: which of several stays: the first one in the order of sources and rows, the longest (in UTF-8 bytes),
            or the one with the highest `quality_column`; of several of those the first.
        quality_column: a number among the columns in a document's meta, compared as float32; documents without it
            come last.
    """

    mode: Annotated[Mode, Option("exact, near or both.")] = "both"
    scope: Annotated[Scope, Option("global or per-source.")] = "global"
    selection: Annotated[Selection, Option("Which stays: first, longest or quality.", "near-selection")] = "first"
    quality_column: Annotated[str | None, Option("A number in the documents' meta.")] = None
    near: NearRecipe | None = None

    @pydantic.model_validator(mode="before")
    @classmethod
    def _with_near(cls, content: object) -> object:
        """`near` as it comes where the mode needs it and nothing is said of it."""
        if isinstance(content, Mapping) and content.get("mode") != "exact" and "near" not in content:
            return {**content, "near": {}}
        return content

    def signatures(self) -> dict[str, Any]:
        """The part of it that signatures depend on, by which documents are compared that were never read together."""
        if self.near is None:
            return {"scope": self.scope}
        name = "minhash" if self.near.minhash is not None else "faiss"
        return {"scope": self.scope, name: self.near.proposer.content()}

    @pydantic.model_validator(mode="after")
    def _has_required_keys(self) -> Self:
        if (self.mode == "exact") == (self.near is not None):
            missing = "leave the section `near` out" if self.near else "say what is near, in a section `near`"
            raise ValueError(f"{key('mode')} is {self.mode}: {missing}")
        if (self.selection == "quality") != (self.quality_column is not None):
            raise ValueError(f"{key('selection')} quality goes with a {key('quality_column')}, and no other does")
        return self


_ADVICE = "look at some with `corpusmill dedup show`, then raise `max_removed`, or change how they are compared"


class _Removals(msgspec.Struct, rename={"rows_in": "in"}):
    """What a manifest counts of a source."""

    rows_in: int
    exact_duplicate: int
    near_duplicate: int


_BySource = dict[str, _Removals]


class RemovalCaps(PerSource):
    """Of the documents of a source, the fraction that may go; changes no byte."""

    check: ClassVar[str] = "removals_within_caps"
    every_source: Annotated[
        Decimal,
        Option("Fraction of a source that may go, else the exit status is 1.", "max-removed", default=None),
    ]

    @pydantic.model_validator(mode="after")
    def _are_fractions(self) -> Self:
        beyond = [cap for cap in (self.every_source, *self.sources.values()) if Fraction(cap) > 1]
        if beyond:
            raise ValueError(f"a fraction of {beyond[0]}: it is 1 at most, 0.3 for 30 %")
        return self

    def evaluate(self, deduplicated: Manifest) -> Verdict:
        """Of no source more documents went than its cap allows."""
        try:
            by_source = msgspec.convert(deduplicated.identity.counts.get("by_source"), _BySource)
        except msgspec.ValidationError as error:
            return Verdict(False, f"the manifest counts no documents by source: {error}")
        passed, words = [], []
        for source, counts in by_source.items():
            gone, cap = counts.exact_duplicate + counts.near_duplicate, self.cap(source)
            passed.append(gone <= cap * counts.rows_in)
            sign = "at most " if passed[-1] else "MORE THAN "
            share = gone / max(counts.rows_in, 1)
            words.append(f"{source}: {gone:,} of {counts.rows_in:,} ({share:.1%}, {sign}{float(cap):.1%})")
        return Verdict(all(passed), "; ".join(words) + ("" if all(passed) else f": {_ADVICE}"))


def check_caps(recipe: Mapping[str, Any], sources: Collection[str]) -> Iterator[RecipeError]:
    """Caps of a recipe, as it was read, on no source of it, or where nothing is deduplicated."""
    fix = "correct it, or leave it out"
    if recipe.get("max_removed") is not None and recipe.get("dedup") is None:
        yield RecipeError(("max_removed",), "there is `max_removed` without `dedup`", fix)
    for name in section_at(recipe, "max_removed", "sources"):
        if name not in sources:
            yield RecipeError(("max_removed", "sources", name), f"{name} has a cap, and is no source", fix)


@dataclass(frozen=True)
class Banding:
    """A signature cut into bands of so many rows; two documents with all rows of one band alike are compared."""

    bands: int
    rows: int

    def __str__(self) -> str:
        return f"{self.bands} bands of {self.rows} rows"

    def proposes(self, similarity: float) -> float:
        """The probability that one cut of a signature has a pair of this Jaccard similarity compared. `band_keys` cuts
        twice, so it is the least: of what one cut misses at 0.8 with 14 bands of 8 rows, the other finds five in six.
        """
        return float(1 - (1 - similarity**self.rows) ** self.bands)


def recommended(permutations: int, threshold: float, recall: float) -> Banding:
    """The banding with the most rows, and so the fewest needless comparisons, that still finds so large a part of the
    pairs at the threshold, more of those above it, and uses every permutation; that of one row if none does.
    """
    divisors = (rows for rows in range(permutations, 0, -1) if permutations % rows == 0)
    bandings = (Banding(permutations // rows, rows) for rows in divisors)
    return next(one for one in bandings if one.rows == 1 or one.proposes(threshold) >= recall)


@dataclass(frozen=True)
class Distance:
    """Binary sketches of so many bits; two documents are compared if at most `max_distance` of them differ."""

    bits: int
    max_distance: int

    def __str__(self) -> str:
        return f"{self.max_distance} of {self.bits} bits may differ"

    def proposes(self, similarity: float) -> float:
        """The probability that a pair of this Jaccard similarity is compared: a bit differs for (1 - s) / 2 of them."""
        differs = (1 - similarity) / 2
        if differs == 0:
            return 1.0
        logs = (
            math.log(math.comb(self.bits, distance))
            + distance * math.log(differs)
            + (self.bits - distance) * math.log1p(-differs)
            for distance in range(self.max_distance + 1)
        )
        return min(sum(map(math.exp, logs)), 1.0)


def smallest_distance(bits: int, threshold: float, recall: float) -> Distance:
    """The smallest distance that finds so large a part of the pairs at the threshold; just below half of the bits if
    none does.
    """
    most = max(bits // 2 - 1, 0)
    found = (Distance(bits, distance) for distance in range(most))
    return next((one for one in found if one.proposes(threshold) >= recall), Distance(bits, most))

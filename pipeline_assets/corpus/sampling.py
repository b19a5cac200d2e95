"""What is drawn of a corpus: shards of a snapshot by their paths, train or valid by a hash of the document id, tokens
up to the budget of each; weights of several sources; and k rows of a stream whose length nobody knows, in one pass,
each row as likely as any other, or by weights.

Random numbers of reservoirs are SplitMix64's (see `packing.mixture`): the i-th depends on the seed and i alone.
Logarithms are those of `decimal`, which its specification rounds to the last digit: no libm, and no version of one, has
a say in a sample.
"""

import decimal
import fnmatch
import hashlib
import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.document_shards import SHARDS
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.files import rank
from pipeline_assets.corpus.spine.manifest import FileContent, Manifest, StageVersion
from pipeline_assets.corpus.spine.recipe import Misfit, RecipePart, Share, section_at
from pipeline_assets.corpus.spine.target import BuildResult

Split = Literal["train", "valid"]
SPLITS: tuple[Split, ...] = ("train", "valid")
RULE = "int.from_bytes(sha256(doc_id as UTF-8)[:8], 'big') < int(Fraction(valid_fraction) * 2**64) is valid"
SELECTION_STAGE = StageVersion("text_selection", 2)
_SHOWN_SHARDS = 5


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


def preview_selection(selection: Artifact) -> list[dict[str, str]]:
    """The first shards of a text manifest."""
    shards = selection.manifest.identity.decisions["shards"][:_SHOWN_SHARDS]
    return [
        {"shard": shard["path"], "documents": f"{shard['rows']:,}", "sha256": shard["content_sha256"]}
        for shard in shards
    ]


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


def largest_remainders(weights: Sequence[Fraction], total: int) -> list[int]:
    """Whole shares of a total: each rounded down, and one more for those that lose most by it, of equals the first."""
    shares = [int(weight * total) for weight in weights]
    losses = [weight * total - share for weight, share in zip(weights, shares, strict=True)]
    for number in sorted(range(len(shares)), key=lambda number: -losses[number])[: total - sum(shares)]:
        shares[number] += 1
    return shares


def check_weights(weights: Mapping[str, str]) -> Mapping[str, str]:
    """
    Raises:
        ValueError: one is no decimal above 0, or their sum isn't 1.
    """
    for source, weight in weights.items():
        if not _is_above_zero(weight):
            raise ValueError(f"the weight of {source} is {weight!r}: it is a decimal above 0, such as '0.25'")
    if wrong := _wrong_sum(weights.values()):
        raise ValueError(wrong)
    return weights


Weights = Annotated[Mapping[str, str], pydantic.AfterValidator(check_weights)]


def _is_above_zero(weight: str) -> bool:
    digits = weight.replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and weight[0] != "." and weight[-1] != "." and Decimal(weight) > 0


def _wrong_sum(weights: Collection[str]) -> str | None:
    """What is wrong with the sum of weights, each a decimal above 0; None where it is 1."""
    with decimal.localcontext(prec=1 + sum(map(len, weights))):  # enough for each digit of the sum
        total = sum(map(Decimal, weights), Decimal(0))
    return None if total == 1 else f"the weights sum to {total:f}, not to 1"


def weight_misfits(
    recipe: Mapping[str, Any], place: tuple[str, ...], sources: Collection[str], *, of_all: bool
) -> Iterator[Misfit]:
    """Weights at a place of a recipe, as it was read, of no source, and a wrong sum of weights that aren't all in
    quotes: of others the section says it.

    Args:
        of_all: whether a source without a weight is one too, where others have one.
    """
    weights = section_at(recipe, *place)
    numbers = [*map(str, weights.values())]
    if numbers != [*weights.values()] and all(map(_is_above_zero, numbers)) and (wrong := _wrong_sum(numbers)):
        yield Misfit(place, wrong, "correct them")
    for name in weights:
        if name not in sources:
            yield Misfit((*place, name), f"{name} has a weight, and is no source", "correct it, or leave it out")
    for name in sources:
        if of_all and weights and name not in weights:
            yield Misfit(place, f"source {name} has no weight", f"give it one, or leave out `{place[-1]}`")


T = TypeVar("T")
Algorithm = Literal["classic", "es_weighted"]
_EXACT = decimal.Context(prec=28, rounding=decimal.ROUND_HALF_EVEN, Emin=-(10**9), Emax=10**9)
_ONE = Decimal(1)


class Dice(msgspec.Struct):
    """A seeded sequence of numbers of 64 bits, at its `thrown`-th."""

    start: int
    thrown: int = 0

    def bits(self) -> int:
        self.thrown += 1
        mixed = (self.start + self.thrown * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        return mixed ^ (mixed >> 31)

    def below(self, things: int) -> int:
        """0 … things - 1, each as likely but for things / 2^64."""
        return self.bits() * things >> 64

    def fraction(self) -> Decimal:
        """Above 0, below 1."""
        return _EXACT.divide(2 * self.bits() + 1, 1 << 65)

    def log(self) -> Decimal:
        return _EXACT.ln(self.fraction())


class Reservoir(Generic[T]):
    """At most k rows of a stream, in one pass, by Algorithm R.

    Algorithm R (Waterman; Vitter 1985, "Random Sampling with a Reservoir"): row number i draws a place among i, and
    enters if that is one of the k.
    """

    def __init__(self, k: int, dice: Dice) -> None:
        self.k, self.dice = k, dice
        self.items: list[T] = []
        self._rows = self._place = 0

    def is_turn(self, weight: float = 1.0) -> bool:
        """Check whether the next row may enter; if so, `put` or `refuse` comes next."""
        self._rows += 1
        self._place = self._rows - 1 if self._rows <= self.k else self.dice.below(self._rows)
        return self._place < self.k

    def refuse(self) -> None:
        """Leave out the row whose turn it is, as though it had never come."""
        self._rows -= 1

    def put(self, item: T, weight: float = 1.0) -> T | None:
        """Take in the row whose turn it is, and return the one that it replaces, if any."""
        replaced = self.items[self._place : self._place + 1]
        self.items[self._place : self._place + 1] = [item]
        return replaced[0] if replaced else None


class WeightedReservoir(Reservoir[T]):
    """At most k rows of a stream, in one pass, by weights.

    A-ExpJ (Efraimidis and Spirakis 2006, "Weighted random sampling with a reservoir"): as if rows were drawn one after
    the other without replacement, each by its share of the remaining weight. A row of weight w has the key u^(1/w), u
    random in (0, 1), and the rows with the k largest keys are drawn.
    """

    def __init__(self, k: int, dice: Dice) -> None:
        super().__init__(k, dice)
        self._keys: list[tuple[Decimal, int]] = []  # a heap of (log key, place in items)
        self._jump = 0.0  # weight that passes by before the next row enters

    def is_turn(self, weight: float = 1.0) -> bool:
        if len(self.items) < self.k or self._jump <= weight:
            return True
        self._jump -= weight
        return False

    def refuse(self) -> None:
        """Leave out the row whose turn it is: the next that can enter has its turn."""

    def put(self, item: T, weight: float = 1.0) -> T | None:
        w, is_full = Decimal(weight), len(self.items) == self.k
        least, self._place = self._keys[0] if is_full else (None, len(self.items))
        bound = Decimal(0) if least is None else _EXACT.exp(_EXACT.multiply(least, w))  # the least u that may enter
        u = _EXACT.fma(_EXACT.subtract(_ONE, bound), self.dice.fraction(), bound)
        key = _EXACT.divide(_EXACT.ln(u), w), self._place
        replaced = super().put(item)
        (heapq.heapreplace if is_full else heapq.heappush)(self._keys, key)
        if len(self.items) == self.k:
            self._jump = float(_EXACT.divide(self.dice.log(), self._keys[0][0]))
        return replaced


def new_reservoir(algorithm: Algorithm, k: int, seed: int) -> Reservoir[T]:
    """Return an empty reservoir for k rows; its dice begin at the sha256 of seed and algorithm."""
    dice = Dice(int.from_bytes(rank(str(seed), "reservoir", algorithm)[:8], "big"))
    return (Reservoir if algorithm == "classic" else WeightedReservoir)(k, dice)

"""A sample: how it is asked for, its splits, and its files.

manifest.jsonl        a line a pair, sorted by split (train, val, test), then by uid
MANIFEST.meta.json    how it was drawn; it has a time in it, so it is a label

A text, on whichever side, is in one split: pairs that share one, or are linked by such pairs, are a group. Groups are
dealt the largest first, then by the sha256 of seed and pair, each to the split that lacks most; so sizes are exact
unless a group is larger than what its split lacks.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic

from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Languages, Pair, PairFilters, Split, canonical
from pipeline_assets.corpus.parallel_text.translation_files import Sides
from pipeline_assets.corpus.reservoir import Algorithm
from pipeline_assets.corpus.weights import largest_remainders
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import seeded_rank
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import StageVersion, canonical_sha256
from pipeline_assets.spine.metadata_file import MetadataFile
from pipeline_assets.spine.section import Option, RecipeSection, RejectShare

SAMPLE_STAGE = StageVersion("parallel_sample", 3)
MANIFEST, MANIFEST_META = "manifest.jsonl", "MANIFEST.meta.json"
_REPLACED_BY = {"l": "classic", "stream": "within"}
_MIN_WEIGHT, _MAX_WEIGHT = 1e-9, 1e9
_DRAW_AGAIN = "draw the sample: `corpusmill parallel sample`"


class SplitShares(RecipeSection):
    """Shares of the splits in the sample, relative to their sum."""

    train: int = pydantic.Field(default=96, ge=1)
    val: int = pydantic.Field(default=12, ge=0)
    test: int = pydantic.Field(default=12, ge=0)

    def sizes(self, pairs: int) -> dict[Split, int]:
        """Count the pairs of each split by largest remainder; the first split wins ties."""
        parts = self.train, self.val, self.test
        weights = [Fraction(part, sum(parts)) for part in parts]
        return dict(zip(SPLITS, largest_remainders(weights, pairs), strict=True))


def assign_splits(pairs: Sequence[Pair], shares: SplitShares, seed: int) -> list[Split]:
    """Return the split of each pair; pairs that share a text are in one split."""
    linked: dict[str, str] = {}  # each text to another of its group, the last one to itself

    def last(text: str) -> str:
        while linked.setdefault(text, text) != text:
            linked[text] = text = linked[linked[text]]
        return text

    sides = [(canonical(pair.src_text), canonical(pair.tgt_text)) for pair in pairs]
    for src, tgt in sides:
        linked[last(src)] = last(tgt)
    # Not of where they stand: a set that is stored otherwise is split as before. Equal pairs are in one group anyhow.
    ranks = [seeded_rank(str(seed), "split", pair.uid) for pair in pairs]
    groups: dict[str, list[int]] = {}
    for number in sorted(range(len(pairs)), key=ranks.__getitem__):
        groups.setdefault(last(sides[number][0]), []).append(number)
    lacks, split_of = shares.sizes(len(pairs)), dict[int, Split]()
    for group in sorted(groups.values(), key=len, reverse=True):  # stable: groups came by the rank of their first
        split = max(SPLITS, key=lacks.__getitem__)
        lacks[split] -= len(group)
        split_of |= dict.fromkeys(group, split)
    return [split_of[number] for number in range(len(pairs))]


class SampleRecipe(RecipeSection):
    """How pairs are drawn. All of it changes bytes.

    Attributes:
        filters: None draws of all rows that have both languages.
        duplicates: what becomes of pairs whose canonical texts are equal: `within` keeps one of them in the reservoir,
            `keep` all.
        weight: of a row, for `es_weighted`: `chars`, those of both sides, or `column:NAME`.
        splits: how the sample is split: see above.
        max_reject_fraction: more bad rows than this stop the build.
    """

    languages: Languages = Languages()
    k: Annotated[int, Option("Pairs to draw.")] = pydantic.Field(default=120, ge=1)
    seed: Annotated[int, Option("Of the draw and of the split.")] = pydantic.Field(default=42, ge=0)
    algorithm: Algorithm = "classic"
    weight: str | None = pydantic.Field(default=None, pattern="^(chars|column:.+)$")
    filters: PairFilters | None = PairFilters()
    duplicates: Literal["within", "keep"] = "within"
    splits: SplitShares = SplitShares()
    max_reject_fraction: RejectShare = "0.001"

    @pydantic.field_validator("algorithm", "duplicates", mode="before")
    @classmethod
    def _is_not_removed(cls, value: object) -> object:
        if isinstance(value, str) and value in _REPLACED_BY:
            raise ValueError(f"{value} is no longer drawn; write {_REPLACED_BY[value]}")
        return value

    @pydantic.model_validator(mode="after")
    def _has_its_weight(self) -> Self:
        if (self.weight is not None) != (self.algorithm == "es_weighted"):
            raise ValueError("`weight` is given for `es_weighted`, and for no other algorithm")
        return self

    @property
    def weight_column(self) -> str | None:
        """Name of the column with the weights; None if weights are not a column."""
        return self.weight.partition(":")[2] or None if self.weight else None

    def weigh(self, row: Sides) -> float | str:
        """Return the weight of a row in the draw, or the reason why it cannot be drawn."""
        if not (isinstance(row.src, str) and isinstance(row.tgt, str)):
            return "missing_language"
        src, tgt = canonical(row.src), canonical(row.tgt)
        if self.filters is not None and (reason := self.filters.rejection_reason(src, tgt)):
            return reason
        if self.weight is None:
            return 1.0
        weight = len(src) + len(tgt) if self.weight == "chars" else row.weight
        is_weight = isinstance(weight, int | float) and _MIN_WEIGHT <= weight <= _MAX_WEIGHT
        return weight if is_weight else "no_weight"

    @property
    def filters_sha256(self) -> str:
        """Digest of the values that decide which rows can be drawn."""
        return canonical_sha256({name: self.content()[name] for name in ("languages", "filters", "duplicates")})


class SampledPair(Pair, frozen=True, kw_only=True):
    """Line of the sample's manifest.jsonl: a pair, its split and how it was drawn."""

    split: Split
    revision: str
    seed: int
    k: int
    filters_sha256: str


class SampleSource(msgspec.Struct, frozen=True, kw_only=True):
    """Source of a sample: splits of a hub dataset at a commit."""

    dataset: str
    revision: str
    splits: tuple[str, ...]


class SampleMeta(SampleSource, frozen=True, kw_only=True):
    """Content of MANIFEST.meta.json.

    Attributes:
        src, tgt, k, …: values of the `SampleRecipe`.
        rows_seen: rows of the dataset; the ledger counts their fates.
        split_sizes: number of pairs in each split of the sample.
        manifest_sha256: sha256 of manifest.jsonl.
    """

    src: str
    tgt: str
    k: int
    seed: int
    algorithm: str
    filters: dict[str, int | bool] | None
    duplicates: str
    weight: str | None
    filters_sha256: str
    rows_seen: int
    ledger: Ledger
    split_sizes: dict[Split, int]
    manifest_sha256: str
    sampled_at: str

    def to_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


@dataclass(frozen=True)
class Sample:
    """A sample as it is read back."""

    meta: SampleMeta
    pairs: Sequence[SampledPair]

    def differences(self, recipe: SampleRecipe, source: SampleSource, files: Sequence[str]) -> list[str]:
        """Compare the sample with a request for one, by the names of files, not by their content."""
        stored, requested = msgspec.to_builtins(self.meta), msgspec.to_builtins(request_meta(recipe, source))
        lines = [f"{key} is {stored[key]}, not {value}" for key, value in requested.items() if stored[key] != value]
        if self.meta.k == recipe.k and assign_splits(self.pairs, recipe.splits, recipe.seed) != [
            pair.split for pair in self.pairs
        ]:
            lines.append(f"split_sizes is {stored['split_sizes']}, not {recipe.splits.sizes(recipe.k)}")
        if others := {pair.file for pair in self.pairs} - {*files}:
            lines.append(f"files contain {', '.join(sorted(others))}")
        return lines


def request_meta(recipe: SampleRecipe, source: SampleSource) -> dict[str, Any]:
    """Return the part of `SampleMeta` that is known before the draw."""
    content: dict[str, Any] = recipe.content()
    return {
        **msgspec.structs.asdict(source),
        **content["languages"],
        **{name: content[name] for name in ("k", "seed", "algorithm", "filters", "duplicates", "weight")},
        "filters_sha256": recipe.filters_sha256,
    }


_META_FILE: MetadataFile[SampleMeta] = MetadataFile("description of a sample", 1 << 24, _DRAW_AGAIN, SampleMeta)

_line = msgspec.json.Decoder(SampledPair)


def read_sample(manifest: Path) -> Sample:
    """The sample that a manifest.jsonl lists.

    Raises:
        InputError: it isn't there, or was edited since it was drawn.
    """
    try:
        data, meta = manifest.read_bytes(), _META_FILE.read(manifest.with_name(MANIFEST_META))
    except FileNotFoundError as error:
        raise InputError("there is no such file", error.filename, _DRAW_AGAIN) from None
    found = hashlib.sha256(data).hexdigest()
    if found != meta.manifest_sha256:
        what = f"it was edited since it was drawn: sha256 is {found}, {MANIFEST_META} says {meta.manifest_sha256}"
        raise InputError(what, manifest, f"restore it, or {_DRAW_AGAIN}")
    return Sample(meta, [_line.decode(line) for line in data.splitlines()])

"""Sample of sentence pairs: recipe, splits and files.

manifest.jsonl        one line per pair, sorted by split (train, val, test), then by uid
MANIFEST.meta.json    recipe, source and counts of the sample; not in the artifact's digest, because it records a time

No text, on either side, is in two splits. Pairs that share a text, directly or through other pairs, form a group. Each
group is assigned to the split that lacks the most pairs, the largest group first (ties by the sha256 of seed and pair).
Split sizes differ from `SplitShares.sizes` only if a group has more pairs than its split lacks.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic

from pipeline_assets.corpus.parallel_text.pairs import SPLITS, Languages, Pair, PairFilters, Split, canonical_text
from pipeline_assets.corpus.parallel_text.translation_files import TranslationRow
from pipeline_assets.corpus.reservoir import Algorithm
from pipeline_assets.corpus.weights import apportion
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.files import seeded_sort_key
from pipeline_assets.spine.key_types import MaxRejectShare, pattern_rule
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import StageVersion, canonical_sha256
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.sealed_folder import find_artifact_above
from pipeline_assets.spine.section import RecipeSection

SAMPLE_STAGE = StageVersion("parallel_sample", 3)
SAMPLE_FILE, SAMPLE_META_FILE = "manifest.jsonl", "MANIFEST.meta.json"
_REPLACEMENTS = {"l": "classic", "stream": "within"}
_MIN_WEIGHT, _MAX_WEIGHT = 1e-9, 1e9
_DRAW_HINT = "draw the sample: `corpusmill parallel sample`"


class SplitShares(RecipeSection):
    """Relative sizes of the splits; a split's share is its value divided by the sum."""

    train: int = pydantic.Field(default=96, ge=1)
    val: int = pydantic.Field(default=12, ge=0)
    test: int = pydantic.Field(default=12, ge=0)

    def sizes(self, pair_count: int) -> dict[Split, int]:
        """Divide pairs among splits by largest remainders; on ties, the first split wins."""
        parts = self.train, self.val, self.test
        weights = [Fraction(part, sum(parts)) for part in parts]
        return dict(zip(SPLITS, apportion(weights, pair_count), strict=True))


def assign_splits(pairs: Sequence[Pair], shares: SplitShares, seed: int) -> list[Split]:
    """Return the split of each pair; pairs that share a text are in one split."""
    parents: dict[str, str] = {}  # union-find over texts: a text → a text of its group; a root → itself

    def root(text: str) -> str:
        while parents.setdefault(text, text) != text:
            parents[text] = text = parents[parents[text]]  # path halving: skip every second text on later searches
        return text

    sides = [(canonical_text(pair.src_text), canonical_text(pair.tgt_text)) for pair in pairs]
    for src, tgt in sides:
        parents[root(src)] = root(tgt)
    # Ranks ignore file and row, so a set that is stored in other files has the same splits.
    ranks = [seeded_sort_key(str(seed), "split", pair.uid) for pair in pairs]
    groups: dict[str, list[int]] = {}
    for number in sorted(range(len(pairs)), key=ranks.__getitem__):
        groups.setdefault(root(sides[number][0]), []).append(number)
    lacking, splits = shares.sizes(len(pairs)), dict[int, Split]()
    for group in sorted(groups.values(), key=len, reverse=True):  # stable: ties are ordered by their first rank
        split = max(SPLITS, key=lacking.__getitem__)
        lacking[split] -= len(group)
        splits |= dict.fromkeys(group, split)
    return [splits[number] for number in range(len(pairs))]


class SampleRecipe(RecipeSection):
    """Recipe of a sample of sentence pairs.

    Attributes:
        algorithm: See `Reservoir` and `WeightedReservoir`.
        weight: Weight of a row for `es_weighted`: `chars` (characters of both sides) or `column:NAME` (numbers from
            1e-9 to 1e9; rows with other values are dropped).
        filters: Filters of pairs; None draws from all rows that have both languages.
        duplicates: Treatment of pairs with equal canonical texts: `within` keeps at most one of them, `keep` keeps all.
        max_reject_fraction: Largest share of rejected rows; above it, the build fails.
    """

    languages: Languages = Languages()
    k: Annotated[int, Option("Number of pairs to draw.")] = pydantic.Field(default=120, ge=1)
    seed: Annotated[int, Option("Random seed of draw and split.")] = pydantic.Field(default=42, ge=0)
    algorithm: Algorithm = "classic"
    weight: Annotated[str, pattern_rule("chars|column:.+", "must be chars or column:NAME")] | None = None
    filters: PairFilters | None = PairFilters()
    duplicates: Literal["within", "keep"] = "within"
    splits: SplitShares = SplitShares()
    max_reject_fraction: MaxRejectShare = "0.001"

    @pydantic.field_validator("algorithm", "duplicates", mode="before")
    @classmethod
    def _reject_removed(cls, value: object) -> object:
        if isinstance(value, str) and value in _REPLACEMENTS:
            raise ValueError(f"{value} was removed; write {_REPLACEMENTS[value]}")
        return value

    @pydantic.model_validator(mode="after")
    def _check_weight(self) -> Self:
        if (self.weight is not None) != (self.algorithm == "es_weighted"):
            raise ValueError("`es_weighted` needs `weight`, and other algorithms do not allow it")
        return self

    @property
    def weight_column(self) -> str | None:
        """Name of the column with the weights; None if weights are not a column."""
        return self.weight.partition(":")[2] or None if self.weight else None

    def weigh(self, row: TranslationRow) -> float | str:
        """Return a row's weight (1 without `weight`), or a reason code to drop the row."""
        if row.src is None or row.tgt is None:
            return "missing_language"
        src, tgt = canonical_text(row.src), canonical_text(row.tgt)
        if self.filters is not None and (reason := self.filters.drop_reason(src, tgt)):
            return reason
        if self.weight is None:
            return 1.0
        weight = len(src) + len(tgt) if self.weight == "chars" else row.weight
        is_number = isinstance(weight, int | float | Decimal) and not isinstance(weight, bool)
        return float(weight) if is_number and _MIN_WEIGHT <= weight <= _MAX_WEIGHT else "no_weight"

    @property
    def filters_sha256(self) -> str:
        """Hash of the recipe values that determine which rows can be drawn."""
        return canonical_sha256({name: self.content()[name] for name in ("languages", "filters", "duplicates")})


class SampledPair(Pair, frozen=True, kw_only=True):
    """Line of manifest.jsonl: a pair, its split, and the settings of its draw."""

    split: Split
    revision: str
    seed: int
    k: int
    filters_sha256: str


class SampleSource(msgspec.Struct, frozen=True, kw_only=True):
    """Source of a sample: splits of a hub dataset at a commit, or of a folder.

    For a folder, `dataset` is `local`, and `revision` is the digest of the artifact that pins its files.
    """

    dataset: str
    revision: str
    splits: tuple[str, ...]


class SampleMeta(SampleSource, frozen=True, kw_only=True):
    """Content of MANIFEST.meta.json; `src` to `filters_sha256` come from the recipe."""

    src: str
    tgt: str
    k: int
    seed: int
    algorithm: str
    filters: dict[str, int | bool] | None
    duplicates: str
    weight: str | None
    filters_sha256: str
    rows_seen: int  # number of rows that were read
    ledger: Ledger  # of these rows: drawn, dropped and rejected
    split_sizes: dict[Split, int]  # number of pairs in each split of the sample
    manifest_sha256: str
    sampled_at: str
    files: tuple[str, ...] | None = None  # names of files read, in order; None in samples of earlier versions

    def to_bytes(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


@dataclass(frozen=True)
class Sample:
    """Sample of sentence pairs, as read from its two files."""

    meta: SampleMeta
    pairs: Sequence[SampledPair]

    def describe_differences(self, recipe: SampleRecipe, source: SampleSource, files: Sequence[str]) -> list[str]:
        """List how the stored sample differs from `recipe`, `source` and `files`."""
        stored, requested = msgspec.to_builtins(self.meta), msgspec.to_builtins(requested_meta(recipe, source))
        lines = [f"{key} is {stored[key]}, not {value}" for key, value in requested.items() if stored[key] != value]
        splits = assign_splits(self.pairs, recipe.splits, self.meta.seed)
        if self.meta.k == recipe.k and splits != [pair.split for pair in self.pairs]:
            sizes = {split: splits.count(split) for split in SPLITS}
            lines.append(f"split_sizes is {stored['split_sizes']}, not {sizes}")
        if self.meta.files is not None and self.meta.files != (*files,):
            lines.append(f"files are {', '.join(self.meta.files)}, not {', '.join(files)}")
        elif extra_files := {pair.file for pair in self.pairs} - {*files}:
            lines.append(f"files contain {', '.join(sorted(extra_files))}")
        return lines


def requested_meta(recipe: SampleRecipe, source: SampleSource) -> dict[str, Any]:
    """Return the fields of `SampleMeta` that are known before the draw, by name."""
    content: dict[str, Any] = recipe.content()
    return {
        **msgspec.structs.asdict(source),
        **content["languages"],
        **{name: content[name] for name in ("k", "seed", "algorithm", "filters", "duplicates", "weight")},
        "filters_sha256": recipe.filters_sha256,
    }


_META_FORMAT: MetadataFormat[SampleMeta] = MetadataFormat("description of a sample", 1 << 24, _DRAW_HINT, SampleMeta)

_line_decoder = msgspec.json.Decoder(SampledPair)


def read_sample(manifest_path: Path) -> Sample:
    """Read the sample of a manifest.jsonl; InputError if it is missing or edited."""
    try:
        data, meta = manifest_path.read_bytes(), _META_FORMAT.read(manifest_path.with_name(SAMPLE_META_FILE))
    except FileNotFoundError as error:
        raise InputError("file not found", error.filename, _DRAW_HINT) from None
    except IsADirectoryError:
        raise InputError("expected a file, got a folder", manifest_path, f"pass its {SAMPLE_FILE}") from None
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != meta.manifest_sha256:
        what = f"sample was edited after the draw: sha256 is {sha256}, expected {meta.manifest_sha256}"
        raise InputError(what, manifest_path, f"restore it, or {_DRAW_HINT}")
    return Sample(meta, [_line_decoder.decode(line) for line in data.splitlines()])


def check_notebook_folder(folder: Path) -> None:
    """Raise UsageError for an output folder that is a file or in a sealed artifact."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("expected a folder, got a file", folder, "choose another folder")
    if (artifact := find_artifact_above(folder / SAMPLE_FILE)) is not None:
        raise UsageError(f"the folder is in the sealed artifact {artifact}", folder, "choose another folder")

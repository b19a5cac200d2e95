"""Recipe of a packed set."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.source_caps import SourceCaps
from pipeline_assets.corpus.tokens.families import AnyTokenizerRecipe, TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.loss_limit import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.corpus.weights import Weights
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.section import RecipeSection

Strategy = Literal["sequential", "best_fit"]
PACK_STAGE = StageVersion("pack", 2)
TOKENIZER_FILE_KEY = "tokenizer_file"  # provenance key of its path, absolute or relative to the data root
_MAX_SEQ_LEN = 1 << 20
_MAX_NUM_SEQS = 1 << 31


def _check_seq_len(seq_len: int) -> int:
    if seq_len < 2:
        raise ValueError("must be at least 2 (a row needs a next token to predict)")
    if seq_len > _MAX_SEQ_LEN:
        raise ValueError(f"must be at most {_MAX_SEQ_LEN:,}")
    return seq_len


SeqLen = Annotated[int, pydantic.AfterValidator(_check_seq_len)]
"""Tokens in a row."""


class EpochCaps(SourceCaps):
    """Caps on the epochs of each source; a cap of 1.5 allows one and a half epochs."""

    @pydantic.model_validator(mode="after")
    def _check_above_zero(self) -> Self:
        if any(Fraction(cap) == 0 for cap in (self.every_source, *self.sources.values())):
            raise ValueError("a cap on epochs must be above 0; to exclude a source, remove it")
        return self


class PackRecipe(RecipeSection):
    """Recipe of the content of a packed set.

    Attributes:
        seq_len: Number of tokens in a row.
        num_seqs: Number of rows; None for as many as weights and caps allow.
        strategy: `sequential` cuts documents at the ends of rows and needs no padding. `best_fit` pads rows; it cuts
            only documents that are longer than a row, and the last draw (at the end of the token budget).
        seed: Seed that determines the order of draws and rows.
        weights: Weight of each source, as a share of the tokens or as a ratio. If None, weights are proportional to the
            tokens that each source's cap allows.
        max_epochs: Caps on the epochs of each source.
        tokenizer: Tokenizer of all texts.
        boundaries: Whether to also write arrays with the positions of documents in rows, for attention masks.
    """

    seq_len: SeqLen = 2048
    num_seqs: Annotated[int | None, Option("Number of rows. Default: as in the manifest.")] = pydantic.Field(
        None, ge=1, lt=_MAX_NUM_SEQS
    )
    strategy: Strategy = "best_fit"
    seed: int = pydantic.Field(1, ge=0)
    weights: Weights | None = None
    max_epochs: EpochCaps = EpochCaps(every_source="1")
    tokenizer: AnyTokenizerRecipe = HarmonyRecipe()
    boundaries: bool = False

    @pydantic.field_validator("max_epochs")
    @classmethod
    def _check_cap_names(cls, caps: EpochCaps, section: pydantic.ValidationInfo) -> EpochCaps:
        unknown = sorted(caps.sources.keys() - (section.data.get("weights") or caps.sources).keys())
        if unknown:
            raise ValueError(f"max_epochs names {unknown[0]}, which has no weight")
        return caps


class ResolvedPack(PackRecipe):
    """Recipe of a plan, in which `num_seqs` and `weights` (such as `1/3`) are set."""

    num_seqs: int
    weights: Mapping[str, str]


@dataclass(frozen=True)
class TokenizerPath:
    """Path of a packed set's tokenizer file, whose hash is pinned in the recipe."""

    path: Path

    def describe_changes(self, root: Path, manifest: Manifest) -> None:
        """Report no change: an artifact depends on the file's hash, not on its path."""


class PackSection(PackRecipe):
    """Recipe section `pack`: content of a set, and two keys that change no byte.

    Attributes:
        tokenizer_path: Path of the tokenizer file, absolute or relative to the data root; None for the file that ships
            with the program.
        max_unknown_fraction: Largest fraction of a source's text that the tokenizer may lose.
    """

    tokenizer_path: str | None = None
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

    @pydantic.model_validator(mode="after")
    def _check_tokenizer_path(self) -> Self:
        if self.tokenizer_path is None and not isinstance(self.tokenizer, HarmonyRecipe):
            what = f"the tokenizer file of {self.tokenizer.family} is missing"
            raise ValueError(f"{what}, since this program has only the one of o200k_harmony; set `tokenizer_path`")
        return self

    def check_tokenizer(self, root: Path) -> None:
        """Check the tokenizer's file by loading the tokenizer; `root` is the data root."""
        path = None if self.tokenizer_path is None else root / self.tokenizer_path
        load_tokenizer(TokenizerFile(self.tokenizer, path))

    def output_content(self) -> dict[str, Any]:
        """Return the keys and values on which the packed set's bytes depend.

        The key `tokenizer` is excluded, because manifests state the tokenizer outside the recipe.
        """
        names = PackRecipe.model_fields.keys() - {"tokenizer"}
        return {key: value for key, value in self.content().items() if key in names}


def tokenizer_path(manifest: Manifest, root: Path) -> TokenizerPath | None:
    """Return the absolute path of a tokenizer file; None for the shipped file."""
    path = manifest.provenance.get(TOKENIZER_FILE_KEY)
    return TokenizerPath((root / path).absolute()) if isinstance(path, str) else None

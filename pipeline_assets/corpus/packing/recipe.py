"""What a packed set is made of, and how."""

import decimal
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal as Exact
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.sampling.per_source import PerSource
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.recipe import Option, RecipePart
from pipeline_assets.corpus.tokens.families import AnyTokenizerRecipe, TokenizerFile, check_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe

Strategy = Literal["sequential", "best_fit"]
PACK_STAGE = StageVersion("pack", 2)
TOKENIZER_FILE = "tokenizer_file"
_MAX_SEQ_LEN = 1 << 20
_MAX_NUM_SEQS = 1 << 31


class EpochCaps(PerSource):
    """How often the text of a source may be taken; 1.5 is all of it once, and a half of it again."""

    @pydantic.model_validator(mode="after")
    def _are_above_zero(self) -> Self:
        if any(Fraction(cap) == 0 for cap in (self.every_source, *self.sources.values())):
            raise ValueError("a cap of 0 epochs: it is above 0; leave out a source that isn't wanted")
        return self


class PackRecipe(RecipePart):
    """A packed set.

    Attributes:
        seq_len: tokens in a row.
        num_seqs: rows.
        strategy: `sequential` cuts documents at the ends of rows and pads nothing; `best_fit` cuts only what is longer
            than a row, and pads.
        seed: of the order of documents and rows.
        weights: of the set's tokens the share of each source.
        boundaries: whether the places of documents in rows are written as arrays too, for masks.
    """

    seq_len: int
    num_seqs: Annotated[int, Option("Rows. Default: as the manifest says.", default=None)] = pydantic.Field(
        ge=1, lt=_MAX_NUM_SEQS
    )
    strategy: Strategy
    seed: int = pydantic.Field(ge=0)
    weights: Mapping[str, str]
    max_epochs: EpochCaps
    tokenizer: AnyTokenizerRecipe
    boundaries: bool

    @pydantic.field_validator("seq_len")
    @classmethod
    def _has_something_to_predict(cls, seq_len: int) -> int:
        if seq_len < 2:
            raise ValueError("a row of one token has no next one to predict: take 2 at least")
        if seq_len > _MAX_SEQ_LEN:
            raise ValueError(f"it is {_MAX_SEQ_LEN:,} at most")
        return seq_len

    @pydantic.field_validator("weights")
    @classmethod
    def _are_shares(cls, weights: Mapping[str, str]) -> Mapping[str, str]:
        for source, weight in weights.items():
            if not _is_above_zero(weight):
                raise ValueError(f"the weight of {source} is {weight!r}: it is a decimal above 0, such as '0.25'")
        if sum(map(Fraction, weights.values())) != 1:
            with decimal.localcontext(prec=1 + sum(map(len, weights.values()))):  # enough for each digit of the sum
                raise ValueError(f"the weights sum to {sum(map(Exact, weights.values()), Exact(0)):f}, not to 1")
        return weights

    @pydantic.model_validator(mode="after")
    def _caps_name_its_sources(self) -> Self:
        unknown = sorted(self.max_epochs.sources.keys() - self.weights.keys())
        if unknown:
            raise ValueError(f"max_epochs names {unknown[0]}, which has no weight")
        return self

    @property
    def sources(self) -> list[str]:
        """Names of the sources in the order in which they are counted: a recipe's own order changes nothing."""
        return sorted(self.weights)


def _is_above_zero(weight: str) -> bool:
    digits = weight.replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and weight[0] != "." and weight[-1] != "." and Exact(weight) > 0


@dataclass(frozen=True)
class TokenizerPath:
    """Where the file of a packed set's tokenizer lies, absolute or below the data root. Its hash is in the recipe: with
    another it is refused when it is loaded.
    """

    path: Path

    def changed(self, root: Path, manifest: Manifest) -> None:
        """Nothing: what lies there later is not what the set was made from."""


class PackSection(PackRecipe):
    """A packed set, and where its tokenizer's file lies.

    Attributes:
        tokenizer_path: absolute, or below the data root; None for the file that ships with the program; changes
            no byte.
    """

    tokenizer_path: str | None = None

    @pydantic.model_validator(mode="after")
    def _has_a_tokenizer_file(self) -> Self:
        if self.tokenizer_path is None and not isinstance(self.tokenizer, TokenizerRecipe):
            what = f"the tokenizer file of {self.tokenizer.family} is not given"
            raise ValueError(f"{what}: set `tokenizer_path` to it, only that of o200k_harmony ships with this program")
        return self

    def check_tokenizer(self, root: Path) -> None:
        """
        Args:
            root: the data root.
        Raises:
            InputError, UsageError: the tokenizer can't be loaded, as `load_tokenizer` says.
        """
        path = None if self.tokenizer_path is None else root / self.tokenizer_path
        check_tokenizer(TokenizerFile(self.tokenizer, path))

    def rows_content(self) -> dict[str, Any]:
        """What of the section bytes depend on, but for the tokenizer."""
        return {key: value for key, value in self.content().items() if key not in ("tokenizer", "tokenizer_path")}


def tokenizer_path(manifest: Manifest, root: Path) -> TokenizerPath | None:
    """Where the tokenizer's file of a packed set lies that is sealed below a data root; None for the one that ships."""
    path = manifest.provenance.get(TOKENIZER_FILE)
    return TokenizerPath(root / path) if isinstance(path, str) else None

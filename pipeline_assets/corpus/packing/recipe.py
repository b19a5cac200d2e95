"""What a packed set is made of, how, and which ones no corpus can give."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.tokens.families import AnyTokenizerRecipe, TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.losses import MAX_UNKNOWN_FRACTION, MaxUnknownFraction
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.corpus.weights import check_weights
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.errors import UsageError, bare
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.section import Option, PerSource, RecipeSection
from pipeline_assets.spine.staging import Receipt

Strategy = Literal["sequential", "best_fit"]
PACK_STAGE = StageVersion("pack", 2)
TOKENIZER_FILE = "tokenizer_file"  # where it lies, in the provenance: absolute or below the data root
_MAX_SEQ_LEN = 1 << 20
_MAX_NUM_SEQS = 1 << 31


def _has_something_to_predict(seq_len: int) -> int:
    if seq_len < 2:
        raise ValueError("a row of one token has no next one to predict: take 2 at least")
    if seq_len > _MAX_SEQ_LEN:
        raise ValueError(f"it is {_MAX_SEQ_LEN:,} at most")
    return seq_len


SeqLen = Annotated[int, pydantic.AfterValidator(_has_something_to_predict)]
"""Tokens in a row."""


class EpochCaps(PerSource):
    """How often the text of a source may be taken; 1.5 is all of it once, and a half of it again."""

    @pydantic.model_validator(mode="after")
    def _are_above_zero(self) -> Self:
        if any(Fraction(cap) == 0 for cap in (self.every_source, *self.sources.values())):
            raise ValueError("a cap of 0 epochs: it is above 0; leave out a source that isn't wanted")
        return self


class PackRecipe(RecipeSection):
    """A packed set.

    Attributes:
        seq_len: tokens in a row.
        num_seqs: rows; None for as many as weights and caps allow.
        strategy: `sequential` cuts documents at the ends of rows and pads nothing; `best_fit` cuts only what is longer
            than a row, and pads.
        seed: of the order of documents and rows.
        weights: of the set's tokens the share of each source; None takes of each all that its cap allows.
        boundaries: whether the places of documents in rows are written as arrays too, for masks.
    """

    seq_len: SeqLen = 2048
    num_seqs: Annotated[int | None, Option("Rows. Default: as the manifest says.")] = pydantic.Field(
        None, ge=1, lt=_MAX_NUM_SEQS
    )
    strategy: Strategy = "best_fit"
    seed: int = pydantic.Field(1, ge=0)
    weights: Mapping[str, str] | None = None
    max_epochs: EpochCaps = EpochCaps(every_source="1")
    tokenizer: AnyTokenizerRecipe = TokenizerRecipe()
    boundaries: bool = False

    @pydantic.field_validator("weights")
    @classmethod
    def _are_shares(cls, weights: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return None if weights is None else check_weights(weights)

    @pydantic.field_validator("max_epochs")
    @classmethod
    def _name_its_sources(cls, caps: EpochCaps, section: pydantic.ValidationInfo) -> EpochCaps:
        unknown = sorted(caps.sources.keys() - (section.data.get("weights") or caps.sources).keys())
        if unknown:
            raise ValueError(f"max_epochs names {unknown[0]}, which has no weight")
        return caps


class ResolvedPack(PackRecipe):
    """A packed set whose rows and weights are settled. A weight that was worked out may be a fraction, `1/3`."""

    num_seqs: int
    weights: Mapping[str, str]

    @pydantic.field_validator("weights")
    @classmethod
    def _are_shares(cls, weights: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return weights


@dataclass(frozen=True)
class TokenizerPath:
    """Where the file of a packed set's tokenizer lies, absolute or below the data root. Its hash is in the recipe: with
    another it is refused when it is loaded.
    """

    path: Path

    def describe_changes(self, root: Path, manifest: Manifest) -> None:
        """Nothing: what lies there later is not what the set was made from."""


class PackSection(PackRecipe):
    """A packed set, and where its tokenizer's file lies.

    Attributes:
        tokenizer_path: absolute, or below the data root; None for the file that ships with the program; changes
            no byte.
        max_unknown_fraction: largest share of a source that the tokenizer may lose; changes no byte.
    """

    tokenizer_path: str | None = None
    max_unknown_fraction: MaxUnknownFraction = MAX_UNKNOWN_FRACTION

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
        load_tokenizer(TokenizerFile(self.tokenizer, path))

    def rows_content(self) -> dict[str, Any]:
        """What of the section bytes depend on, but for the tokenizer."""
        mine = PackRecipe.model_fields.keys() - {"tokenizer"}
        return {key: value for key, value in self.content().items() if key in mine}


def tokenizer_path(manifest: Manifest, root: Path) -> TokenizerPath | None:
    """Where the tokenizer's file of a packed set lies that is sealed below a data root; None for the one that ships."""
    path = manifest.provenance.get(TOKENIZER_FILE)
    return TokenizerPath(root / path) if isinstance(path, str) else None


_LEAVE_OUT = "leave it out: in a manifest of `weights`, in a recipe of `sources` and `pack.weights`"
_DUPLICATES = "went as duplicates"
_KEEP = "or let it keep its texts: list it before those that repeat them, or deduplicate with scope per-source"


def raise_if_source_empty(
    corpora: Mapping[str, Artifact], deduplicated: Artifact | None, weighed: Collection[str]
) -> None:
    """Before a text is encoded.

    Args:
        corpora: by their names, each of one source or of several.
        deduplicated: what they were made from, if that is a deduplicated corpus.
        weighed: names of the sources that are asked for.
    Raises:
        UsageError: a source is asked for that has no document left.
    """
    for name, corpus in corpora.items():
        counts = corpus.manifest.identity.counts
        left = {source: own["out"] for source, own in sorted(counts.get("by_source", {}).items())}
        for source, documents in (left or {name: counts["documents"]}).items():
            if documents or source not in weighed:
                continue
            steps = [corpus] if deduplicated is None else [deduplicated, corpus]
            fates = [fate for step in steps for fate in _fates(step, source)]
            what = f"nothing is left of {source}{': ' * bool(fates)}{', '.join(fates)}"
            is_repeated = any(fate.endswith(_DUPLICATES) for fate in fates)
            raise UsageError(what, bare("pack.weights"), f"{_LEAVE_OUT}; {_KEEP}" if is_repeated else _LEAVE_OUT)


def raise_if_unencodable(sources: Sequence[str], encodings: Sequence[Receipt]) -> None:
    """After all texts were encoded.

    Args:
        sources: of each shard.
    Raises:
        UsageError: of a source no document can be encoded.
    """
    encoded: dict[str, Counter[str]] = {}
    for source, receipt in zip(sources, encodings, strict=True):
        encoded.setdefault(source, Counter()).update(receipt.counts)
    for source, counts in encoded.items():
        if not counts["documents"]:
            words = ", ".join(
                f"{count:,} {reason}" for reason, count in sorted(Ledger.from_counts(counts).rejected.items())
            )
            fix = "give neither the source nor a weight of it, or another tokenizer"
            raise UsageError(f"no document of {source} can be encoded: {words}", bare("pack.weights"), fix)


def _fates(corpus: Artifact, source: str) -> Iterator[str]:
    """How many documents of a source came to a step, and how many went there."""
    counts = corpus.manifest.identity.counts.get("by_source", {}).get(source, {})
    gone = {
        _DUPLICATES: counts.get("exact_duplicate", 0) + counts.get("near_duplicate", 0),
        "were contaminated": counts.get("dropped", 0),
    }
    for how, documents in gone.items():
        if documents:
            yield f"of {counts['in']:,} documents {documents:,} {how}"

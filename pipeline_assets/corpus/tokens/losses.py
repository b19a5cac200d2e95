"""Text that a tokenizer loses: unknown tokens and characters without a token.

A tokenizer with all 256 bytes in its vocabulary (byte level or byte fallback) loses nothing, and nothing is counted.
Any other one is measured while it encodes: unknown tokens by their id, lost characters by the difference between the
length of a text and the length of the text that its other tokens decode to, both in NFKC without blanks. SentencePiece
writes one unknown token for a run of unknown characters, so characters are counted as well as tokens; the larger of
both shares is `fraction`.
"""

import operator
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.spine.artifact import Verdict
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.section import Option, Share

LOST_TEXT = "lost_text"  # in the provenance of a manifest, by source
MAX_UNKNOWN_FRACTION = "0.05"
MaxUnknownFraction = Annotated[
    Share, Option("Stop if the tokenizer loses more of a source. Default: 0.05.", default=None)
]
_WARNING_FRACTION = Fraction(1, 1000)
_PREFIX = "encoded/"
_BLANK_MARK, _NO_TEXT = "\u2581", "\ufffd"  # blanks of SentencePiece and Metaspace; bytes that are not UTF-8


@dataclass(frozen=True)
class Losses:
    """Tokens of texts, without ends of documents, and the text missing from them.

    Attributes:
        tokens: Tokens of the texts.
        unknown_tokens: Tokens for text without a piece of its own.
        characters: Characters of the texts, without blanks.
        lost_characters: Characters that only an unknown token represents, or none.
    """

    tokens: int = 0
    unknown_tokens: int = 0
    characters: int = 0
    lost_characters: int = 0

    def __add__(self, other: "Losses") -> "Losses":
        return Losses(*map(operator.add, vars(self).values(), vars(other).values()))

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> Self:
        """Read the counts of a receipt; a lossless tokenizer writes none."""
        return cls(**{name: counts.get(f"{_PREFIX}{name}", 0) for name in cls.__dataclass_fields__})

    def to_counts(self) -> dict[str, int]:
        """Return the counts for a receipt, without zeros."""
        return {f"{_PREFIX}{name}": count for name, count in vars(self).items() if count}

    @property
    def fraction(self) -> Fraction:
        """Share of unknown tokens or of lost characters, whichever is larger."""
        return max(
            Fraction(self.unknown_tokens, max(self.tokens, 1)), Fraction(self.lost_characters, max(self.characters, 1))
        )

    def to_json(self) -> dict[str, int | str]:
        """Return the counts and their fraction, as a manifest has them."""
        return {**vars(self), "fraction": f"{float(self.fraction):.6f}"}

    def __str__(self) -> str:
        unknown = f"{self.unknown_tokens:,} of {self.tokens:,} tokens are unknown"
        lost = f"{self.lost_characters:,} of {self.characters:,} characters are lost"
        return f"{unknown}, {lost} ({float(self.fraction):.2%})"


NO_LOSSES = Losses()


def lost_text(by_source: Mapping[str, Losses]) -> dict[str, Any]:
    """Return the losses of each source for the provenance.

    No digest covers the provenance. The losses are empty for a lossless tokenizer.
    """
    return {LOST_TEXT: {source: losses.to_json() for source, losses in by_source.items() if losses != NO_LOSSES}}


def read_lost_text(manifest: Manifest) -> dict[str, Losses] | None:
    """Return the losses of each source; empty for a lossless tokenizer.

    None if an earlier version built the artifact.
    """
    counted = manifest.provenance.get(LOST_TEXT)
    if counted is None:
        return None
    names = Losses.__dataclass_fields__
    return {source: Losses(**{name: counts[name] for name in names}) for source, counts in counted.items()}


@dataclass(frozen=True)
class LossLimit:
    """Limit of a recipe to the share of each source's text that a tokenizer loses.

    The limit changes no byte.

    Attributes:
        fraction: Share of lost text above which a source blocks artifacts downstream of its tokens.
        check: Name of the check.
    """

    fraction: str = MAX_UNKNOWN_FRACTION
    check: str = "unknown_tokens_within_limit"

    def evaluate(self, manifest: Manifest) -> Verdict:
        """Compare the losses in a manifest with the limit; warn above 0.1 %."""
        by_source = read_lost_text(manifest)
        if by_source is None:
            return Verdict(True, "built by a version that did not count lost text", applies=False)
        return self.evaluate_losses(by_source)

    def evaluate_losses(self, by_source: Mapping[str, Losses]) -> Verdict:
        """Compare the losses of each source with the limit; warn above 0.1 %."""
        if not by_source:
            return Verdict(True, "the tokenizer has a token for every byte", {"unknown_fraction": 0.0})
        source, worst = max(by_source.items(), key=lambda item: item[1].fraction)
        numbers: dict[str, int | float | str] = {"unknown_fraction": float(worst.fraction), "source": source}
        message = f"{source}: {worst}"
        if worst.fraction > Fraction(self.fraction):
            fix = "use a tokenizer with byte_fallback, or one that was trained on this text"
            return Verdict(False, f"{message}, above `max_unknown_fraction` ({self.fraction}); {fix}", numbers)
        is_small = worst.fraction <= _WARNING_FRACTION
        return Verdict(is_small, f"{message}{'' if is_small else ', above 0.1 %'}", numbers, is_minor=not is_small)


@dataclass(frozen=True)
class LossCounter:
    """Counter of the text that a tokenizer loses.

    Attributes:
        unknown: Id of text without a token; -1 for a tokenizer without such an id, which drops that text or raises.
        decode: Function from ids to text.
        drops: Text can vanish without an unknown token, so every text is decoded.
    """

    unknown: int
    decode: Callable[[list[int]], str]
    drops: bool = False

    def count(self, texts: Iterable[str], runs: Iterable[NDArray[np.int32]]) -> Losses:
        """Count the losses of texts from their ids, one array per text."""
        losses = NO_LOSSES
        for text, ids in zip(texts, runs, strict=True):
            known = ids[ids != self.unknown]
            characters, unknown, lost = _count_characters(text), len(ids) - len(known), 0
            if unknown or self.drops:
                # Compatibility forms, since normalisation may compose and decompose characters.
                whole, kept = (unicodedata.normalize("NFKC", form) for form in (text, self.decode(known.tolist())))
                characters = _count_characters(whole)
                lost = max(characters - _count_characters(kept), unknown)
            losses += Losses(len(ids), unknown, max(characters, lost), lost)
        return losses


def _count_characters(text: str) -> int:
    """Count characters without blanks, marks of blanks, and replacement characters."""
    return len("".join(text.replace(_BLANK_MARK, " ").replace(_NO_TEXT, " ").split()))

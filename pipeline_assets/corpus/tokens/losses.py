"""Text that a tokenizer loses: unknown tokens and characters without a token.

A tokenizer with all 256 bytes in its vocabulary (byte level or byte fallback) loses nothing, and nothing is counted.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

from pipeline_assets.spine.manifest import Manifest

LOST_TEXT = "lost_text"  # in the provenance of a manifest, by source
_PREFIX = "encoded/"


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

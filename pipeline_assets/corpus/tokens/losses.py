"""Counts of the text that a tokenizer loses.

A lossless tokenizer has tokens for all 256 bytes (byte level or byte fallback); its losses are not counted.
"""

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

LOST_TEXT = "lost_text"  # in the provenance of a manifest, by source
_COUNT_PREFIX = "encoded/"


@dataclass(frozen=True)
class Losses:
    """Numbers of tokens and characters in texts, and how many are unknown or lost.

    Attributes:
        tokens: Number of tokens, without end-of-document tokens.
        unknown_tokens: Number of unknown tokens.
        characters: Number of characters, without whitespace.
        lost_characters: Number of characters that became unknown tokens, or that were dropped.
    """

    tokens: int = 0
    unknown_tokens: int = 0
    characters: int = 0
    lost_characters: int = 0

    def __add__(self, other: "Losses") -> "Losses":
        return Losses(*map(operator.add, vars(self).values(), vars(other).values()))

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> Self:
        """Read the losses from the counts of a receipt; missing counts are 0."""
        return cls(**{name: counts.get(f"{_COUNT_PREFIX}{name}", 0) for name in cls.__dataclass_fields__})

    def to_counts(self) -> dict[str, int]:
        """Return the losses as counts of a receipt, without zeros."""
        return {f"{_COUNT_PREFIX}{name}": count for name, count in vars(self).items() if count}

    @property
    def fraction(self) -> Fraction:
        """Share of unknown tokens or of lost characters, whichever is larger."""
        unknown = Fraction(self.unknown_tokens, max(self.tokens, 1))
        return max(unknown, Fraction(self.lost_characters, max(self.characters, 1)))

    def to_json(self) -> dict[str, int | str]:
        """Return the counts and `fraction` as JSON values of a manifest."""
        return {**vars(self), "fraction": f"{float(self.fraction):.6f}"}

    def __str__(self) -> str:
        unknown = f"{self.unknown_tokens:,} of {self.tokens:,} tokens are unknown"
        lost = f"{self.lost_characters:,} of {self.characters:,} characters are lost"
        return f"{unknown}, {lost} ({float(self.fraction):.2%})"


NO_LOSSES = Losses()


def losses_to_provenance(by_source: Mapping[str, Losses]) -> dict[str, Any]:
    """Return the losses by source as the provenance entry `lost_text`.

    No digest covers provenance. Sources without counts are omitted, such as all sources of a lossless tokenizer.
    """
    return {LOST_TEXT: {source: losses.to_json() for source, losses in by_source.items() if losses != NO_LOSSES}}

"""Estimate of a mixture from the sizes of its sources, before any text is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pipeline_assets.corpus.source_caps import SourceCaps


@dataclass(frozen=True)
class SourceEstimate:
    """Estimated tokens of a source in a mixture.

    Attributes:
        tokens: Number of tokens of all documents, each drawn once.
        max_epochs: Cap on the epochs.
        needed: Number of tokens from this source that the requested rows need; None if no number of rows is requested.
    """

    source: str
    tokens: int
    max_epochs: str
    needed: int | None

    @property
    def missing_tokens(self) -> int:
        """Number of needed tokens that the source lacks even if it is drawn up to its cap."""
        return max(0, (self.needed or 0) - int(Fraction(self.max_epochs) * self.tokens))


@dataclass(frozen=True)
class MixtureEstimate:
    """Estimates of all sources, and the number of rows that weights and caps allow."""

    sources: tuple[SourceEstimate, ...]
    possible_rows: int


def estimate_mixture(pack_section: Mapping[str, Any], tokens_by_source: Mapping[str, int]) -> MixtureEstimate:
    """Estimate a mixture from a `PackRecipe`'s content and each source's tokens.

    Only sources with both a weight and an entry in `tokens_by_source` are estimated; at least one is required.
    """
    caps = SourceCaps.from_content(pack_section["max_epochs"])
    seq_len, num_seqs = pack_section["seq_len"], pack_section["num_seqs"]
    available = {name: caps.cap(name) * count for name, count in tokens_by_source.items()}
    total = sum(available.values(), Fraction())
    weights = pack_section["weights"] or {name: str(count / total) for name, count in available.items()}
    shares = {name: Fraction(weights[name]) for name in tokens_by_source if name in weights}
    budget = min(available[name] / share for name, share in shares.items())
    requested = None if num_seqs is None else num_seqs * seq_len
    sources = (
        SourceEstimate(
            name,
            tokens_by_source[name],
            caps.sources.get(name, caps.every_source),
            None if requested is None else int(share * requested),
        )
        for name, share in shares.items()
    )
    return MixtureEstimate(tuple(sources), int(budget) // seq_len)

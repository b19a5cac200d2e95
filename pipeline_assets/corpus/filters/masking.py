"""The filter that drops nothing: it masks e-mail and public IP addresses in what is kept."""

from collections.abc import Sequence

from pipeline_assets.corpus.filters.addresses import find_addresses, with_masks
from pipeline_assets.corpus.filters.column_rules import Candidate, Measurement
from pipeline_assets.corpus.filters.ip_addresses import byte_kinds, reserved_networks
from pipeline_assets.corpus.filters.recipe import MaskingRecipe
from pipeline_assets.corpus.filters.thresholds import batch_of
from pipeline_assets.corpus.filters.words import character_classes

MASKED_EMAIL, MASKED_IP = "masked/email", "masked/ip"


class Masking:
    """Which addresses `MaskingRecipe` masks."""

    def __init__(self, recipe: MaskingRecipe) -> None:
        self._masked = (recipe.emails, recipe.public_ips)
        self._kinds, self._reserved = byte_kinds(), reserved_networks()
        self._bits = character_classes().of_code_point

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Masks the addresses of each document, and counts them."""
        batch = batch_of([candidate.text for candidate in candidates])
        found = find_addresses(batch.text, batch.offsets, self._masked, self._kinds, self._reserved, self._bits)
        first_of = found.offsets.tolist()
        for document, candidate in enumerate(candidates):
            own = slice(first_of[document], first_of[document + 1])
            if own.start == own.stop:
                continue
            emails = int(found.is_email[own].sum())
            spans = found.spans[own] - batch.offsets[document]
            candidate.text = with_masks(candidate.text, spans, found.is_email[own])
            for name, addresses in ((MASKED_EMAIL, emails), (MASKED_IP, own.stop - own.start - emails)):
                candidate.count(name, addresses)

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """Masks too; there is nothing that it drops for."""
        self.apply([candidate])
        return []

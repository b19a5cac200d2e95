"""Recipe limit on the share of text that a tokenizer loses."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, ClassVar

from pipeline_assets.corpus.tokens.losses import Losses
from pipeline_assets.corpus.tokens.sealed_losses import read_losses
from pipeline_assets.spine.artifact import Verdict
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import Share
from pipeline_assets.spine.manifest import Manifest

MAX_UNKNOWN_FRACTION = "0.05"
MaxUnknownFraction = Annotated[Share, Option("Maximum share of text lost in encoding. Default: 0.05.", default=None)]
_WARNING_FRACTION = Fraction(1, 1000)


@dataclass(frozen=True)
class LossLimit:
    """Limit of a recipe on the share of each source's text that a tokenizer loses.

    The limit changes no byte of an artifact. If a source exceeds the limit, downstream artifacts are not built.

    Attributes:
        fraction: Largest allowed share, as a decimal string.
    """

    check_name: ClassVar[str] = "unknown_tokens_within_limit"
    fraction: str = MAX_UNKNOWN_FRACTION

    def evaluate(self, manifest: Manifest) -> Verdict:
        """Compare each source's losses in a manifest with the limit; warn above 0.1 %.

        If the artifact was built by a program version that did not count losses, the verdict has `applies=False`.
        """
        by_source = read_losses(manifest)
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

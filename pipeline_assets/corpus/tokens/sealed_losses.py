"""Losses of a tokenizer by source, read from the manifest of an artifact."""

from pipeline_assets.corpus.tokens.losses import LOST_TEXT, Losses
from pipeline_assets.spine.manifest import Manifest


def read_losses(manifest: Manifest) -> dict[str, Losses] | None:
    """Return a manifest's losses by source; the dict is empty for lossless tokenizers.

    Return None if the artifact was built by a program version that did not count losses.
    """
    counted = manifest.provenance.get(LOST_TEXT)
    if counted is None:
        return None
    names = Losses.__dataclass_fields__
    return {source: Losses(**{name: counts[name] for name in names}) for source, counts in counted.items()}

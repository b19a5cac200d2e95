"""What a corpus could give at most, known from the sizes of its text before any of it is encoded."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import UsageError, bare
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe

_GROWTH = 16  # tokens of a byte where a tokenizer normalises text first: NFKC makes 33 bytes of the 3 of U+FDFA


def refuse_beyond_text(corpora: Mapping[str, Artifact], recipe: PackRecipe) -> None:
    """Says of absurd numbers of rows what is wrong with them, rather than of the disk that they would take.

    A token of o200k_harmony is a byte of text at least, or the end of a document. Two rows of best fit hold more than
    a full row of tokens, else it had made one of them; and a row is never longer than all that may be drawn.

    Args:
        corpora: by their names, each of one source or of several.
    Raises:
        UsageError: a source couldn't give its share, whatever its text is.
    """
    growth = 1 if isinstance(recipe.tokenizer, TokenizerRecipe) else _GROWTH
    full_rows = recipe.num_seqs if recipe.strategy == "sequential" else max(1, recipe.num_seqs // 2)
    for source, text in _texts(corpora):
        if source not in recipe.weights:
            continue
        asked = full_rows * recipe.seq_len * Fraction(recipe.weights[source])
        if asked > recipe.max_epochs.cap(source) * (growth * text.bytes + text.documents):
            cap = recipe.max_epochs.sources.get(source, recipe.max_epochs.every_source)
            what = (
                f"{recipe.num_seqs:,} rows take {math.ceil(asked):,} tokens of {source} or more, whose text has "
                f"{text.bytes:,} bytes, and its cap of epochs is {cap}"
            )
            raise UsageError(what, bare("pack.num_seqs"), "ask for fewer rows")


class _Text(NamedTuple):
    """What a source holds."""

    documents: int
    bytes: int


def _texts(corpora: Mapping[str, Artifact]) -> Iterator[tuple[str, _Text]]:
    for name, corpus in corpora.items():
        counts = corpus.manifest.identity.counts
        if "by_source" not in counts:
            yield name, _Text(counts["documents"], counts["text_bytes"])
        for source, own in counts.get("by_source", {}).items():
            yield source, _Text(own["out"], own["text_bytes"])

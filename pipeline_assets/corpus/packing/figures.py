"""What meta.json and the manifest say of a packed set."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np

from pipeline_assets.corpus.document_shards import ledger
from pipeline_assets.corpus.formats.memmap import DTYPE, Frame, Meta
from pipeline_assets.corpus.packing.documents import SourceCounts
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.packing.row_ranges import RowRange
from pipeline_assets.corpus.spine.building import OutputFile, Receipt
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer


def describe(
    recipe: PackRecipe,
    tokenizer: TokenizerFile,
    ranges: Sequence[RowRange],
    index: Sequence[OutputFile],
    counts: Mapping[str, Any],
    created_at: datetime.datetime,
) -> Meta:
    """
    Args:
        index: the lines of each range, as they follow one another in the index.
        counts: as `manifest_counts` has them.
    """
    library = load_tokenizer(tokenizer)
    offsets = np.cumsum([0, *(part.bytes for part in index)]).tolist()
    return Meta(
        seq_len=recipe.seq_len,
        n_seqs=recipe.num_seqs,
        dtype=DTYPE.name,
        tokenizer_family=recipe.tokenizer.family,
        tokenizer_sha256=recipe.tokenizer.sha256,
        tokenizer_path=str(tokenizer.path),
        vocabulary_size=library.vocabulary_size,
        eod_id=library.end_of_document,
        pad_id=library.padding,
        strategy=recipe.strategy,
        documents=counts["documents"],
        tokens=counts["tokens"],
        padding_tokens=counts["padding_tokens"],
        counts=dict(counts),
        created_at=created_at.isoformat(timespec="seconds"),
        index_frames=[Frame(one.start, offset) for one, offset in zip(ranges, offsets, strict=False)],
    )


def manifest_counts(
    recipe: PackRecipe, encoded: Mapping[str, int], by_source: Mapping[str, SourceCounts], plan: Receipt
) -> dict[str, Any]:
    """
    Args:
        encoded: counts of all encoded shards together.
    """
    read, tokens, room = ledger(encoded), plan.counts["tokens"], recipe.num_seqs * recipe.seq_len
    unused = sum(counts.unused_documents for counts in by_source.values())
    return {
        "ledger": {**read, "out": read["out"] - unused, "dropped": {"not_drawn": unused} if unused else {}},
        "documents": plan.counts["draws"],
        "tokens": tokens,
        "rows": recipe.num_seqs,
        "padding_tokens": room - tokens,
        "packing_efficiency": _quotient(tokens, room),
        "by_source": {
            source: {
                **asdict(counts),
                "asked_tokens": int(Fraction(recipe.weights[source]) * tokens),
                "asked_share": recipe.weights[source],
                "share": _quotient(counts.packed_tokens, tokens),
                "epochs": _quotient(counts.packed_tokens, counts.text_tokens),
            }
            for source, counts in by_source.items()
        },
    }


def _quotient(part: int, of: int) -> str:
    return f"{part / of:.6f}"

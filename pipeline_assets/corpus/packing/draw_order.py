"""The order in which draws are packed: a seeded one over all sources; the document that the budget cuts comes last."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled
from pipeline_assets.corpus.packing.corpus_lengths import SourceRange
from pipeline_assets.corpus.packing.drawn import Drawn, DrawnSource
from pipeline_assets.corpus.packing.hashed_order import MAX_THINGS, hashed_order
from pipeline_assets.corpus.packing.mixture import Draws, Mixture
from pipeline_assets.corpus.spine.errors import UsageError, bare


def number_draws(mixture: Mixture, ranges: Sequence[SourceRange], draws: Draws) -> Drawn:
    """
    Raises:
        UsageError: there are more than can be numbered.
    """
    sources: list[DrawnSource] = []
    taken: list[NDArray[np.uint32]] = []
    cut, first_draw, first_taken = None, 0, 0
    for number, (place, drawn) in enumerate(zip(ranges, draws.of, strict=True)):
        is_cut = draws.cut is not None and draws.cut.source == number
        order = mixture.order(number, drawn.epochs)[: drawn.partial + is_cut]
        stop_taken = first_taken + len(order)
        sources.append(
            DrawnSource(place.name, place.first, place.stop, first_draw, drawn.epochs, first_taken, stop_taken)
        )
        last = order[-1:].copy()
        order.sort()
        taken.append(order)
        if draws.cut is not None and is_cut:
            in_last_epoch = int(np.searchsorted(order, last[0]))
            cut = first_draw + drawn.epochs * sources[-1].documents + in_last_epoch, draws.cut.tokens
        first_draw, first_taken = first_draw + sources[-1].draws, stop_taken
    if first_draw > MAX_THINGS:
        raise UsageError(
            f"{first_draw:,} documents are drawn", bare("pack.num_seqs"), f"pack at most {MAX_THINGS:,} at a time"
        )
    return Drawn(sources, np.concatenate(taken), cut)


def packed_order(drawn: Drawn, seed: int) -> NDArray[np.uint32]:
    """The numbers of draws, in the order in which they are packed, shape (draws,)."""
    order = hashed_order(drawn.draws, seed, "draws")
    if drawn.cut is not None:
        place = int(np.flatnonzero(order == drawn.cut[0])[0])
        order[place:] = np.roll(order[place:], -1)
    return order


def documents_of(drawn: Drawn, draws: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The documents that were drawn, numbered in the corpus; in the place of the draws, which are lost."""
    columns = np.array(
        [(one.first_draw, one.first_document, one.documents, one.epochs, one.first_taken) for one in drawn.sources]
    )
    _to_documents(draws, columns.T.copy(), drawn.taken)
    return draws


@compiled
def _to_documents(draws: NDArray[np.uint32], sources: NDArray[Any], taken: NDArray[np.uint32]) -> None:
    """
    Args:
        sources: first_draw, first_document, documents, epochs and first_taken of each, shape (5, sources).
    """
    first_draws, first_documents, counts, epochs, first_taken = sources
    for place in range(len(draws)):
        draw = np.int64(draws[place])
        source = np.searchsorted(first_draws, draw, side="right") - 1
        draw -= first_draws[source]
        in_epochs = epochs[source] * counts[source]
        if draw < in_epochs:
            document = draw % counts[source]
        else:
            document = np.int64(taken[first_taken[source] + draw - in_epochs])
        draws[place] = first_documents[source] + document

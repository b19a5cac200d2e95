"""Drawn documents, and how draws are numbered.

Draws have numbers: sources by name, their epochs, and in an epoch the documents as they are numbered in the corpus. So
of a shard the draws of one epoch have numbers in a row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class DrawnSource:
    """What was drawn of one source.

    Attributes:
        first_document, stop_document: numbers of its documents in the corpus.
        first_draw: the number of its first draw.
        epochs: how often all of it was drawn.
        first_taken, stop_taken: where `Drawn.taken` has the documents of its last epoch.
    """

    name: str
    first_document: int
    stop_document: int
    first_draw: int
    epochs: int
    first_taken: int
    stop_taken: int

    @property
    def documents(self) -> int:
        return self.stop_document - self.first_document

    @property
    def draws(self) -> int:
        return self.epochs * self.documents + self.stop_taken - self.first_taken


@dataclass(frozen=True)
class Drawn:
    """All draws.

    Attributes:
        taken: of each source the documents of its last epoch, ascending, numbered in the source; shape (taken,).
        cut: the draw whose document is cut, and the tokens that are left of it; None where none is.
    """

    sources: Sequence[DrawnSource]
    taken: NDArray[np.uint32]
    cut: tuple[int, int] | None

    @property
    def draws(self) -> int:
        return sum(source.draws for source in self.sources)

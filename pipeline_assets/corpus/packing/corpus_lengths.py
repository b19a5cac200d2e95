"""How long the documents of a corpus are, and how they are numbered: sources by name, their shards, their rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.packing.encoded_shard import DocumentTable, EncodedShard


@dataclass(frozen=True)
class SourceRange:
    """The numbers of a source's documents: from `first` to before `stop`; `rejected` others were not encoded."""

    name: str
    first: int
    stop: int
    rejected: int = 0


def first_documents(shards: Sequence[EncodedShard]) -> NDArray[np.int64]:
    """The number of each shard's first document, and how many there are, shape (shards + 1,)."""
    return np.cumsum([0, *(shard.documents for shard in shards)], dtype=np.int64)


def source_ranges(shards: Sequence[EncodedShard]) -> list[SourceRange]:
    """The sources, in the order of their names as the shards are."""
    firsts = first_documents(shards).tolist()
    stops: dict[str, int] = {}
    rejected: dict[str, int] = {}
    for shard, stop in zip(shards, firsts[1:], strict=True):
        stops[shard.source] = stop
        rejected[shard.source] = rejected.get(shard.source, 0) + shard.rejected
    return [
        SourceRange(source, first, stop, rejected[source])
        for (source, stop), first in zip(stops.items(), [0, *stops.values()], strict=False)
    ]


def document_lengths(shards: Sequence[EncodedShard]) -> NDArray[np.int32]:
    """Tokens of each document with its end, shape (documents,): 4 bytes a document."""
    firsts = first_documents(shards)
    lengths = np.empty(firsts[-1], np.int32)
    for shard, first in zip(shards, firsts.tolist(), strict=False):
        lengths[first : first + shard.documents] = DocumentTable(shard.document_file).tokens
    return lengths

"""Shards of a corpus of one source or of several, and their lines as stages read them."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.compression import SUFFIX, read_line_blocks
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.worker import Window

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class CorpusShard:
    """One Document shard of one source.

    Attributes:
        name: unique in the corpus; names what is made of it.
        source: the source's name.
        path: in its artifact.
        file: on disk.
        first_number: the number of its first document in the corpus, see `order`.
    """

    name: str
    source: str
    path: str
    file: Path
    rows: int
    first_number: int


def corpus_shards(sources: Mapping[str, Artifact], first_number: int = 0) -> list[CorpusShard]:
    """The shards of sources, given by their names, in this order; documents are numbered from `first_number` on.

    An artifact may also hold several sources, whose shards it has counted by source: its own name is no source's then.
    """
    shards: list[CorpusShard] = []
    for source, corpus in sources.items():
        several = _sources_within(corpus)
        for place, (path, rows) in enumerate(shard_rows(corpus).items()):
            own = Path(path).name.removesuffix(SUFFIX)
            name, owner = (own, several[place]) if several else (f"{source}-{own}", source)
            shards.append(CorpusShard(name, owner, path, corpus.path(path), rows, first_number))
            first_number += rows
    return shards


def _sources_within(corpus: Artifact) -> list[str]:
    """The source of each shard, in the recipe's order: counts in a manifest are sorted. None where all are of one."""
    identity = corpus.manifest.identity
    by_source, sources = identity.counts.get("by_source", {}), identity.recipe.get("sources", ())
    return [source for source in sources if source in by_source for _ in range(by_source[source].get("shards", 0))]


def add_by_source(shards: Sequence[CorpusShard], counts: Iterable[Mapping[str, int]]) -> dict[str, Counter[str]]:
    """Counts of shards added up, by source."""
    by_source: dict[str, Counter[str]] = {shard.source: Counter() for shard in shards}
    for shard, of_shard in zip(shards, counts, strict=True):
        by_source[shard.source].update(of_shard)
    return by_source


class Line(NamedTuple):
    """A line of a shard: its row, and its bytes without the line feed."""

    row: int
    line: bytes


class LineBlock(NamedTuple):
    """Lines of a shard that follow each other, but `fatal`, the rows among them that kill their worker."""

    lines: list[Line]
    fatal: list[int]


def line_blocks(shard: CorpusShard, window: Window) -> Iterator[LineBlock]:
    """The lines in the window.

    Raises:
        InputError: the file is damaged, or has other rows than its manifest says.
    """
    first_row = 0
    for data in read_line_blocks(shard.file, _BLOCK_BYTES):
        lines = data.removesuffix(b"\n").split(b"\n")
        block = LineBlock([], [])
        for row, line in window.of(lines, first_row):
            if row in window.fatal:
                block.fatal.append(row)
            else:
                block.lines.append(Line(row, line))
        yield block
        first_row += len(lines)
    if first_row != shard.rows:
        what = f"it has {first_row:,} rows, its manifest says {shard.rows:,}"
        raise InputError(what, shard.file, "verify the corpus, then rebuild it")


class DocumentFields(msgspec.Struct, frozen=True):
    """What is compared of a Document; decoding skips the rest."""

    text: str
    doc_id: str
    meta: msgspec.Raw


_decoder = msgspec.json.Decoder(DocumentFields)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)


def decoded_documents(lines: Sequence[Line], shard: CorpusShard) -> list[DocumentFields]:
    """The documents in lines, decoded at once, which takes half as long as one by one.

    Raises:
        InputError: a line is no Document.
    """
    with contextlib.suppress(*_UNREADABLE):
        documents = _decoder.decode_lines(b"\n".join([line for _, line in lines]))
        if len(documents) == len(lines):
            return documents
    return [_read_document(line, row, shard) for row, line in lines]


def _read_document(line: bytes, row: int, shard: CorpusShard) -> DocumentFields:
    try:
        return _decoder.decode(line)
    except _UNREADABLE as error:
        what = f"row {row} is no Document ({error})"
        raise InputError(what, shard.file, "verify the corpus, then rebuild it") from None

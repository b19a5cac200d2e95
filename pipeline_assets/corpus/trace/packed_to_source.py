"""From a token, a row or a document of a packed set to the rows of the files that it came from."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.memmap import PackedSet, Segment, open_packed
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.packing.summary import DrawnLine, drawn_lines
from pipeline_assets.corpus.recipes.stage_a_packing import tokenizer_path
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError, UsageError
from pipeline_assets.corpus.spine.lineage import locate
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.corpus.trace.document_to_source import DocumentTrace, trace_line
from pipeline_assets.corpus.trace.origin import came_by
from pipeline_assets.corpus.trace.snapshot_rows import check_range, read_document

_TOKENS_AROUND = 24


@dataclass(frozen=True)
class PackedToken:
    """One token of a packed set.

    Attributes:
        position: in input_ids.mmap, from 0.
        number: in its document, from 0.
        text: its own, by the set's tokenizer, as `before` and `after`, the text of the tokens around it.
    """

    position: int
    number: int
    id: int
    text: str
    is_end_of_document: bool
    before: str
    after: str


@dataclass(frozen=True)
class SegmentTrace:
    """A segment of a packed set back to its source.

    Attributes:
        column: its first token in the row.
        start: its first token in the document.
        tokens: how many it has.
        token: None where the question was for the whole row.
    """

    packed: Path
    row: int
    column: int
    start: int
    tokens: int
    document: DocumentTrace
    token: PackedToken | None


@dataclass(frozen=True)
class Piece:
    """`tokens` tokens of a document from `start` on, which a row has from `column` on."""

    row: int
    column: int
    start: int
    tokens: int


@dataclass(frozen=True)
class DrawnDocument:
    """A document of a packed set back to its source, the times that it was drawn, and where it is, in order of rows."""

    packed: Path
    document: DocumentTrace
    draws: Sequence[DrawnLine]
    pieces: Sequence[Piece]


class PackedLineage:
    """A packed set, opened, with the corpora that it was made from. What is traced is held against the text of its
    document, encoded again.
    """

    def __init__(self, artifact: Artifact, root: Path) -> None:
        """
        Args:
            root: the data root below which lies what it was made from.
        Raises:
            InputError: a file is damaged.
        """
        self.artifact, self._root = artifact, root
        self.packed = open_packed(artifact.folder, artifact.manifest.digest)
        self._corpora: dict[str, Artifact] = {}

    def trace_token(self, position: int) -> SegmentTrace:
        """Where one token of input_ids.mmap came from.

        Raises:
            UsageError: out of range, or padding.
            InputError: what the set was made from is gone, or says another thing.
        """
        seq_len = self.packed.meta.seq_len
        check_range("token", position, self.packed.input_ids.size, self.artifact.folder)
        row, column = divmod(position, seq_len)
        segments, firsts = self._segments(row)
        tokens = sum(segment.length for segment in segments)
        if column >= tokens:
            what = f"token {position:,} is padding: row {row:,} has {tokens:,} tokens of documents"
            raise UsageError(what, self.artifact.folder, f"give {row * seq_len:,} to {row * seq_len + tokens - 1:,}")
        number = bisect.bisect(firsts, column) - 1
        first, segment = firsts[number], segments[number]
        [line] = self._lines([segment])
        ids = self._encoded(line)
        token = self._token(ids, segment.start + column - first, position)
        return self._segment(row, first, segment, line, ids, token)

    def trace_row(self, row: int) -> list[SegmentTrace]:
        """Where the segments of a row came from, in their order. Errors as `trace_token`."""
        check_range("row", row, len(self.packed), self.artifact.folder)
        segments, firsts = self._segments(row)
        return [
            self._segment(row, first, segment, line, self._encoded(line), None)
            for first, segment, line in zip(firsts, segments, self._lines(segments), strict=True)
        ]

    def trace_document(self, doc_id: str) -> list[DrawnDocument]:
        """Where a document came from, and where in the set it is; several where sources have one id. Reads the index.

        Raises:
            UsageError: it was never drawn.
            InputError: as `trace_token`.
        """
        draws: dict[str, list[DrawnLine]] = {}
        for line in drawn_lines(self.artifact, [doc_id]):
            draws.setdefault(line.source, []).append(line)
        if not draws:
            what = f"no document with doc_id {doc_id!r} was drawn"
            raise UsageError(what, self.artifact.folder, "`corpusmill stage-a why` tells what became of it")
        ids = {source: self._encoded(lines[0]) for source, lines in draws.items()}
        pieces: dict[str, list[Piece]] = {source: [] for source in draws}
        for row in self.packed.rows_with(doc_id):
            for segment, first in zip(*self._segments(row), strict=True):
                if segment.doc_id == doc_id and segment.source in draws:
                    self._check(row, first, segment, ids[segment.source])
                    pieces[segment.source].append(Piece(row, first, segment.start, segment.length))
        return [
            DrawnDocument(self.artifact.folder, self._document(lines[0]), lines, pieces[source])
            for source, lines in draws.items()
        ]

    def _segments(self, row: int) -> tuple[list[Segment], list[int]]:
        """The segments of a row, and their first tokens in it."""
        return self.packed.segments(row), self.packed.boundaries(row)[:, 0].tolist()

    def _lines(self, segments: Sequence[Segment]) -> list[DrawnLine]:
        """A line of documents.parquet of each segment's document."""
        lines = drawn_lines(self.artifact, {segment.doc_id for segment in segments})
        found = {(line.source, line.doc_id): line for line in lines}
        try:
            return [found[segment.source, segment.doc_id] for segment in segments]
        except KeyError as error:
            what = f"documents.parquet has no line for {error}, which the index has"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on it") from None

    def _segment(
        self,
        row: int,
        first: int,
        segment: Segment,
        line: DrawnLine,
        ids: NDArray[np.int32],
        token: PackedToken | None,
    ) -> SegmentTrace:
        self._check(row, first, segment, ids)
        document = self._document(line)
        return SegmentTrace(self.artifact.folder, row, first, segment.start, segment.length, document, token)

    def _check(self, row: int, first: int, segment: Segment, ids: NDArray[np.int32]) -> None:
        own = self.packed[row][first : first + segment.length]
        if not np.array_equal(own, ids[segment.start : segment.start + segment.length]):
            what = f"row {row:,} doesn't hold the tokens of document {segment.doc_id!r} from column {first:,} on"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify --upstream` on it")

    def _corpus(self, source: str) -> Artifact:
        """Found once: to find it, every manifest below the data root is read."""
        digest = came_by(self.artifact.manifest, source)["digest"]
        if digest not in self._corpora:
            self._corpora[digest] = locate(self._root, digest)
        return self._corpora[digest]

    def _document(self, line: DrawnLine) -> DocumentTrace:
        return trace_line(self._corpus(line.source), self._root, line.shard, line.row)

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return tokenizer_of_set(self.artifact, self.packed, self._root)

    def _encoded(self, line: DrawnLine) -> NDArray[np.int32]:
        """A document's tokens, with its end."""
        text = read_document(self._corpus(line.source).path(line.shard), line.row).text
        return np.append(self._tokenizer.encode([text]).ids, np.int32(self._tokenizer.end_of_document))

    def _token(self, ids: NDArray[np.int32], number: int, position: int) -> PackedToken:
        """The token of a document with this number, which the set has at this position."""
        decode = self._tokenizer.decode
        return PackedToken(
            position=position,
            number=number,
            id=int(ids[number]),
            text=decode(ids[number : number + 1]),
            is_end_of_document=number == len(ids) - 1,
            before=decode(ids[max(0, number - _TOKENS_AROUND) : number]),
            after=decode(ids[number + 1 : number + 1 + _TOKENS_AROUND]),
        )


def tokenizer_of_set(artifact: Artifact, packed: PackedSet, root: Path | None) -> Tokenizer:
    """The tokenizer that a packed set was made with. Its file is looked for where a rebuild takes it from, since a data
    root moves, then where it lay when the set was made.

    Args:
        root: the data root; None where the set lies in none.
    Raises:
        InputError: its file is gone, or another one.
    """
    identity = artifact.manifest.identity
    recipe = PackRecipe.from_content({**identity.recipe["pack"], "tokenizer": identity.tokenizer}).tokenizer
    if isinstance(recipe, TokenizerRecipe):
        return load_tokenizer(TokenizerFile(recipe))
    asked = tokenizer_path(artifact.manifest, root) if root is not None else None
    places = [*([asked.path] if asked is not None else []), Path(packed.meta.tokenizer_path)]
    return load_tokenizer(TokenizerFile(recipe, next((place for place in places if place.is_file()), places[0])))

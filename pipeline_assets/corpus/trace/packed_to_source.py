"""From a token, a row or a document of a packed set to the rows of the files that it came from."""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline_assets.corpus.formats.memmap import PackedSet, Segment, open_packed
from pipeline_assets.corpus.packing.drawn_lines import DrawnLine, drawn_lines
from pipeline_assets.corpus.packing.recipe import PackRecipe
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
class DrawnDocument:
    """A document of a packed set back to its source, and the times that it was drawn."""

    packed: Path
    document: DocumentTrace
    draws: Sequence[DrawnLine]


class PackedLineage:
    """A packed set, opened, with the corpora that it was made from."""

    def __init__(self, artifact: Artifact, root: Path) -> None:
        """
        Args:
            root: the data root below which lies what it was made from.
        Raises:
            InputError: a file is damaged.
        """
        self.artifact, self.packed, self._root = artifact, open_packed(artifact.folder), root
        self._corpora: dict[str, Artifact] = {}

    def trace_token(self, position: int) -> SegmentTrace:
        """Where one token of input_ids.mmap came from. It is held against the document's text, encoded again.

        Raises:
            UsageError: out of range, or padding.
            InputError: what the set was made from is gone, or says another thing.
        """
        seq_len = self.packed.meta.seq_len
        check_range("token", position, self.packed.input_ids.size, self.artifact.folder)
        row, column = divmod(position, seq_len)
        segments, firsts = self.packed.segments(row), self.packed.boundaries(row)[:, 0].tolist()
        tokens = sum(segment.length for segment in segments)
        if column >= tokens:
            what = f"token {position:,} is padding: row {row:,} has {tokens:,} tokens of documents"
            raise UsageError(what, self.artifact.folder, f"give {row * seq_len:,} to {row * seq_len + tokens - 1:,}")
        number = bisect.bisect(firsts, column) - 1
        [line] = self._lines([segments[number]])
        token = self._token(segments[number], line, row, firsts[number], column)
        return self._segment(row, firsts[number], segments[number], line, token)

    def trace_row(self, row: int) -> list[SegmentTrace]:
        """Where the segments of a row came from, in their order. Errors as `trace_token`."""
        check_range("row", row, len(self.packed), self.artifact.folder)
        segments, firsts = self.packed.segments(row), self.packed.boundaries(row)[:, 0].tolist()
        return [
            self._segment(row, first, segment, line, None)
            for first, segment, line in zip(firsts, segments, self._lines(segments), strict=True)
        ]

    def trace_document(self, doc_id: str) -> list[DrawnDocument]:
        """Where a document came from, and where in the set it is; several where sources have one id.

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
        return [DrawnDocument(self.artifact.folder, self._document(lines[0]), lines) for lines in draws.values()]

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
        self, row: int, first: int, segment: Segment, line: DrawnLine, token: PackedToken | None
    ) -> SegmentTrace:
        document = self._document(line)
        return SegmentTrace(self.artifact.folder, row, first, segment.start, segment.length, document, token)

    def _corpus(self, source: str) -> Artifact:
        """Found once: to find it, every manifest below the data root is read."""
        digest = came_by(self.artifact.manifest, source)["digest"]
        if digest not in self._corpora:
            self._corpora[digest] = locate(self._root, digest)
        return self._corpora[digest]

    def _document(self, line: DrawnLine) -> DocumentTrace:
        return trace_line(self._corpus(line.source), self._root, line.shard, line.row)

    def _token(self, segment: Segment, line: DrawnLine, row: int, first: int, column: int) -> PackedToken:
        corpus, tokenizer = self._corpus(line.source), tokenizer_of_set(self.artifact, self.packed)
        text = read_document(corpus.path(line.shard), line.row).text
        ids = np.append(tokenizer.encode([text]).ids, np.int32(tokenizer.end_of_document))
        own = self.packed[row][first : first + segment.length]
        if not np.array_equal(own, ids[segment.start : segment.start + segment.length]):
            what = f"row {row:,} doesn't hold the tokens of document {segment.doc_id!r} from token {column:,} on"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify --upstream` on it")
        number = segment.start + column - first
        return PackedToken(
            position=row * self.packed.meta.seq_len + column,
            number=number,
            id=int(ids[number]),
            text=tokenizer.decode(ids[number : number + 1]),
            is_end_of_document=number == len(ids) - 1,
            before=tokenizer.decode(ids[max(0, number - _TOKENS_AROUND) : number]),
            after=tokenizer.decode(ids[number + 1 : number + 1 + _TOKENS_AROUND]),
        )


def tokenizer_of_set(artifact: Artifact, packed: PackedSet) -> Tokenizer:
    """The tokenizer that a packed set was made with.

    Raises:
        InputError: its file is gone, or another one.
    """
    identity = artifact.manifest.identity
    recipe = PackRecipe.from_content({**identity.recipe["pack"], "tokenizer": identity.tokenizer}).tokenizer
    ships = isinstance(recipe, TokenizerRecipe)
    return load_tokenizer(TokenizerFile(recipe, None if ships else Path(packed.meta.tokenizer_path)))

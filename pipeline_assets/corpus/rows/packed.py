"""Rows of a packed set: tokens of several documents, one after the other, and padding."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from pipeline_assets.corpus.formats.memmap import PackedSet, Segment, open_packed
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE, PackRecipe
from pipeline_assets.corpus.packing.summary import DrawnLine, drawn_lines
from pipeline_assets.corpus.rows.documents import DocumentRows
from pipeline_assets.corpus.rows.source_row import input_for_source
from pipeline_assets.corpus.rows.store import Content, Fate, Labels, Line, Part, Row, RowStore
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer


class PackedRows(RowStore):
    """The rows of one packed set, mapped."""

    labels = Labels("packed", "packed", "segment")
    holds_tokens = holds_several = True

    @cached_property
    def packed(self) -> PackedSet:
        return open_packed(self.artifact.folder, self.artifact.manifest.digest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Its file is looked for where a rebuild takes it from, since a data root moves, then where it lay when the set
        was made.
        """
        identity, provenance = self.artifact.manifest.identity, self.artifact.manifest.provenance
        recipe = PackRecipe.from_content({**identity.recipe["pack"], "tokenizer": identity.tokenizer}).tokenizer
        if isinstance(recipe, TokenizerRecipe):
            return load_tokenizer(TokenizerFile(recipe))
        asked = provenance.get(TOKENIZER_FILE)
        places = [self.lineage.root / asked] if isinstance(asked, str) else []
        places.append(Path(self.packed.meta.tokenizer_path))
        return load_tokenizer(TokenizerFile(recipe, next((place for place in places if place.is_file()), places[0])))

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[Content]:
        return iter(())

    def at(self, number: int) -> Row:
        self.check_range("row", number, len(self))
        segments, firsts = self.packed.segments(number), self.packed.boundaries(number)[:, 0].tolist()
        parts = tuple(
            Part(
                id=segment.doc_id,
                source=segment.source,
                shard=line.shard,
                shard_row=line.row,
                text=self.tokenizer.decode(self.packed[number][first : first + segment.length]),
                column=first,
                start=segment.start,
                tokens=segment.length,
            )
            for segment, first, line in zip(segments, firsts, self._lines(segments), strict=True)
        )
        tokens, seq_len = sum(segment.length for segment in segments), self.packed.meta.seq_len
        return Row(number, parts, number * seq_len, self.packed[number][:tokens], seq_len - tokens)

    def _lines(self, segments: list[Segment]) -> list[DrawnLine]:
        """A line of documents.parquet of each segment's document."""
        lines = drawn_lines(self.artifact, {segment.doc_id for segment in segments})
        found = {(line.source, line.doc_id): line for line in lines}
        try:
            return [found[segment.source, segment.doc_id] for segment in segments]
        except KeyError as error:
            what = f"documents.parquet has no line for {error}, which the index has"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on it") from None

    def find(self, row_id: str) -> list[int]:
        return list(self.packed.rows_with(row_id))

    def row_of_token(self, position: int) -> int:
        seq_len = self.packed.meta.seq_len
        self.check_range("token", position, self.packed.input_ids.size)
        return position // seq_len

    def origin(self, part: Part) -> Line:
        digest = input_for_source(self.artifact.manifest, part.source)["digest"]
        if digest not in self._corpora:
            self._corpora[digest] = DocumentRows(self.lineage.locate(digest), self.lineage)
        return self._corpora[digest].line(part)

    @cached_property
    def _corpora(self) -> dict[str, DocumentRows]:
        return {}

    def draws(self, doc_id: str, source: str) -> list[DrawnLine]:
        """The times that a document was drawn."""
        return [line for line in drawn_lines(self.artifact, [doc_id]) if line.source == source]

    def figures(self, part: Part) -> Mapping[str, Any]:
        return {"draws": [asdict(draw) | {"told": draw.told} for draw in self.draws(part.id, part.source)]}

    def fate(self, part: Part) -> Fate | None:
        draws = self.draws(part.id, part.source)
        told: dict[str, Any] = {"draws": [asdict(draw) for draw in draws], "reject": None}
        if draws:
            words = [draw.words for draw in draws]
            return Fate(self.artifact, "drawn", "; ".join(words), told=told, lines=words)
        reject = self.reject_of(f"{part.source}/{part.shard}", part.shard_row)
        if reject is not None:
            told["reject"] = msgspec.to_builtins(reject)
            return Fate(self.artifact, "rejected", str(reject), told=told, lines=[f"rejected  {reject}"])
        why = "its source had given its share before its turn came"
        return Fate(self.artifact, "not_drawn", why, told=told, lines=[f"not drawn: {why}"])

    def missing(self, row_id: str) -> tuple[str, str]:
        return f"no document with doc_id {row_id!r} was drawn", "`corpusmill stage-a why` tells what became of it"

"""Rows of a packed set: tokens of several documents, one after the other, and padding."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.memmap import PackedSet, Segment, open_packed
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.packing.summary import DrawnLine, drawn_lines
from pipeline_assets.corpus.rows.store import Fate, Labels, Part, Row
from pipeline_assets.corpus.rows.token_rows import TokenRows
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer


class PackedRows(TokenRows):
    """The rows of one packed set, mapped."""

    labels = Labels("packed", "packed", "segment")

    @cached_property
    def packed(self) -> PackedSet:
        return open_packed(self.artifact.folder, self.artifact.manifest.digest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        identity = self.artifact.manifest.identity
        recipe = PackRecipe.from_content({**identity.recipe["pack"], "tokenizer": identity.tokenizer}).tokenizer
        return self.load_tokenizer(recipe, Path(self.packed.meta.tokenizer_path))

    @property
    def seq_len(self) -> int:
        return self.packed.meta.seq_len

    def tokens_of(self, row: int) -> NDArray[np.int32]:
        return self.packed[row]

    def __len__(self) -> int:
        return len(self.packed)

    def at(self, number: int) -> Row:
        self.check_range("row", number, len(self))
        segments, firsts = self.packed.segments(number), self.packed.boundaries(number)[:, 0].tolist()
        lines = self._lines(segments)
        parts = (
            Part(one.doc_id, one.source, line.shard, line.row, "", first, one.start, one.length)
            for one, first, line in zip(segments, firsts, lines, strict=True)
        )
        return self.row_of(number, parts)

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

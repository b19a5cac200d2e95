"""Rows of token shards: tokens of documents in the order of their corpus, one after the other, without padding."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import pyarrow as pa
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.memmap import DOCUMENTS
from pipeline_assets.corpus.formats.parquet import open_parquet
from pipeline_assets.corpus.rows.source_row import input_for_source
from pipeline_assets.corpus.rows.store import Fate, Labels, Part, Row, reason_of
from pipeline_assets.corpus.rows.token_rows import TokenRows
from pipeline_assets.corpus.shards.shard_corpus import IN_REMAINDER
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards
from pipeline_assets.corpus.tokens.families import AnyTokenizerRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer

_tokenizer_recipe: pydantic.TypeAdapter[AnyTokenizerRecipe] = pydantic.TypeAdapter(AnyTokenizerRecipe)


class TokenShardRows(TokenRows):
    """The rows of a corpus' token shards. Of its inputs, that which has the Documents is named after their source, or
    is the first one.
    """

    labels = Labels("token shards", "token_shards", "part")

    @cached_property
    def shards(self) -> TokenShards:
        return open_shards(self.artifact.folder, self.artifact.manifest.digest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        told = self.artifact.manifest.identity.decisions["tokenizer"]
        return self.load_tokenizer(_tokenizer_recipe.validate_python(dict(told)))

    @property
    def seq_len(self) -> int:
        return self.shards.seq_len

    def tokens_of(self, row: int) -> NDArray[Any]:
        return self.shards[row]

    def __len__(self) -> int:
        return len(self.shards)

    def at(self, number: int) -> Row:
        self.check_range("row", number, len(self))
        parts = (
            Part(one.doc_id, one.source, one.shard, one.shard_row, "", one.column, one.start, one.tokens)
            for one in self.shards.documents_of(number)
        )
        return self.row_of(number, parts)

    def find(self, row_id: str) -> list[int]:
        rows: set[int] = set()
        for line in self._lines(row_id):
            first, last = self._token_range(line)
            rows |= {*range(first // self.seq_len, last // self.seq_len + 1)}
        return sorted(rows)

    def _token_range(self, line: dict[str, Any]) -> tuple[int, int]:
        """The first and the last token of a document in the rows."""
        return line["start"], min(line["start"] + line["tokens"], len(self) * self.seq_len) - 1

    def _lines(self, doc_id: str) -> Iterator[dict[str, Any]]:
        """Those of documents.parquet of one id; a row group is in memory at a time."""
        import pyarrow.compute as pc

        with open_parquet(self.artifact.path(DOCUMENTS)) as file:
            for group in range(file.num_row_groups):
                is_wanted = pc.equal(file.read_row_group(group, columns=["doc_id"])["doc_id"], doc_id)
                if pc.any(is_wanted).as_py():
                    lines: pa.Table = file.read_row_group(group).filter(is_wanted)
                    yield from lines.to_pylist()

    def fate(self, part: Part) -> Fate | None:
        if not self._is_of_corpus(part):
            return None
        for line in self._lines(part.id):
            if (line["shard"], line["row"]) == (part.shard, part.shard_row):
                first, last = self._token_range(line)
                number = first // self.seq_len
                place = {"sequence": number, "first_token": first, "last_token": last}
                return Fate(self.artifact, "in_rows", place=place, row=number)
        for reject in self.rejects():
            if (reject.file.partition("/")[2], reject.row) == (part.shard, part.shard_row):
                return Fate(self.artifact, "rejected", reason_of(reject))
        return Fate(self.artifact, IN_REMAINDER, "it lies behind the last whole row")

    def _is_of_corpus(self, part: Part) -> bool:
        """Whether a part is of the corpus that was sharded: of no other source, nor of what made the tokenizer."""
        identity = self.artifact.manifest.identity
        if part.source != identity.recipe.get("source", part.source):
            return False
        if not identity.upstream:
            return True
        corpus = self.lineage.locate(input_for_source(self.artifact.manifest, part.source)["digest"])
        return part.shard in shard_rows(corpus)

    def missing(self, row_id: str) -> tuple[str, str]:
        fix = "`corpusmill stage-a why` tells what became of it"
        return f"no row has a document with doc_id {row_id!r}", fix

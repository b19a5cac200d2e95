"""Token rows of packed sets and token shards.

Each row has `seq_len` tokens from several documents, whose texts are stored upstream. Packed sets pad the ends of rows;
token shards are one stream of documents, cut into rows.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pydantic

from pipeline_assets.build.rows.documents import DocumentRows
from pipeline_assets.build.rows.row_values import ComparableRow, DisplayNames, Fate, Part, Row, reject_summary
from pipeline_assets.build.rows.source_listing import input_for_source
from pipeline_assets.build.rows.store import RowStore, UpstreamRow
from pipeline_assets.corpus.formats.memmap import DOCUMENTS_FILE, PackedSet, Segment, open_packed
from pipeline_assets.corpus.formats.parquet_rows import rows_with_text
from pipeline_assets.corpus.packing.drawn_documents import DocumentDraw, find_document_draws
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE_KEY, PackRecipe
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.corpus.shards.shard_corpus import IN_REMAINDER
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards
from pipeline_assets.corpus.tokens.families import AnyTokenizerRecipe, TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError


class TokenRowStore(RowStore):
    """Rows of `seq_len` tokens, including padding."""

    holds_tokens = mixes_documents = True
    advice = "`corpusmill stage-a why` shows its fate"

    @property
    @abstractmethod
    def opened(self) -> PackedSet | TokenShards:
        """Opened artifact, with an array of shape (seq_len,) for each row."""

    @property
    @abstractmethod
    def seq_len(self) -> int: ...

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer: ...

    def load_tokenizer(self, recipe: AnyTokenizerRecipe, *earlier_paths: Path) -> Tokenizer:
        """Load the tokenizer from its file in the data root, else from `earlier_paths`."""
        if isinstance(recipe, HarmonyRecipe):
            return load_tokenizer(TokenizerFile(recipe))
        name = self.artifact.manifest.provenance.get(TOKENIZER_FILE_KEY)
        # The data root may have moved since the build.
        paths = [*([self.lineage.root / name] if isinstance(name, str) else ()), *earlier_paths]
        file = next((path for path in paths if path.is_file()), paths[0] if paths else None)
        return load_tokenizer(TokenizerFile(recipe, file))

    def __len__(self) -> int:
        return len(self.opened)

    def __iter__(self) -> Iterator[ComparableRow]:
        return iter(())

    @abstractmethod
    def row_parts(self, row_number: int) -> Iterable[Part]:
        """Return the parts of a row in order, without padding; `row_at` sets their texts."""

    def row_at(self, row_number: int) -> Row:
        self.check_range("row", row_number, len(self))
        tokens, parts = self.opened[row_number], []
        for part in self.row_parts(row_number):
            text = self.tokenizer.decode(tokens[part.column : part.column + (part.tokens or 0)])
            parts.append(replace(part, text=text))
        filled = sum(part.tokens or 0 for part in parts)
        return Row(row_number, tuple(parts), row_number * self.seq_len, tokens[:filled], self.seq_len - filled)

    def row_of_token(self, position: int) -> int:
        self.check_range("token", position, len(self) * self.seq_len)
        return position // self.seq_len

    def origin(self, part: Part) -> UpstreamRow:
        digest = input_for_source(self.artifact.manifest, part.source)["digest"]
        if digest not in self._corpora:
            self._corpora[digest] = DocumentRows(self.open_upstream(digest), self.lineage)
        return self._corpora[digest].upstream_row(part)

    @cached_property
    def _corpora(self) -> dict[str, DocumentRows]:
        return {}


class PackedRows(TokenRowStore):
    """Rows of one packed set, memory-mapped."""

    display_names = DisplayNames("packed", "packed", "segment")

    @cached_property
    def opened(self) -> PackedSet:
        return open_packed(self.artifact.folder, self.artifact.manifest.digest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        identity = self.artifact.manifest.identity
        recipe = PackRecipe.from_content({**identity.recipe["pack"], "tokenizer": identity.tokenizer}).tokenizer
        return self.load_tokenizer(recipe, Path(self.opened.meta.tokenizer_path))

    @property
    def seq_len(self) -> int:
        return self.opened.meta.seq_len

    def row_parts(self, row_number: int) -> Iterator[Part]:
        segments, firsts = self.opened.segments(row_number), self.opened.boundaries(row_number)[:, 0].tolist()
        for segment, first, line in zip(segments, firsts, self._segment_draws(segments), strict=True):
            place = segment.doc_id, segment.source, line.shard, line.row
            yield Part(*place, "", first, segment.start, segment.length)

    def _segment_draws(self, segments: list[Segment]) -> list[DocumentDraw]:
        """Return the last draw of each segment's document."""
        lines = find_document_draws(self.artifact, {segment.doc_id for segment in segments})
        line_by_document = {(line.source, line.doc_id): line for line in lines}
        try:
            return [line_by_document[segment.source, segment.doc_id] for segment in segments]
        except KeyError as error:
            what = f"documents.parquet has no row for {error}, which the index contains"
            raise InputError(what, self.artifact.folder, "run `corpusmill verify` on it") from None

    def find(self, row_id: str) -> list[int]:
        return list(self.opened.rows_with_document(row_id))

    def draws(self, doc_id: str, source: str) -> list[DocumentDraw]:
        return [line for line in find_document_draws(self.artifact, [doc_id]) if line.source == source]

    def part_facts(self, part: Part) -> Mapping[str, Any]:
        return {"draws": [asdict(draw) | {"told": draw.epoch_summary} for draw in self.draws(part.id, part.source)]}

    def fate(self, part: Part) -> Fate | None:
        draws = self.draws(part.id, part.source)
        facts: dict[str, Any] = {"draws": [asdict(draw) for draw in draws], "reject": None}
        if draws:
            summaries = [draw.summary for draw in draws]
            return Fate(self.artifact, "drawn", "; ".join(summaries), facts=facts, lines=summaries)
        reject = self.find_in_reject_file(f"{part.source}/{part.shard}", part.shard_row)
        if reject is not None:
            facts["reject"] = msgspec.to_builtins(reject)
            return Fate(self.artifact, "rejected", str(reject), facts=facts, lines=[f"rejected  {reject}"])
        reason = "the share of its source was full before its turn"
        return Fate(self.artifact, "not_drawn", reason, facts=facts, lines=[f"not drawn: {reason}"])


_tokenizer_recipe_adapter: pydantic.TypeAdapter[AnyTokenizerRecipe] = pydantic.TypeAdapter(AnyTokenizerRecipe)


class TokenShardRows(TokenRowStore):
    """Rows of the token shards of a corpus."""

    display_names = DisplayNames("token shards", "token_shards", "part")

    @cached_property
    def opened(self) -> TokenShards:
        return open_shards(self.artifact.folder, self.artifact.manifest.digest)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        recipe = self.artifact.manifest.identity.decisions["tokenizer"]
        return self.load_tokenizer(_tokenizer_recipe_adapter.validate_python(dict(recipe)))

    @property
    def seq_len(self) -> int:
        return self.opened.seq_len

    def row_parts(self, row_number: int) -> Iterator[Part]:
        # positions in the stream of all rows: [begin, end) of the row, [first, stop) of a document's part in the row
        begin, end = row_number * self.seq_len, (row_number + 1) * self.seq_len
        for line in self.opened.document_entries_in_row(row_number):
            first, stop = max(line["start"], begin), min(line["start"] + line["tokens"], end)
            place = line["doc_id"], line["source"], line["shard"], line["row"]
            # relative to the row (column), to the document (start), and as a count (tokens)
            yield Part(*place, "", first - begin, first - line["start"], stop - first)

    def find(self, row_id: str) -> list[int]:
        rows: set[int] = set()
        for line in self._document_entries(row_id):
            first, last = self._token_range(line)
            rows |= {*range(first // self.seq_len, last // self.seq_len + 1)}
        return sorted(rows)

    def _token_range(self, entry: Mapping[str, Any]) -> tuple[int, int]:
        """Return the positions of a document's first and last token in the rows."""
        return entry["start"], min(entry["start"] + entry["tokens"], len(self) * self.seq_len) - 1

    def _document_entries(self, doc_id: str) -> Iterator[dict[str, Any]]:
        return rows_with_text(self.artifact.path(DOCUMENTS_FILE), "doc_id", [doc_id])

    def fate(self, part: Part) -> Fate | None:
        if not self._is_from_corpus(part):
            return None
        for line in self._document_entries(part.id):
            if (line["shard"], line["row"]) == (part.shard, part.shard_row):
                first, last = self._token_range(line)
                number = first // self.seq_len
                place = {"sequence": number, "first_token": first, "last_token": last}
                return Fate(self.artifact, "in_rows", place=place, row_number=number)
        for reject in self.rejects():
            if (reject.file.partition("/")[2], reject.row) == (part.shard, part.shard_row):
                return Fate(self.artifact, "rejected", reject_summary(reject))
        return Fate(self.artifact, IN_REMAINDER, "after the last whole row")

    def _is_from_corpus(self, part: Part) -> bool:
        """Check whether a part is from the corpus of these shards."""
        identity = self.artifact.manifest.identity
        if part.source != identity.recipe.get("source", part.source):
            return False
        if not identity.upstream:
            return True
        corpus = self.open_upstream(input_for_source(self.artifact.manifest, part.source)["digest"])
        return part.shard in rows_by_shard(corpus)

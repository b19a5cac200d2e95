"""Rows of tokens of one length, each with parts of several documents, whose texts lie upstream: those of packed sets,
with padding at their ends, and those of token shards, one document after the other. And rows of parallel text: the
pairs of a sample, and those of a token cache, which are the same in the same order.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.build.rows.documents import DocumentRows
from pipeline_assets.build.rows.source_row import input_for_source
from pipeline_assets.build.rows.store import (
    Content,
    Fate,
    Labels,
    Part,
    Row,
    RowStore,
    Source,
    UpstreamRow,
    reject_summary,
)
from pipeline_assets.corpus.document_shards import shard_rows
from pipeline_assets.corpus.formats.memmap import DOCUMENTS, PackedSet, Segment, open_packed
from pipeline_assets.corpus.formats.parquet_rows import rows_with
from pipeline_assets.corpus.packing.drawn_documents import DrawnLine, drawn_lines
from pipeline_assets.corpus.packing.recipe import TOKENIZER_FILE, PackRecipe
from pipeline_assets.corpus.parallel_text.pair_model import load_model
from pipeline_assets.corpus.parallel_text.pairs import SPLITS
from pipeline_assets.corpus.parallel_text.sample import MANIFEST, SampledPair, read_sample
from pipeline_assets.corpus.parallel_text.token_cache import MODEL, TokenCache, open_cache
from pipeline_assets.corpus.shards.shard_corpus import IN_REMAINDER
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards
from pipeline_assets.corpus.tokens.families import AnyTokenizerRecipe, TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.corpus.tokens.sentencepiece_model import SentencePieceModel
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.ledger import Reject


class TokenRows(RowStore):
    """Rows of `seq_len` tokens, padding counted."""

    holds_tokens = holds_several = True
    advice = "`corpusmill stage-a why` tells what became of it"

    @property
    @abstractmethod
    def seq_len(self) -> int: ...

    @property
    @abstractmethod
    def tokenizer(self) -> Tokenizer: ...

    @abstractmethod
    def row_tokens(self, row: int) -> NDArray:
        """All tokens of a row, shape (seq_len,)."""

    def load_tokenizer(self, recipe: AnyTokenizerRecipe, *lay_at: Path) -> Tokenizer:
        """The tokenizer of the rows. Its file is looked for where a rebuild takes it from, since a data root moves,
        then where it lay when they were made.
        """
        if isinstance(recipe, TokenizerRecipe):
            return load_tokenizer(TokenizerFile(recipe))
        asked = self.artifact.manifest.provenance.get(TOKENIZER_FILE)
        places = [self.lineage.root / asked] if isinstance(asked, str) else []
        places.extend(lay_at)
        file = next((place for place in places if place.is_file()), places[0] if places else None)
        return load_tokenizer(TokenizerFile(recipe, file))

    def __iter__(self) -> Iterator[Content]:
        return iter(())

    @abstractmethod
    def row_parts(self, row: int) -> Iterable[Part]:
        """The parts of a row without their texts, one after the other; behind them is padding."""

    def row_at(self, number: int) -> Row:
        self.check_range("row", number, len(self))
        tokens, told = self.row_tokens(number), []
        for part in self.row_parts(number):
            text = self.tokenizer.decode(tokens[part.column : part.column + (part.tokens or 0)])
            told.append(replace(part, text=text))
        filled = sum(part.tokens or 0 for part in told)
        return Row(number, tuple(told), number * self.seq_len, tokens[:filled], self.seq_len - filled)

    def row_of_token(self, position: int) -> int:
        self.check_range("token", position, len(self) * self.seq_len)
        return position // self.seq_len

    def origin(self, part: Part) -> UpstreamRow:
        digest = input_for_source(self.artifact.manifest, part.source)["digest"]
        if digest not in self._corpora:
            self._corpora[digest] = DocumentRows(self.lineage.locate(digest), self.lineage)
        return self._corpora[digest].upstream_row(part)

    @cached_property
    def _corpora(self) -> dict[str, DocumentRows]:
        return {}


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

    def row_tokens(self, row: int) -> NDArray[np.int32]:
        return self.packed[row]

    def __len__(self) -> int:
        return len(self.packed)

    def row_parts(self, row: int) -> Iterator[Part]:
        segments, firsts = self.packed.segments(row), self.packed.boundaries(row)[:, 0].tolist()
        for one, first, line in zip(segments, firsts, self._lines(segments), strict=True):
            yield Part(one.doc_id, one.source, line.shard, line.row, "", first, one.start, one.length)

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
        return {"draws": [asdict(draw) | {"told": draw.epoch_summary} for draw in self.draws(part.id, part.source)]}

    def fate(self, part: Part) -> Fate | None:
        draws = self.draws(part.id, part.source)
        told: dict[str, Any] = {"draws": [asdict(draw) for draw in draws], "reject": None}
        if draws:
            words = [draw.summary for draw in draws]
            return Fate(self.artifact, "drawn", "; ".join(words), details=told, lines=words)
        reject = self.find_reject_row(f"{part.source}/{part.shard}", part.shard_row)
        if reject is not None:
            told["reject"] = msgspec.to_builtins(reject)
            return Fate(self.artifact, "rejected", str(reject), details=told, lines=[f"rejected  {reject}"])
        why = "its source had given its share before its turn came"
        return Fate(self.artifact, "not_drawn", why, details=told, lines=[f"not drawn: {why}"])


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

    def row_tokens(self, row: int) -> NDArray[Any]:
        return self.shards[row]

    def __len__(self) -> int:
        return len(self.shards)

    def row_parts(self, row: int) -> Iterator[Part]:
        begin, end = row * self.seq_len, (row + 1) * self.seq_len
        for line in self.shards.shard_documents(row):
            first, stop = max(line["start"], begin), min(line["start"] + line["tokens"], end)
            place = line["doc_id"], line["source"], line["shard"], line["row"]
            yield Part(*place, "", first - begin, first - line["start"], stop - first)

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
        """Those of documents.parquet of one id."""
        return rows_with(self.artifact.path(DOCUMENTS), "doc_id", [doc_id])

    def fate(self, part: Part) -> Fate | None:
        if not self._is_from_corpus(part):
            return None
        for line in self._lines(part.id):
            if (line["shard"], line["row"]) == (part.shard, part.shard_row):
                first, last = self._token_range(line)
                number = first // self.seq_len
                place = {"sequence": number, "first_token": first, "last_token": last}
                return Fate(self.artifact, "in_rows", place=place, row=number)
        for reject in self.rejects():
            if (reject.file.partition("/")[2], reject.row) == (part.shard, part.shard_row):
                return Fate(self.artifact, "rejected", reject_summary(reject))
        return Fate(self.artifact, IN_REMAINDER, "it lies behind the last whole row")

    def _is_from_corpus(self, part: Part) -> bool:
        """Whether a part is of the corpus that was sharded: of no other source, nor of what made the tokenizer."""
        identity = self.artifact.manifest.identity
        if part.source != identity.recipe.get("source", part.source):
            return False
        if not identity.upstream:
            return True
        corpus = self.lineage.locate(input_for_source(self.artifact.manifest, part.source)["digest"])
        return part.shard in shard_rows(corpus)


_LISTED = f"{MANIFEST} lists them; --row takes a number"


class PairRows(RowStore):
    """The pairs of a sample, each a line of its manifest, all in memory."""

    labels = Labels("sample", "samples", "pair", "texts", "another split", "texts")
    id_name, advice = "uid", _LISTED
    reads_sources = True

    @cached_property
    def pairs(self) -> Sequence[SampledPair]:
        return read_sample(self.artifact.path(MANIFEST)).pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[Content]:
        return (Content(pair.uid, _text(pair).encode(), pair.split.encode()) for pair in self.pairs)

    def row_at(self, number: int) -> Row:
        self.check_range("pair", number, len(self))
        pair = self.pairs[number]
        return Row(number, (Part(pair.uid, pair.split, MANIFEST, number, _text(pair), record=pair),))

    def find(self, row_id: str) -> list[int]:
        return [number for number, pair in enumerate(self.pairs) if pair.uid == row_id]

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        places = ((pair.file, pair.row) for pair in self.pairs)
        return next(((number, False) for number, place in enumerate(places) if place == (file, source_row)), None)

    def find_reject(self, file: str, row: int) -> tuple[str, Reject]:
        """Of a row that isn't in the sample nobody kept the reason: there are as many as the set has rows."""
        rules = ", ".join(self.artifact.manifest.identity.ledger.dropped)
        return super().find_reject(file, row) or (
            "not_in_the_sample",
            Reject(file, row, f"one of {rules}, or the file has no such row"),
        )

    def origin(self, part: Part) -> Source:
        pair, listing = part.record, self.listing(part.source)
        digest = listing.file_entry(pair.file)["digest"]
        return Source(pair.file, (listing.row(pair.file, pair.row),), digest, "not stated", "recipe")


class EncodedPairs(RowStore):
    """The pairs of a token cache; the text of each is what its ids say, a line a side."""

    labels = Labels("token cache", "token_caches", "pair", contents="pairs")
    id_name, advice = "uid", _LISTED
    holds_tokens = True

    @cached_property
    def cache(self) -> TokenCache:
        return open_cache(self.artifact.folder)

    @cached_property
    def model(self) -> SentencePieceModel:
        path = self.artifact.path(MODEL)
        return load_model(path.read_bytes(), path)

    @cached_property
    def sample(self) -> PairRows:
        return PairRows(self.lineage.locate(self.artifact.manifest.identity.inputs[0]["digest"]), self.lineage)

    def __len__(self) -> int:
        return len(self.cache.splits)

    def __iter__(self) -> Iterator[Content]:
        for number, uid in enumerate(self.cache.uids):
            yield Content(bytes(uid).decode(), self.cache.row(number, "pair").tobytes())

    def row_at(self, number: int) -> Row:
        self.check_range("pair", number, len(self))
        ids = self.cache.row(number, "pair")
        text = "\n".join(self.model.decode(self.cache.row(number, side)) for side in ("src", "tgt"))
        uid, split = bytes(self.cache.uids[number]).decode(), SPLITS[self.cache.splits[number]]
        return Row(number, (Part(uid, split, MANIFEST, number, text, tokens=len(ids)),), ids=ids)

    def row_of_token(self, position: int) -> int:
        raise UsageError(
            "tokens are numbered within their pair, a side after the other", self.artifact.folder, "give --row"
        )

    def find(self, row_id: str) -> list[int]:
        return [number for number, uid in enumerate(self.cache.uids.tolist()) if uid == row_id.encode()]

    def origin(self, part: Part) -> UpstreamRow:
        return UpstreamRow(self.sample, part.shard_row)

    def fate(self, part: Part) -> Fate:
        place = {"shard": "src.ids.npy", "shard_row": part.shard_row}
        return Fate(self.artifact, "kept", place=place, row=part.shard_row)


def _text(pair: SampledPair) -> str:
    return f"{pair.src_text}\n{pair.tgt_text}"

"""Rows of parallel text: the pairs of a sample, and those of a token cache, which are the same in the same order."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from pipeline_assets.corpus.parallel_text.pairs import SPLITS
from pipeline_assets.corpus.parallel_text.sample import MANIFEST, SampledPair, read_sample
from pipeline_assets.corpus.parallel_text.token_cache import MODEL, TokenCache, load_model, open_cache
from pipeline_assets.corpus.rows.store import Content, Fate, Labels, Line, Part, Row, RowStore, Source
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.spine.ledger import Reject
from pipeline_assets.corpus.tokens.families import SentencePieceModel

_LISTED = f"{MANIFEST} lists them; --row takes a number"


class PairRows(RowStore):
    """The pairs of a sample, each a line of its manifest, all in memory."""

    labels = Labels("sample", "samples", "pair", "texts", "another split", "texts")
    reads_sources = True

    @cached_property
    def pairs(self) -> Sequence[SampledPair]:
        return read_sample(self.artifact.path(MANIFEST)).pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[Content]:
        return (Content(pair.uid, _text(pair).encode(), pair.split.encode()) for pair in self.pairs)

    def at(self, number: int) -> Row:
        self.check_range("pair", number, len(self))
        pair = self.pairs[number]
        return Row(number, (Part(pair.uid, pair.split, MANIFEST, number, _text(pair), record=pair),))

    def find(self, row_id: str) -> list[int]:
        return [number for number, pair in enumerate(self.pairs) if pair.uid == row_id]

    def find_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        places = ((pair.file, pair.row) for pair in self.pairs)
        return next(((number, False) for number, place in enumerate(places) if place == (file, source_row)), None)

    def set_aside(self, file: str, row: int) -> tuple[str, Reject]:
        """Of a row that isn't in the sample nobody kept the reason: there are as many as the set has rows."""
        rules = ", ".join(self.artifact.manifest.identity.ledger.dropped)
        return super().set_aside(file, row) or (
            "not_in_the_sample",
            Reject(file, row, f"one of {rules}, or the file has no such row"),
        )

    def origin(self, part: Part) -> Source:
        pair, listing = part.record, self.listing(part.source)
        digest = listing.entry(pair.file)["digest"]
        return Source(pair.file, (listing.row(pair.file, pair.row),), digest, "not stated", "recipe")

    def missing(self, row_id: str) -> tuple[str, str]:
        return f"no pair has the uid {row_id!r}", _LISTED


class EncodedPairs(RowStore):
    """The pairs of a token cache; the text of each is what its ids say, a line a side."""

    labels = Labels("token cache", "token_caches", "pair", has="pairs")
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

    def at(self, number: int) -> Row:
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

    def origin(self, part: Part) -> Line:
        return Line(self.sample, part.shard_row)

    def fate(self, part: Part) -> Fate:
        place = {"shard": "src.ids.npy", "shard_row": part.shard_row}
        return Fate(self.artifact, "kept", place=place, row=part.shard_row)

    def missing(self, row_id: str) -> tuple[str, str]:
        return f"no pair has the uid {row_id!r}", _LISTED


def _text(pair: SampledPair) -> str:
    return f"{pair.src_text}\n{pair.tgt_text}"

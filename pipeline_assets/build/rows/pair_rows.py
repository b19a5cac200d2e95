"""Rows of parallel text: sentence pairs of a sample and of its token cache."""

from collections.abc import Iterator, Sequence
from functools import cached_property

from pipeline_assets.build.rows.row_values import ComparableRow, DisplayNames, Fate, Part, Row
from pipeline_assets.build.rows.source_listing import TextSource
from pipeline_assets.build.rows.store import RowStore, UpstreamRow
from pipeline_assets.corpus.parallel_text.pair_model import parse_model
from pipeline_assets.corpus.parallel_text.pairs import SPLITS
from pipeline_assets.corpus.parallel_text.sample import SAMPLE_FILE, SampledPair, read_sample
from pipeline_assets.corpus.parallel_text.token_cache import MODEL_FILE, TokenCache, open_cache
from pipeline_assets.corpus.tokens.sentencepiece_model import SentencePieceModel
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.rejects import Reject

_ADVICE = f"use an id of {SAMPLE_FILE}, or the number of a pair with --row"


class PairRows(RowStore):
    """Sentence pairs of a sample, one per line of its file; all are in memory."""

    display_names = DisplayNames("sample", "samples", "pair", "texts", "another split", "texts")
    id_name, advice = "uid", _ADVICE
    reads_sources = True

    @cached_property
    def pairs(self) -> Sequence[SampledPair]:
        return read_sample(self.artifact.path(SAMPLE_FILE)).pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[ComparableRow]:
        return (ComparableRow(pair.uid, _pair_text(pair).encode(), pair.split.encode()) for pair in self.pairs)

    def row_at(self, row_number: int) -> Row:
        self.check_range("pair", row_number, len(self))
        pair = self.pairs[row_number]
        return Row(row_number, (Part(pair.uid, pair.split, SAMPLE_FILE, row_number, _pair_text(pair), record=pair),))

    def find(self, row_id: str) -> list[int]:
        return [number for number, pair in enumerate(self.pairs) if pair.uid == row_id]

    def find_by_source(self, file: str, source_row: int) -> tuple[int, bool] | None:
        places = ((pair.file, pair.row) for pair in self.pairs)
        return next(((number, False) for number, place in enumerate(places) if place == (file, source_row)), None)

    def find_reject(self, file: str, row: int) -> tuple[str, Reject]:
        """Return (outcome, reject); if none is stored, the reject names all drop rules."""
        rules = ", ".join(self.artifact.manifest.identity.ledger.dropped)
        unknown = Reject(file, row, f"one of {rules}, or the file has no such row")
        return super().find_reject(file, row) or ("not_in_the_sample", unknown)

    def origin(self, part: Part) -> TextSource:
        return self.listing(part.source).text_source(part.record.file, [part.record.row], "not stated", "recipe")


class EncodedPairs(RowStore):
    """Pairs of a token cache, decoded to one line of text per side."""

    display_names = DisplayNames(
        "token cache", "token_caches", "pair", other_properties="other tokens", contents="pairs"
    )
    id_name, advice = "uid", _ADVICE
    holds_tokens = True

    @cached_property
    def cache(self) -> TokenCache:
        return open_cache(self.artifact.folder)

    @cached_property
    def model(self) -> SentencePieceModel:
        path = self.artifact.path(MODEL_FILE)
        return parse_model(path.read_bytes(), path)

    @cached_property
    def sample(self) -> PairRows:
        return PairRows(self.open_upstream(self.artifact.manifest.identity.inputs[0]["digest"]), self.lineage)

    def __len__(self) -> int:
        return len(self.cache.splits)

    def __iter__(self) -> Iterator[ComparableRow]:
        for number, uid in enumerate(self.cache.uids):
            ids = self.cache.token_ids(number, "pair").tobytes()
            yield ComparableRow(bytes(uid).decode(), self._decode(number).encode(), ids)

    def row_at(self, row_number: int) -> Row:
        self.check_range("pair", row_number, len(self))
        ids = self.cache.token_ids(row_number, "pair")
        uid, split = bytes(self.cache.uids[row_number]).decode(), SPLITS[self.cache.splits[row_number]]
        part = Part(uid, split, SAMPLE_FILE, row_number, self._decode(row_number), tokens=len(ids))
        return Row(row_number, (part,), token_ids=ids)

    def row_of_token(self, position: int) -> int:
        raise UsageError("tokens of pairs have no position in a token file", self.artifact.folder, "use --row")

    def find(self, row_id: str) -> list[int]:
        return [number for number, uid in enumerate(self.cache.uids.tolist()) if uid == row_id.encode()]

    def origin(self, part: Part) -> UpstreamRow:
        return UpstreamRow(self.sample, part.shard_row)

    def fate(self, part: Part) -> Fate:
        place = {"shard": "src.ids.npy", "shard_row": part.shard_row}
        return Fate(self.artifact, "kept", place=place, row_number=part.shard_row)

    def _decode(self, row_number: int) -> str:
        return "\n".join(self.model.decode(self.cache.token_ids(row_number, side)) for side in ("src", "tgt"))


def _pair_text(pair: SampledPair) -> str:
    return f"{pair.src_text}\n{pair.tgt_text}"

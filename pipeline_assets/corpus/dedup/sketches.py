"""The stage `sketch`: a Document shard → what its documents are compared by, as sorted runs.

Texts are read once more only where two documents share a band.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard, DocumentFields, line_blocks, read_fields
from pipeline_assets.corpus.dedup.minhash import band_keys, binary_sketches, permutations_of, signatures
from pipeline_assets.corpus.dedup.order import Selected, orders
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe, DedupRecipe, MinHashRecipe
from pipeline_assets.corpus.dedup.sorted_runs import write_run
from pipeline_assets.corpus.dedup.words import NormalizedBatch, lowered, normalize
from pipeline_assets.corpus.doc_ids import write_ids
from pipeline_assets.corpus.spine.building import BuildFolder, OutputFile, Receipt
from pipeline_assets.corpus.spine.errors import InputError, key
from pipeline_assets.corpus.spine.sealing import WORK
from pipeline_assets.corpus.spine.stage import Window

IDS, HASHES, BANDS, BITS, ID_HASHES = (f"{WORK}/{area}" for area in ("ids", "hashes", "bands", "bits", "id_hashes"))
FATAL = "fatal"
_RUN_DOCUMENTS = 1 << 16  # in a run, which is sorted in memory
_HALVES = np.dtype([("high", ">u8"), ("low", ">u8")])


class _Sketch:
    """What documents of a shard are compared by, block by block."""

    def __init__(self, shard: CorpusShard, recipe: DedupRecipe) -> None:
        self._shard, self._recipe = shard, recipe
        self._salt = _salt_of(shard.source) if recipe.scope == "per-source" else np.uint64(0)
        self.counts = {"documents": 0, "bytes": 0, "without_words": 0, "short": 0, "with_quality": 0}
        self._forget()

    def _forget(self) -> None:
        self.doc_ids: list[str] = []
        self._orders: list[NDArray[np.uint64]] = []
        self._hashes: list[NDArray[np.void]] = []
        self._keys: list[NDArray[np.uint64]] = []
        self._bits: list[bytes] = []
        self._key_orders: list[NDArray[np.uint64]] = []

    def add(self, rows: Sequence[int], documents: Sequence[DocumentFields]) -> None:
        texts = [document.text.encode() for document in documents]
        batch = normalize(texts)
        selected = Selected(np.fromiter(map(len, texts), np.int64, len(texts)), self._quality(rows, documents))
        own = orders(np.array(rows, np.uint64) + np.uint64(self._shard.first_number), self._recipe.selection, selected)
        self.doc_ids += [document.doc_id for document in documents]
        self._orders.append(own)
        self.counts["documents"] += len(texts)
        self.counts["bytes"] += int(selected.text_bytes.sum())
        self.counts["with_quality"] += int((~np.isnan(selected.quality)).sum())
        if self._recipe.mode != "near":
            self._hashes.append(_hashes(batch, texts))
            self.counts["without_words"] += int((batch.words() == 0).sum())
        if self._recipe.near is not None:
            self._add_signatures(batch, own, self._recipe.near.proposer)

    def _add_signatures(
        self, batch: NormalizedBatch, own: NDArray[np.uint64], recipe: MinHashRecipe | BinarySketchRecipe
    ) -> None:
        has_shingles = batch.words() >= recipe.shingle_words
        signed = signatures(batch.word_hashes, batch.first_words, recipe.shingle_words, permutations_of(recipe))
        if isinstance(recipe, MinHashRecipe):
            self._keys.append(band_keys(signed[has_shingles], recipe.bands, self._salt).ravel())
            self._key_orders.append(np.repeat(own[has_shingles], recipe.bands))
        else:
            self._bits += [row.tobytes() for row in binary_sketches(signed[has_shingles])]
            self._key_orders.append(own[has_shingles])
        self.counts["short"] += int((~has_shingles).sum())

    def _quality(self, rows: Sequence[int], documents: Sequence[DocumentFields]) -> NDArray[np.float32]:
        column = self._recipe.quality_column
        if column is None:
            return np.full(len(documents), np.nan, np.float32)
        values = [msgspec.json.decode(document.meta).get(column) for document in documents]
        for row, value in zip(rows, values, strict=True):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                what = f"`{column}` of row {row} is {type(value).__name__}, not a number"
                raise InputError(what, self._shard.file, f"choose another {key('quality_column')}")
        return np.array([np.nan if value is None else value for value in values], np.float32)

    def runs(self) -> dict[str, pa.Table]:
        """A run for each area that the mode asks for, of the documents added since the last ones."""
        own, doc_ids = _joined(self._orders, np.uint64), pa.array(self.doc_ids, pa.string())
        tables = {IDS: pa.table({"order": own, "doc_id": doc_ids})}
        if self._recipe.mode != "near":
            hashes = _joined(self._hashes, _HALVES)
            high, low = hashes["high"].astype(np.uint64) ^ self._salt, hashes["low"].astype(np.uint64)
            by = np.argsort(high)
            columns: dict[str, Any] = {"high": high[by], "low": low[by], "order": own[by]}
            tables[HASHES] = pa.table(columns | {"doc_id": doc_ids.take(pa.array(by))})
        key_orders = _joined(self._key_orders, np.uint64)
        if self._recipe.near is not None and self._recipe.near.minhash is not None:
            keys = _joined(self._keys, np.uint64)
            by = np.argsort(keys)
            tables[BANDS] = pa.table({"key": keys[by], "order": key_orders[by]})
        elif self._recipe.near is not None:
            by = np.argsort(key_orders)
            sketches = pa.array(self._bits, pa.binary()).take(pa.array(by))
            tables[BITS] = pa.table({"order": key_orders[by], "sketch": sketches})
        self._forget()
        return tables


def sketch_shard(shard: CorpusShard, window: Window, folder: BuildFolder, recipe: DedupRecipe) -> Receipt:
    """Runs of one shard.

    Files, of every so many documents: below `IDS` their orders and ids, as they stand; below `ID_HASHES` the hashes of
    these, as `doc_ids` reads them; as far as the mode asks for them, below `HASHES` the 128-bit hashes of their
    normalised texts, and below `BANDS` the keys of their bands or below `BITS` their binary sketches. Counts:
    `documents`, `bytes` of text, `without_words`: those are compared as they stand, `short`: fewer words than a
    shingle, so only exact duplicates are found, `with_quality`. Notes: `fatal`, rows that kill their worker.

    Raises:
        InputError: a line that is no Document, or a quality that is no number.
    """
    sketch = _Sketch(shard, recipe)
    fatal: list[int] = []
    files: list[OutputFile] = []
    for lines in line_blocks(shard, window):
        read = [(row, read_fields(line, shard, row)) for row, line in lines if line is not None]
        fatal += [row for row, line in lines if line is None]
        if read:
            sketch.add([row for row, _ in read], [document for _, document in read])
        if len(sketch.doc_ids) >= _RUN_DOCUMENTS:
            files += _written(sketch, shard, folder, len(files))
    if sketch.doc_ids or not files:
        files += _written(sketch, shard, folder, len(files))
    return Receipt(files, sketch.counts, {FATAL: fatal})


def _written(sketch: _Sketch, shard: CorpusShard, folder: BuildFolder, number: int) -> list[OutputFile]:
    doc_ids_name, doc_ids = f"{ID_HASHES}/{shard.name}.{number:05d}", sketch.doc_ids
    files = [write_ids(folder.path(doc_ids_name), doc_ids_name, doc_ids)]
    for area, table in sketch.runs().items():
        name = f"{area}/{shard.name}.{number:05d}.parquet"
        files.append(write_run(folder.path(name), name, table))
    return files


def load_kernels(recipe: DedupRecipe) -> None:
    """Loads what `sketch_shard` keeps for the life of its process: tables, and compiled code, once on this machine."""
    lowered()
    batch = normalize([b"a few words are enough"])
    if recipe.near is not None:
        signed = signatures(batch.word_hashes, batch.first_words, 1, permutations_of(recipe.near.proposer))
        if recipe.near.minhash is not None:
            band_keys(signed, recipe.near.minhash.bands, np.uint64(0))


def _salt_of(source: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.sha256(source.encode()).digest()[:8]))


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])


def _hashes(batch: NormalizedBatch, texts: Sequence[bytes]) -> NDArray[np.void]:
    """The first half of the sha256 of each normalised text; of the text as it stands where no word is left."""
    view = batch.text.data
    spans = zip(batch.starts.tolist(), batch.stops.tolist(), texts, strict=True)
    digests = [hashlib.sha256(view[start:stop] if start < stop else text).digest()[:16] for start, stop, text in spans]
    return np.frombuffer(b"".join(digests), _HALVES)

"""Sketches of documents: exact hashes, MinHash signatures and their bands.

MinHash: Broder 1997; Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, chapter 3.

A shingle is n consecutive words. Its hash is the polynomial of its words' hashes in an odd constant modulo 2**64,
mixed, and 1 instead of 0. Signatures equal those of datasketch 2.0 with its default scheme `affine32`, computed from
the lower 32 bits of that hash: MurmurHash3's finalizer mixes them, and permutation k is `a[k] * h + b[k]` modulo 2**32.
`a` and `b` are drawn from the seed as datasketch draws them.
"""

import functools
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.compiled import compiled, inner
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.dedup_run import DedupRun
from pipeline_assets.corpus.dedup.document_order import document_numbers, priorities
from pipeline_assets.corpus.dedup.recipe import BinarySketchRecipe, DedupRecipe, MinHashRecipe
from pipeline_assets.corpus.dedup.sorted_runs import write_run
from pipeline_assets.corpus.dedup.words import POLYNOMIAL, NormalizedBatch, lowered, mixed, normalize
from pipeline_assets.corpus.doc_ids import first_repeat, write_ids
from pipeline_assets.corpus.document import RAW_DOCUMENTS, RawDocument, arrow_columns
from pipeline_assets.corpus.document_shards import read_documents
from pipeline_assets.corpus.formats.arrow_columns import numbers, strings, to_array, to_table, truths
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.stage import Task, Window
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingView, total_counts

_FIRST, _SECOND = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)  # multipliers of MurmurHash3's 32-bit finalizer
_16, _13 = np.uint32(16), np.uint32(13)
_EMPTY = np.uint32(2**32 - 1)  # minimum of no hashes
_ONE = np.uint64(1)


@functools.cache
def draw_permutations(recipe: MinHashRecipe | BinarySketchRecipe) -> NDArray[np.uint32]:
    """Draw `a` and `b` of the recipe's permutations, shape (2, permutations).

    `a` is odd, so each permutation is a bijection.
    """
    random = np.random.RandomState(recipe.seed)
    a = random.randint(0, 1 << 31, recipe.permutations, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return np.stack([a, random.randint(0, 1 << 32, recipe.permutations, dtype=np.uint32)])


def _text_shingles(batch: NormalizedBatch, shingle_words: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hash the shingles of documents, in the order of the texts.

    Returns:
        Hashes of all shingles, and offsets of shape (documents + 1,). Document d has the hashes from `offsets[d]` to
        before `offsets[d + 1]`: none if it has too few words.
    """
    sizes = np.maximum(batch.words() - shingle_words + 1, 0)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    hashes = np.empty(offsets[-1], np.uint64)
    _hash_shingles(batch, shingle_words, hashes, offsets)
    return hashes, offsets


@compiled
def _hash_shingles(
    batch: NormalizedBatch, shingle_words: int, hashes: NDArray[np.uint64], offsets: NDArray[np.int64]
) -> None:
    # A word's coefficient after `shingle_words` more words; a rolling hash subtracts the oldest word with it.
    power = np.uint64(1)
    for _ in range(shingle_words):
        power = power * POLYNOMIAL
    for document in range(len(offsets) - 1):
        words = batch.word_hashes[batch.first_words[document] : batch.first_words[document + 1]]
        shingles = hashes[offsets[document] : offsets[document + 1]]
        rolled = np.uint64(0)
        # Start with all words of the first shingle but its last.
        for word in range(min(shingle_words - 1, len(words))):
            rolled = rolled * POLYNOMIAL + words[word]
        for shingle in range(len(shingles)):
            rolled = rolled * POLYNOMIAL + words[shingle + shingle_words - 1]  # add the newest word
            if shingle:
                rolled -= words[shingle - 1] * power  # remove the word before the shingle
            shingles[shingle] = max(mixed(rolled), _ONE)


def shingle_sets(batch: NormalizedBatch, shingle_words: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hash the distinct shingles of documents, ascending in each document.

    Returns:
        Hashes and offsets, see `_text_shingles`.
    """
    hashes, offsets = _text_shingles(batch, shingle_words)
    for start, stop in itertools.pairwise(offsets.tolist()):
        hashes[start:stop].sort()
    is_last = np.append(hashes[:-1] != hashes[1:], True)  # keep the last of several equal hashes
    # Keep the last hash of each document, even if the next document begins with the same one.
    is_last[offsets[1:][offsets[1:] > 0] - 1] = True
    kept = np.flatnonzero(is_last[: len(hashes)])
    # A new offset is the number of hashes kept before the old one.
    return hashes[kept], np.searchsorted(kept, offsets)


def signatures(batch: NormalizedBatch, recipe: MinHashRecipe | BinarySketchRecipe) -> NDArray[np.uint32]:
    """Compute the MinHash signatures of documents.

    Returns:
        Shape (documents, permutations); 2**32 - 1 everywhere for a document without shingles.
    """
    hashes, offsets = _text_shingles(batch, recipe.shingle_words)
    signed = np.full((len(batch.starts), recipe.permutations), _EMPTY)
    _sign(hashes, offsets, draw_permutations(recipe), signed)
    return signed


@inner
def _finalized(shingle: np.uint64) -> np.uint32:
    """Mix the lower 32 bits of a shingle's hash by MurmurHash3's 32-bit finalizer."""
    key = np.uint32(shingle)
    key = np.uint32((key ^ (key >> _16)) * _FIRST)
    key = np.uint32((key ^ (key >> _13)) * _SECOND)
    return key ^ (key >> _16)


@compiled
def _sign(
    hashes: NDArray[np.uint64], offsets: NDArray[np.int64], permutations: NDArray[np.uint32], signed: NDArray[np.uint32]
) -> None:
    """Reduce the shingles of each document to the minimum of each permutation.

    Four shingles per pass: reading and writing the signature costs as much as one shingle.
    """
    a, b = permutations[0], permutations[1]
    for document in range(len(signed)):
        shingles, signature = hashes[offsets[document] : offsets[document + 1]], signed[document]
        last = len(shingles) - 1
        # A last pass with fewer than four shingles repeats the last one, which changes no minimum.
        for shingle in range(0, len(shingles), 4):
            h0 = _finalized(shingles[shingle])
            h1 = _finalized(shingles[min(shingle + 1, last)])
            h2 = _finalized(shingles[min(shingle + 2, last)])
            h3 = _finalized(shingles[min(shingle + 3, last)])
            for k in range(len(a)):
                first = min(np.uint32(a[k] * h0 + b[k]), np.uint32(a[k] * h1 + b[k]))
                second = min(np.uint32(a[k] * h2 + b[k]), np.uint32(a[k] * h3 + b[k]))
                signature[k] = min(signature[k], min(first, second))


def band_keys(signed: NDArray[np.uint32], bands: int, salt: np.uint64) -> NDArray[np.uint64]:
    """Compute the keys of the bands of signatures; a common key proposes a pair.

    A signature is cut twice: into bands of adjacent numbers, and into equally many bands of numbers that are `bands`
    apart. Bands of different cuts share about one number, so the second cut finds most pairs that the first one misses,
    without further permutations.

    Args:
        signed: Signatures, shape (documents, permutations).
        bands: Number of bands in one cut.
        salt: Documents with different salts share no key.

    Returns:
        Shape (documents, 2 * bands), or (documents, bands) if both cuts are equal: one band, or one row per band.
    """
    keys = np.empty((len(signed), bands if bands in (1, signed.shape[1]) else 2 * bands), np.uint64)
    _hash_bands(signed, bands, salt, keys)
    return keys


@compiled
def _hash_bands(signed: NDArray[np.uint32], bands: int, salt: np.uint64, keys: NDArray[np.uint64]) -> None:
    rows = signed.shape[1] // bands
    for document in range(len(keys)):
        for band in range(keys.shape[1]):
            # First cut: `rows` adjacent numbers. Second cut: every `bands`-th number.
            first, step = (band * rows, 1) if band < bands else (band - bands, bands)
            key = mixed(mixed(salt) ^ np.uint64(band))  # different bands share no key
            for row in range(rows):
                key = mixed(key ^ np.uint64(signed[document, first + row * step]))
            keys[document, band] = key


def binary_sketches(signed: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Compute one bit per number of each signature: the lowest one after mixing.

    Permutations are affine modulo 2**32, so unmixed lowest bits would all depend only on whether a hash is odd.

    Returns:
        Shape (documents, permutations / 8).
    """
    key = (signed ^ (signed >> _16)) * _FIRST  # `_finalized` for arrays
    key = (key ^ (key >> _13)) * _SECOND
    return np.packbits((key ^ (key >> _16)) & np.uint32(1), axis=1)


IDS, HASHES, BANDS, BITS, ID_HASHES = (f"{WORK}/{area}" for area in ("ids", "hashes", "bands", "bits", "id_hashes"))
FATAL = "fatal"
_RUN_DOCUMENTS = 1 << 16  # in a run, which is sorted in memory


def sketch_shard(shard: CorpusShard, recipe: DedupRecipe, window: Window, folder: StagingView) -> Receipt:
    """Write the sketches of one shard as sorted runs.

    Files, one in each folder for about 65,536 documents: `ID_HASHES` has hashes of ids; `IDS` priorities and ids, in
    the order of the shard; `HASHES` 128-bit hashes of normalized texts; `BANDS` keys of bands; `BITS` binary
    sketches. The last three depend on the mode.

    Counts: `documents`; `bytes` of text; `without_words`, documents that are compared as they are written; `short`,
    documents with fewer words than a shingle, which can only be exact duplicates; `with_quality`. Notes: `fatal`, the
    poison rows.

    Raises:
        InputError: A line is not a Document, or a quality is not a number.
    """
    counts = Counter({"documents": 0, "bytes": 0, "without_words": 0, "short": 0, "with_quality": 0})
    fatal: list[int] = []
    files: list[OutputFile] = []
    pending = empty = [_sketch([], shard, recipe, counts)]
    written = 0
    for documents, poison_rows in read_documents(shard, window, RAW_DOCUMENTS):
        fatal += poison_rows
        pending = [*pending, _sketch(documents, shard, recipe, counts)]
        if counts["documents"] - written >= _RUN_DOCUMENTS:
            files += _write(pending, shard, folder, len(files))
            pending, written = empty, counts["documents"]
    if counts["documents"] > written or not files:
        files += _write(pending, shard, folder, len(files))
    return Receipt(files, dict(counts), {FATAL: fatal})


def _sketch(
    numbered_documents: Sequence[tuple[int, RawDocument]], shard: CorpusShard, recipe: DedupRecipe, counts: Counter[str]
) -> dict[str, pa.Table]:
    """Sketch and count a block of documents: one unsorted table for each area of the mode."""
    rows, documents = [row for row, _ in numbered_documents], [document for _, document in numbered_documents]
    texts = [document.text.encode() for document in documents]
    batch = normalize(texts)
    text_bytes = np.fromiter(map(len, texts), np.int64, len(texts))
    qualities = _qualities(rows, documents, shard, recipe.quality_column)
    own_numbers = np.array(rows, np.uint64) + np.uint64(shard.first_number)
    priority = priorities(own_numbers, recipe.selection, text_bytes, qualities)
    doc_ids = strings([document.doc_id for document in documents])
    salt = np.uint64(0)
    if recipe.scope == "per-source":
        salt = np.uint64(int.from_bytes(hashlib.sha256(shard.source.encode()).digest()[:8]))
    counts["documents"] += len(rows)
    counts["bytes"] += int(text_bytes.sum())
    counts["with_quality"] += int((~np.isnan(qualities)).sum())
    tables = {IDS: to_table({"order": priority, "doc_id": doc_ids})}
    if recipe.mode != "near":
        high, low = _hashes(batch, texts).T
        tables[HASHES] = to_table({"high": high ^ salt, "low": low, "order": priority, "doc_id": doc_ids})
        counts["without_words"] += int((batch.words() == 0).sum())
    if recipe.near is not None:
        proposer = recipe.near.proposer
        has_shingles = batch.words() >= proposer.shingle_words
        counts["short"] += int((~has_shingles).sum())
        signed, priority = signatures(batch, proposer)[has_shingles], priority[has_shingles]
        if isinstance(proposer, MinHashRecipe):
            keys = band_keys(signed, proposer.bands, salt)
            tables[BANDS] = to_table({"key": keys.ravel(), "order": np.repeat(priority, keys.shape[1])})
        else:
            kind, bits = pa.binary(proposer.bits // 8), pa.py_buffer(binary_sketches(signed))
            sketches = pa.FixedSizeBinaryArray.from_buffers(kind, len(signed), [None, bits])
            tables[BITS] = to_table({"order": priority, "sketch": sketches.cast(pa.binary())})
    return tables


def _qualities(
    rows: Sequence[int], documents: Sequence[RawDocument], shard: CorpusShard, column: str | None
) -> NDArray[np.float32]:
    qualities = np.full(len(documents), np.nan, np.float32)
    if column is None:
        return qualities
    for position, (row, document) in enumerate(zip(rows, documents, strict=True)):
        value = arrow_columns(document.meta, shard.file).get(column)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            what = f"`{column}` of row {row} is {type(value).__name__}, not a number"
            raise InputError(what, shard.file, "choose another `quality_column`")
        if value is not None:
            qualities[position] = value
    return qualities


def _write(
    blocks: Sequence[dict[str, pa.Table]], shard: CorpusShard, folder: StagingView, number: int
) -> Iterator[OutputFile]:
    """Write blocks as one run for each area."""
    for area in blocks[0]:
        table = pa.concat_tables([block[area] for block in blocks]).combine_chunks()
        if area == IDS:
            name = f"{ID_HASHES}/{shard.name}.{number:05d}"
            yield write_ids(folder.path(name), name, table["doc_id"].to_pylist())
        else:
            table = table.take(to_array(np.argsort(numbers(table.column(0)))))
        yield write_run(folder, f"{area}/{shard.name}.{number:05d}.parquet", table)


def sketch_corpus(dedup: DedupRun) -> list[Receipt]:
    """Sketch all shards and return the receipts of `sketch_shard`.

    Raises:
        UsageError: No document has the quality column.
        InputError: A line is not a Document, or two documents have the same id.
    """
    sketched = dedup.run("sketch", (Task.for_kernel(sketch_shard, shard, dedup.recipe) for shard in dedup.shards))
    counts, column = total_counts(sketched), dedup.recipe.quality_column
    if column is not None and counts["documents"] and not counts["with_quality"]:
        what, fix = f"no document has the column `{column}`", "choose a numeric column of their meta"
        raise UsageError(what, RecipeKey("dedup.quality_column"), fix)
    _check_ids(dedup, sketched)
    return sketched


def _check_ids(dedup: DedupRun, sketched: Sequence[Receipt]) -> None:
    repeat = first_repeat(dedup.runs(sketched, ID_HASHES))
    if repeat is None:
        return
    runs = dedup.runs(sketched, IDS)
    doc_id = read_columns(runs[repeat.shard])["doc_id"][repeat.row]
    first, second, *_ = np.sort(np.concatenate([_documents_with(doc_id, run) for run in runs])).tolist()
    what = f"{doc_id} is the id of {_describe_row(dedup, first)} and of {_describe_row(dedup, second)}"
    raise InputError(what, dedup.staging.target, "normalize one source again with unique ids")


def _documents_with(doc_id: pa.Scalar, run: Path) -> NDArray[np.uint64]:
    import pyarrow.compute as pc

    table = read_columns(run)
    is_match = truths(pc.equal(table["doc_id"].combine_chunks(), doc_id))
    return document_numbers(numbers(table["order"])[is_match])


def _describe_row(dedup: DedupRun, number: int) -> str:
    shard = next(shard for shard in reversed(dedup.shards) if shard.first_number <= number)
    return f"{shard.source}/{shard.path} row {number - shard.first_number}"


def load_kernels(recipe: DedupRecipe) -> None:
    """Load the tables and compiled code of `sketch_shard` into this process."""
    lowered()
    batch = normalize([b"a few words are enough"])
    if recipe.near is not None:
        signed = signatures(batch, recipe.near.proposer)
        if recipe.near.minhash is not None:
            band_keys(signed, recipe.near.minhash.bands, np.uint64(0))


def _hashes(batch: NormalizedBatch, texts: Sequence[bytes]) -> NDArray[np.uint64]:
    """Hash each normalized text, or the text as written if it has no word.

    Returns:
        Halves of the first 128 bits of the sha256, shape (documents, 2).
    """
    view = batch.text.data
    spans = zip(batch.starts.tolist(), batch.stops.tolist(), texts, strict=True)
    digests = [hashlib.sha256(view[start:stop] if start < stop else text).digest()[:16] for start, stop, text in spans]
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)

"""Sketches of documents for exact and near deduplication, as sorted runs."""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.dedup.dedup_run import DedupRun, files_in
from pipeline_assets.corpus.dedup.document_order import compute_priorities, document_numbers
from pipeline_assets.corpus.dedup.minhash import band_keys, binary_sketches, minhash_signatures
from pipeline_assets.corpus.dedup.recipe import DedupRecipe, MinHashRecipe
from pipeline_assets.corpus.dedup.sorted_runs import read_run, write_run
from pipeline_assets.corpus.dedup.words import NormalizedBatch, normalize
from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.document_shards import read_documents
from pipeline_assets.corpus.first_repeat import find_first_repeat
from pipeline_assets.corpus.formats.arrow_columns import string_column, to_arrow, to_bools, to_numpy, to_table
from pipeline_assets.corpus.partial_documents import RAW_DECODER, RawDocument, decode_columns
from pipeline_assets.corpus.readers.column_recipe import ID_COLUMN_FIX
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.stage import Window, group_by_size
from pipeline_assets.spine.staged_input import NOT_DIGESTED
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingView, total_counts
from pipeline_assets.spine.task import Task

IDS_WORK_FOLDER, HASHES_WORK_FOLDER, BANDS_WORK_FOLDER, BITS_WORK_FOLDER, ID_HASHES_WORK_FOLDER = (
    f"{WORK_FOLDER}/{name}" for name in ("ids", "hashes", "bands", "bits", "id_hashes")
)
POISON_ROWS_NOTE, _FIRST_NUMBER_NOTE = "fatal", "first_number"
_MAX_FLOAT = sys.float_info.max
_RUN_DOCUMENTS = 1 << 16  # documents in a run, which is sorted in memory


@dataclass(frozen=True)
class FirstNumber:
    """Number of a shard's first document; task digests do not cover this number.

    So if only this number changes, the shard's finished sketches are reused: `sketch_shards` renumbers them.
    """

    value: int = field(metadata=NOT_DIGESTED)


def sketch_shard(
    shard: CorpusShard, first_number: FirstNumber, recipe: DedupRecipe, window: Window, folder: StagingView
) -> Receipt:
    """Write a shard's sketches as sorted runs; number documents from `first_number`.

    Work folders: `id_hashes` has hashes of ids. `ids` has priorities and ids, in the order of the shard. Depending on
    the recipe, `hashes` has 128-bit hashes of normalized texts, `bands` has keys of bands, and `bits` has binary
    sketches. Each folder gets about one file per 65,536 documents.

    The receipt counts `documents` and the `bytes` of their texts. `without_words` counts documents without a word;
    their original texts are compared, because the normalized texts are empty. `short` counts documents with fewer words
    than a shingle; these can only be exact duplicates. `with_quality` counts documents with the quality column.
    The note `fatal` lists the rows that crash a worker; `first_number` is a note, too.
    """
    shard = replace(shard, first_number=first_number.value)
    counts = Counter({"documents": 0, "bytes": 0, "without_words": 0, "short": 0, "with_quality": 0})
    crashing_rows: list[int] = []
    files: list[OutputFile] = []

    def blocks() -> Iterator[dict[str, pa.Table]]:
        yield _sketch_documents([], shard, recipe, counts)  # so that each shard has files
        for documents, poison_rows in read_documents(shard, window, RAW_DECODER):
            crashing_rows.extend(poison_rows)
            if documents:
                yield _sketch_documents(documents, shard, recipe, counts)

    for group in group_by_size(blocks(), lambda tables: tables[IDS_WORK_FOLDER].num_rows, _RUN_DOCUMENTS):
        files += _write_runs(group, shard, folder, len(files))
        group.clear()  # free the tables before the next documents are sketched
    return Receipt(files, dict(counts), {POISON_ROWS_NOTE: crashing_rows, _FIRST_NUMBER_NOTE: first_number.value})


def _sketch_documents(
    numbered_documents: Sequence[tuple[int, RawDocument]], shard: CorpusShard, recipe: DedupRecipe, counts: Counter[str]
) -> dict[str, pa.Table]:
    """Sketch and count documents; return an unsorted table for each folder of runs."""
    rows, documents = [row for row, _ in numbered_documents], [document for _, document in numbered_documents]
    texts = [document.text.encode() for document in documents]
    batch = normalize(texts)
    text_bytes = np.fromiter(map(len, texts), np.int64, len(texts))
    qualities = _read_qualities(rows, documents, shard, recipe.quality_column)
    own_numbers = np.array(rows, np.uint64) + np.uint64(shard.first_number)
    priorities = compute_priorities(own_numbers, recipe.selection, text_bytes, qualities)
    doc_ids = string_column([document.doc_id for document in documents])
    salt = np.uint64(0)  # with per-source scope, each source's salt keeps its keys apart from those of other sources
    if recipe.scope == "per-source":
        salt = np.uint64(int.from_bytes(hashlib.sha256(shard.source.encode()).digest()[:8]))
    counts["documents"] += len(rows)
    counts["bytes"] += int(text_bytes.sum())
    counts["with_quality"] += int((~np.isnan(qualities)).sum())
    tables = {IDS_WORK_FOLDER: to_table({"order": priorities, "doc_id": doc_ids})}
    if recipe.mode != "near":
        high, low = _text_hashes(batch, texts).T
        tables[HASHES_WORK_FOLDER] = to_table({"high": high ^ salt, "low": low, "order": priorities, "doc_id": doc_ids})
        counts["without_words"] += int((batch.word_counts() == 0).sum())
    if recipe.near is not None:
        proposer = recipe.near.proposer
        has_shingles = batch.word_counts() >= proposer.shingle_words
        counts["short"] += int((~has_shingles).sum())
        signatures, priorities = minhash_signatures(batch, proposer)[has_shingles], priorities[has_shingles]
        if isinstance(proposer, MinHashRecipe):
            keys = band_keys(signatures, proposer.bands, salt)
            tables[BANDS_WORK_FOLDER] = to_table({"key": keys.ravel(), "order": np.repeat(priorities, keys.shape[1])})
        else:
            kind, bits = pa.binary(proposer.bits // 8), pa.py_buffer(binary_sketches(signatures))
            sketches = pa.FixedSizeBinaryArray.from_buffers(kind, len(signatures), [None, bits])
            tables[BITS_WORK_FOLDER] = to_table({"order": priorities, "sketch": sketches.cast(pa.binary())})
    return tables


def _read_qualities(
    rows: Sequence[int], documents: Sequence[RawDocument], shard: CorpusShard, column: str | None
) -> NDArray[np.float32]:
    qualities = np.full(len(documents), np.nan, np.float32)
    if column is None:
        return qualities
    with np.errstate(over="ignore"):  # a number beyond float32 becomes infinite
        for position, (row, document) in enumerate(zip(rows, documents, strict=True)):
            value = decode_columns(document.meta, shard.file).get(column)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                what = f"{shard.file}: column `{column}` of row {row} is {type(value).__name__}, not a number"
                raise UsageError(what, RecipeKey("dedup.quality_column"), "choose a numeric column of their meta")
            if value is not None:
                qualities[position] = max(-_MAX_FLOAT, min(value, _MAX_FLOAT))  # float would refuse 10**309
    return qualities


def _write_runs(
    blocks: Sequence[dict[str, pa.Table]], shard: CorpusShard, folder: StagingView, file_number: int
) -> Iterator[OutputFile]:
    """Join blocks of tables; write a run per folder, and a file with hashes of ids."""
    for work_folder in blocks[0]:
        table = pa.concat_tables([block[work_folder] for block in blocks]).combine_chunks()
        if work_folder == IDS_WORK_FOLDER:
            name = f"{ID_HASHES_WORK_FOLDER}/{shard.name}.{file_number:05d}"
            with IdsWriter(folder.path(name)) as writer:
                writer.add(table["doc_id"].to_pylist())
            yield writer.output(name)
        else:
            table = table.take(to_arrow(np.argsort(to_numpy(table.column(0)))))
        yield write_run(folder, f"{work_folder}/{shard.name}.{file_number:05d}.run", table)


def sketch_corpus(dedup: DedupRun) -> list[Receipt]:
    """Sketch all shards, check ids and qualities, and return the receipts by shard.

    Raises:
        UsageError: No document has the quality column, or a quality is not a number.
        InputError: A line is not a Document, or two documents have the same id.
    """
    sketch_receipts = sketch_shards(dedup)
    counts, column = total_counts(sketch_receipts), dedup.recipe.quality_column
    if column is not None and counts["documents"] and not counts["with_quality"]:
        what, fix = f"no document has the column `{column}`", "choose a numeric column of their meta"
        raise UsageError(what, RecipeKey("dedup.quality_column"), fix)
    _check_ids(dedup, sketch_receipts)
    return sketch_receipts


def sketch_shards(dedup: DedupRun) -> list[Receipt]:
    """Sketch all shards; renumber reused sketches whose document numbers have changed."""
    firsts = [FirstNumber(shard.first_number) for shard in dedup.shards]
    pairs = zip(dedup.shards, firsts, strict=True)
    tasks = [Task.bind(sketch_shard, shard.unnumbered, first, dedup.recipe) for shard, first in pairs]
    sketch_receipts = dedup.run_tasks("sketches", tasks)
    return [
        receipt if receipt.notes[_FIRST_NUMBER_NOTE] == first.value else _renumber(receipt, first.value, dedup.staging)
        for receipt, first in zip(sketch_receipts, firsts, strict=True)
    ]


def _renumber(receipt: Receipt, first_number: int, folder: StagingView) -> Receipt:
    """Rewrite a shard's sketches for a new `first_number`; return the new receipt."""
    step, files = first_number - receipt.notes[_FIRST_NUMBER_NOTE], []
    for file in receipt.files:
        if file.path.startswith(f"{ID_HASHES_WORK_FOLDER}/"):
            files.append(file)
            continue
        table = read_run(folder.path(file.path))
        priorities = to_numpy(table["order"]).astype(np.int64) + step  # the number is in the lower 32 bits
        column = table.schema.names.index("order")
        table = table.set_column(column, "order", to_arrow(priorities.astype(np.uint64)))
        files.append(write_run(folder, f"{file.path}.renumbered", table))
    return replace(receipt, files=files)


def _check_ids(dedup: DedupRun, sketch_receipts: Sequence[Receipt]) -> None:
    id_runs = [dedup.staging.path(file.path) for file in files_in(sketch_receipts, ID_HASHES_WORK_FOLDER)]
    repeat = find_first_repeat(id_runs)
    if repeat is None:
        return
    import pyarrow.compute as pc

    tables = [dedup.read_run(run) for run in files_in(sketch_receipts, IDS_WORK_FOLDER)]
    doc_id = tables[repeat.shard]["doc_id"][repeat.row]
    numbers: list[int] = []
    for table in tables:
        is_match = to_bools(pc.equal(table["doc_id"].combine_chunks(), doc_id))
        numbers += document_numbers(to_numpy(table["order"])[is_match]).tolist()
    first, second, *_ = sorted(numbers)
    what = f"{doc_id} is the id of {_describe_row(dedup, first)} and of {_describe_row(dedup, second)}"
    raise InputError(what, dedup.staging.target, f"remove one of these sources, or {ID_COLUMN_FIX}")


def _describe_row(dedup: DedupRun, document_number: int) -> str:
    shard = next(shard for shard in reversed(dedup.shards) if shard.first_number <= document_number)
    return f"{shard.source}/{shard.path} row {document_number - shard.first_number}"


def load_kernels(recipe: DedupRecipe) -> None:
    """Load the tables and compiled code of `sketch_shard` into this process."""
    batch = normalize([b"a few words are enough"])
    if recipe.near is not None:
        signatures = minhash_signatures(batch, recipe.near.proposer)
        if recipe.near.minhash is not None:
            band_keys(signatures, recipe.near.minhash.bands, np.uint64(0))


def _text_hashes(batch: NormalizedBatch, texts: Sequence[bytes]) -> NDArray[np.uint64]:
    """Hash normalized texts to 128 bits; shape (documents, 2): high and low halves."""
    # A text without a word is hashed as written.
    view = batch.text.data
    spans = zip(batch.starts.tolist(), batch.stops.tolist(), texts, strict=True)
    digests = [hashlib.sha256(view[start:stop] if start < stop else text).digest()[:16] for start, stop, text in spans]
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)

"""Packing of a corpus, which converts shards of documents to rows of tokens.

There are two passes. The first encodes each shard to a file of token ids and a document table. A plan then decides from
the lengths alone which documents are drawn, and where they are placed. The second pass writes the rows to one file.
"""

import datetime
import difflib
import functools
import hashlib
import itertools
import shutil
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.formats import memmap
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.corpus.formats.parquet_tables import regroup_rows, write_table
from pipeline_assets.corpus.packing.boundaries import write_boundaries
from pipeline_assets.corpus.packing.drawn_documents import SCHEMA, DrawnDocuments
from pipeline_assets.corpus.packing.empty_sources import raise_if_unencodable
from pipeline_assets.corpus.packing.encoded_corpus import EncodedCorpus, EncodedShard, encode_corpus
from pipeline_assets.corpus.packing.plan_format import RECIPE_NOTE, PlanFiles, read_draws, row_ranges
from pipeline_assets.corpus.packing.recipe import PackRecipe, ResolvedPack
from pipeline_assets.corpus.packing.rows import write_rows
from pipeline_assets.corpus.packing.summary import format_ratio
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import RecipeKey, RetryableError, UsageError
from pipeline_assets.spine.file_ranges import reserve
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.plural import pluralize
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, StagingView, total_counts
from pipeline_assets.spine.task import Task


def manifest_counts(
    recipe: ResolvedPack, encoding_counts: Mapping[str, int], drawn_documents: DrawnDocuments, plan_receipt: Receipt
) -> dict[str, Any]:
    """Return the manifest's counts; `encoding_counts` is the sum over all shards."""
    read = Ledger.from_counts(encoding_counts)
    tokens, capacity = plan_receipt.counts["tokens"], recipe.num_seqs * recipe.seq_len
    unused = sum(counts["unused_documents"] for counts in drawn_documents.counts.values())
    not_drawn = {"not_drawn": unused} if unused else {}
    return {
        "ledger": Ledger(read.rows_in, read.out - unused, not_drawn, read.rejected).to_json(),
        "documents": plan_receipt.counts["draws"],
        "tokens": tokens,
        "rows": recipe.num_seqs,
        "padding_tokens": capacity - tokens,
        "packing_efficiency": format_ratio(tokens, capacity),
        "by_source": {
            source: {
                **counts,
                "license_tokens": drawn_documents.license_tokens[source],
                "asked_tokens": int(Fraction(weight) * tokens),
                # A weight of the recipe is a decimal; a computed weight may be a fraction, such as 1/3.
                "asked_share": f"{float(Fraction(weight)):.6f}" if "/" in weight else weight,
                "share": format_ratio(counts["packed_tokens"], tokens),
                "epochs": format_ratio(counts["packed_tokens"], counts["text_tokens"]),
            }
            for source, counts in drawn_documents.counts.items()
            for weight in [recipe.weights[source]]
        },
    }


def sort_by_source(shards: Sequence[CorpusShard], recipe: PackRecipe) -> list[CorpusShard]:
    """Sort shards by source; omit empty sources without a weight.

    Raise UsageError if a weight or a cap on epochs names an unknown source, a source with documents has no weight, or
    the recipe sets no weights and no source has documents.
    """
    sources = {shard.source for shard in shards}
    weighted = {shard.source for shard in shards if shard.rows} if recipe.weights is None else recipe.weights.keys()
    if not weighted:
        raise UsageError("no documents to pack", RecipeKey("pack"), "keep some documents, or remove `pack`")
    for key, names in (("weights", weighted), ("max_epochs", recipe.max_epochs.sources.keys())):
        for source in sorted(names - sources):
            nearest = difflib.get_close_matches(source, sources, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"sources: {', '.join(sorted(sources)) or 'none'}"
            raise UsageError(f"source {source} not found", RecipeKey(f"pack.{key}"), hint)
    if without := sorted({shard.source for shard in shards if shard.rows} - weighted):
        what, fix = f"the source {without[0]} has no weight", "set its weight, or pack a corpus without it"
        raise UsageError(what, RecipeKey("pack.weights"), fix)
    return sorted((shard for shard in shards if shard.source in weighted), key=lambda shard: shard.source)


def pack_corpus(
    staging: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: PackRecipe,
    tokenizer: TokenizerFile,
    settings: RunSettings,
    created_at: datetime.datetime,
) -> BuildResult:
    """Pack a corpus into rows of equal length.

    The written files are those of `formats.memmap`, and a file of rejects. `tokenizer` is the file of
    `recipe.tokenizer`; `created_at` is the time in `meta.json`.

    Raises:
        UsageError: Weights and sources do not match, a source has too few tokens, the tokenizer file is missing or
            lacks the end-of-document token, or the disk is too small for the rows.
        InputError: A shard is damaged, or the tokenizer file is not valid.
        RetryableError: The free disk space is too small for the rows.
    """
    shards = sort_by_source(shards, recipe)
    if recipe.num_seqs is not None:
        _check_disk_space(staging, recipe.num_seqs, recipe.seq_len)
    library = load_tokenizer(tokenizer)
    corpus = encode_corpus(shards, tokenizer, staging, settings)
    raise_if_unencodable([shard.source for shard in shards], corpus.receipts)
    plan_task = Task("plan", 0, functools.partial(_plan, corpus.shards, recipe))
    [plan_receipt] = corpus.run_stage("plan", [plan_task], staging)
    files, resolved = PlanFiles.from_folder(staging), ResolvedPack.from_content(plan_receipt.notes[RECIPE_NOTE])
    if recipe.num_seqs is None:
        _check_disk_space(staging, resolved.num_seqs, resolved.seq_len)
    row_files, index_frames = _write_row_files(
        staging, corpus, files, resolved, padding_id=library.padding_id, zstd_level=settings.zstd_level
    )
    drawn_documents = DrawnDocuments(read_draws(plan_receipt, files), corpus.shards, files, recipe.seq_len)
    document_tables = regroup_rows(drawn_documents.tables(), SCHEMA)
    outputs = [
        *row_files,
        write_table(staging.path(memmap.DOCUMENTS_FILE), memmap.DOCUMENTS_FILE, document_tables, SCHEMA),
        *(write_boundaries(staging, files) if recipe.boundaries else []),
        corpus.gather_rejects(staging, settings.zstd_level),
    ]
    counts = manifest_counts(resolved, total_counts(corpus.receipts), drawn_documents, plan_receipt)
    meta = memmap.PackedSetMeta(
        seq_len=resolved.seq_len,
        n_seqs=resolved.num_seqs,
        dtype=memmap.TOKEN_DTYPE.name,
        tokenizer_family=recipe.tokenizer.family,
        tokenizer_sha256=recipe.tokenizer.sha256,
        tokenizer_path=str(tokenizer.path),
        vocabulary_size=library.vocabulary_size,
        eod_id=library.end_of_document_id,
        pad_id=library.padding_id,
        strategy=recipe.strategy,
        documents=counts["documents"],
        tokens=counts["tokens"],
        padding_tokens=counts["padding_tokens"],
        counts=counts,
        created_at=created_at.isoformat(timespec="seconds"),
        index_frames=index_frames,
    )
    return BuildResult(
        files=outputs,
        counts=counts,
        decisions={
            "dtype": meta.dtype,
            "end_of_document": meta.eod_id,
            "padding": meta.pad_id,
            "vocabulary_size": meta.vocabulary_size,
        },
        labels=[staging.write(memmap.META_FILE, meta.to_bytes())],
        provenance=corpus.provenance,
    )


def _plan(encoded_shards: Sequence[EncodedShard], recipe: PackRecipe, window: Window, folder: StagingView) -> Receipt:
    # Only the worker that plans loads the compiled code.
    from pipeline_assets.corpus.packing.plan import write_plan

    return write_plan(encoded_shards, window, folder, recipe)


def _check_disk_space(staging: StagingDir, num_seqs: int, seq_len: int) -> None:
    """Raise RetryableError if the rows exceed the free disk space.

    Raise UsageError if the rows exceed the size of the disk. If the file of rows exists, nothing is checked, because
    its space is reserved already.
    """
    path, size = staging.path(memmap.INPUT_IDS_FILE), num_seqs * seq_len * memmap.TOKEN_DTYPE.itemsize
    disk = shutil.disk_usage(path.parent)
    if not path.exists() and size > disk.free:
        needed = f"{pluralize(num_seqs, 'row')} of {seq_len:,} tokens need {size:,} bytes"
        what = f"{needed}, but only {disk.free:,} are free"
        fix = "lower `pack.num_seqs`, or choose a folder on a larger disk"
        if size > disk.total:
            raise UsageError(what, staging.target, fix)
        raise RetryableError(what, staging.target, f"free disk space, {fix}")


def _write_row_files(
    staging: StagingDir,
    corpus: EncodedCorpus,
    files: PlanFiles,
    recipe: ResolvedPack,
    *,
    padding_id: int,
    zstd_level: int,
) -> tuple[list[OutputFile], list[memmap.Frame]]:
    """Write the file of rows and its index; return both files and the index's frames."""
    ranges = row_ranges(corpus.shards, files, recipe.seq_len)
    layout = {"seq_len": recipe.seq_len, "padding_id": padding_id, "zstd_level": zstd_level}
    tasks = [Task.bind(write_rows, row_range, **layout) for row_range in ranges]
    size = recipe.num_seqs * recipe.seq_len * memmap.TOKEN_DTYPE.itemsize
    reserve(staging.path(memmap.INPUT_IDS_FILE), size)
    index_parts = [receipt.files[1] for receipt in corpus.run_stage("rows", tasks, staging)]
    sha256 = file_sha256(staging.path(memmap.INPUT_IDS_FILE))
    rows_file = OutputFile(memmap.INPUT_IDS_FILE, recipe.num_seqs, size, sha256, sha256)
    offsets = itertools.accumulate((part.bytes for part in index_parts), initial=0)
    frames = [memmap.Frame(part.start, offset) for part, offset in zip(ranges, offsets, strict=False)]
    return [rows_file, _concatenate_frames(staging, index_parts)], frames


def _concatenate_frames(staging: StagingDir, files: Iterable[OutputFile]) -> OutputFile:
    """Join staged `.jsonl.zst` files as separate zstd frames of the index.

    Nothing is compressed again, and a line can be read without decompressing the files before it.
    """
    content, rows = hashlib.sha256(), 0
    with DurableFile(staging.path(memmap.INDEX_FILE)) as file:
        for staged in files:
            path = staging.path(staged.path)
            for block in read_line_blocks(path):
                content.update(block)
            file.append(path, staged.bytes, staged.sha256)
            rows += staged.rows
    return OutputFile(memmap.INDEX_FILE, rows, file.bytes_written, file.sha256, content.hexdigest())

"""Packs a corpus of several sources: their Document shards → rows of tokens, and what tells where each one is from.

Two passes over the text's tokens. First every shard is encoded to a run of tokens, with the lengths of its documents.
From lengths alone it is planned what is drawn and where it lies. Then the rows are written, a range at a time, each at
its place in the one file. A build that was killed goes on where it was.
"""

import datetime
import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline_assets.corpus.dedup.corpus_shard import CorpusShard
from pipeline_assets.corpus.document_shards.gathered import gather_frames, gather_lines
from pipeline_assets.corpus.document_shards.publish import REJECTS_FILE
from pipeline_assets.corpus.formats.memmap import DOCUMENTS, DTYPE, INDEX, INPUT_IDS, META, Meta
from pipeline_assets.corpus.formats.parquet import in_row_groups, write_table
from pipeline_assets.corpus.packing.boundaries import write_boundaries
from pipeline_assets.corpus.packing.documents import SCHEMA, DrawnDocuments
from pipeline_assets.corpus.packing.emptied import refuse_unencodable
from pipeline_assets.corpus.packing.encoded_shard import EncodedShard, encode_to_run, load_tables
from pipeline_assets.corpus.packing.figures import describe, manifest_counts
from pipeline_assets.corpus.packing.plan_files import PlanFiles, PlannedCorpus, drawn_of
from pipeline_assets.corpus.packing.recipe import PackRecipe
from pipeline_assets.corpus.packing.row_ranges import RowRange, row_ranges
from pipeline_assets.corpus.packing.rows import write_rows
from pipeline_assets.corpus.packing.source_order import in_order
from pipeline_assets.corpus.spine.building import BuildFolder, Building, OutputFile, Receipt, total_counts
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.engine import EngineSettings, run_stages
from pipeline_assets.corpus.spine.errors import key
from pipeline_assets.corpus.spine.shared_file import SharedFileHash, refuse_beyond_disk, reserve
from pipeline_assets.corpus.spine.stage import Window
from pipeline_assets.corpus.spine.target import Content
from pipeline_assets.corpus.tokens.encoded_blocks import EncodeShard, OracleDisagrees
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import Driver

logger = logging.getLogger("corpusmill")
_GROWTH_BYTES = 128 << 20  # a tokenizer's cache of words only grows: to start it afresh more often costs a fifth more


@dataclass(frozen=True)
class PackSettings:
    """Run settings: they change speed and what labels say, never content.

    Attributes:
        tokenizer_file: None for the one that ships with the program.
        created_at: what the label says.
    """

    engine: EngineSettings
    created_at: datetime.datetime
    tokenizer_file: Path | None = None
    zstd_level: int = 3
    driver: Driver = "gigatoken"


AnyShard = EncodeShard | PlannedCorpus | RowRange


def pack_corpus(
    building: Building, shards: Sequence[CorpusShard], recipe: PackRecipe, settings: PackSettings
) -> Content:
    """The files that `formats.memmap` describes, and rejects. If the fast tokenizer ever disagrees with its oracle,
    everything is encoded again by the oracle.

    Raises:
        UsageError: weights and sources don't match, there is not enough of a source, or a tokenizer lacks something.
        InputError: a damaged shard, or a tokenizer file that is none.
        Obstacle: the disk has no room for the rows.
    """
    ordered = in_order(shards, recipe)
    tokenizer = TokenizerFile(recipe.tokenizer, settings.tokenizer_file, settings.driver)
    try:
        return _pack(building, ordered, recipe, settings, tokenizer)
    except OracleDisagrees as disagreement:
        logger.error("%s; tiktoken encodes everything again", disagreement)
        return _pack(building, ordered, recipe, settings, replace(tokenizer, driver="tiktoken"))


def pack_work(
    shard: AnyShard,
    window: Window,
    folder: BuildFolder,
    recipe: PackRecipe,
    tokenizer: TokenizerFile,
    zstd_level: int,
) -> Receipt:
    """What every stage does to one of its shards: their types tell the stages apart."""
    match shard:
        case EncodeShard():
            return encode_to_run(shard, window, folder, tokenizer, zstd_level)
        case PlannedCorpus():
            # Compiled code is loaded only where it is needed: by the one worker that plans.
            from pipeline_assets.corpus.packing.plan import plan_rows

            return plan_rows(shard, window, folder, recipe)
        case RowRange():
            return write_rows(shard, window, folder, recipe.seq_len, load_tokenizer(tokenizer).padding, zstd_level)


def _pack(
    building: Building,
    shards: Sequence[CorpusShard],
    recipe: PackRecipe,
    settings: PackSettings,
    tokenizer: TokenizerFile,
) -> Content:
    work = functools.partial(pack_work, recipe=recipe, tokenizer=tokenizer, zstd_level=settings.zstd_level)
    engine = replace(settings.engine, growth_bytes=_GROWTH_BYTES)
    row_bytes = recipe.seq_len * DTYPE.itemsize
    refuse_beyond_disk(
        building.path(INPUT_IDS),
        recipe.num_seqs * row_bytes,
        building.target,
        f"{recipe.num_seqs:,} rows of {recipe.seq_len:,}",
        f"ask for fewer rows by {key('pack.num_seqs')}",
    )
    with run_stages(work, engine, functools.partial(load_tables, tokenizer)) as run:
        encodings = list(run(f"encode-{load_tokenizer(tokenizer).driver}", _to_encode(shards), building))
        refuse_unencodable([shard.source for shard in shards], encodings)
        encoded = _encoded(building, shards, encodings)
        [plan] = run("plan", [PlannedCorpus(encoded)], building)
        files = PlanFiles.below(building)
        ranges = row_ranges(encoded, files, recipe.seq_len)
        reserve(building.path(INPUT_IDS), recipe.num_seqs * row_bytes)
        tokens, index = SharedFileHash(building.path(INPUT_IDS)), []
        for rows, receipt in zip(ranges, run("rows", ranges, building), strict=True):
            tokens.read_to(rows.stop * row_bytes)
            index.append(receipt.files[1])
    documents = DrawnDocuments(drawn_of(plan, files), encoded, files, recipe.seq_len)
    outputs = [
        OutputFile(INPUT_IDS, recipe.num_seqs, tokens.bytes_read, tokens.sha256, tokens.sha256),
        gather_frames(building, index, INDEX),
        write_table(building.path(DOCUMENTS), DOCUMENTS, in_row_groups(documents.tables(), SCHEMA), SCHEMA),
        *(write_boundaries(building, files) if recipe.boundaries else []),
        gather_lines(building, [receipt.files[2] for receipt in encodings], REJECTS_FILE, settings.zstd_level),
    ]
    counts = manifest_counts(recipe, total_counts(encodings), documents.counts, plan)
    meta = describe(recipe, tokenizer, ranges, index, counts, settings.created_at)
    return Content(
        files=outputs,
        counts=counts,
        decisions={
            "dtype": meta.dtype,
            "end_of_document": meta.eod_id,
            "padding": meta.pad_id,
            "vocabulary_size": meta.vocabulary_size,
        },
        labels=[_label(building, meta)],
        provenance={"tokenizer_driver": sorted({str(receipt.notes["driver"]) for receipt in encodings})},
    )


def _to_encode(shards: Sequence[CorpusShard]) -> list[EncodeShard]:
    return [
        EncodeShard(f"{number:05d}", f"{shard.source}/{shard.path}", shard.file, shard.rows)
        for number, shard in enumerate(shards)
    ]


def _encoded(
    building: Building, shards: Sequence[CorpusShard], encodings: Sequence[Receipt]
) -> tuple[EncodedShard, ...]:
    return tuple(
        EncodedShard(
            shard.source,
            shard.path,
            building.path(receipt.files[0].path),
            building.path(receipt.files[1].path),
            receipt.counts["documents"],
            receipt.counts["rows"] - receipt.counts["documents"],
        )
        for shard, receipt in zip(shards, encodings, strict=True)
    )


def _label(building: Building, meta: Meta) -> OutputFile:
    with DurableFile(building.path(META)) as file:
        file.write(meta.to_bytes())
    return OutputFile.plain(META, 1, file)

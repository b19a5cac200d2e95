"""Packs a corpus of several sources: their Document shards → rows of tokens, and what tells where each one is from.

Two passes over the text's tokens. First every shard is encoded to a run of tokens, with the lengths of its documents.
From lengths alone it is planned what is drawn and where it lies. Then the rows are written, a range at a time, each at
its place in the one file. A build that was killed goes on where it was.
"""

import datetime
import difflib
import functools
import itertools
import shutil
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.converted_shards import gather_frames
from pipeline_assets.corpus.corpus_shard import CorpusShard
from pipeline_assets.corpus.formats.memmap import DOCUMENTS, DTYPE, INDEX, INPUT_IDS, META, Frame, Meta
from pipeline_assets.corpus.formats.parquet import in_row_groups, write_table
from pipeline_assets.corpus.packing import plan_files
from pipeline_assets.corpus.packing.recipe import PackRecipe, ResolvedPack, raise_if_unencodable
from pipeline_assets.corpus.packing.rows import SCHEMA, DrawnDocuments, write_boundaries, write_rows
from pipeline_assets.corpus.tokens.encode import with_oracle_fallback
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import Driver
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile, reserve
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import RetryableError, UsageError, bare, key
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.stage import Task, Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, StagingView, total_counts


def manifest_counts(
    recipe: ResolvedPack, encoded: Mapping[str, int], documents: DrawnDocuments, plan: Receipt
) -> dict[str, Any]:
    """
    Args:
        encoded: counts of all encoded shards together.
    """
    read, tokens, room = Ledger.from_counts(encoded), plan.counts["tokens"], recipe.num_seqs * recipe.seq_len
    unused = sum(counts["unused_documents"] for counts in documents.counts.values())
    not_drawn = {"not_drawn": unused} if unused else {}
    return {
        "ledger": Ledger(read.rows_in, read.out - unused, not_drawn, read.rejected).to_json(),
        "documents": plan.counts["draws"],
        "tokens": tokens,
        "rows": recipe.num_seqs,
        "padding_tokens": room - tokens,
        "packing_efficiency": _quotient(tokens, room),
        "by_source": {
            source: {
                **counts,
                "license_tokens": documents.license_tokens[source],
                "asked_tokens": int(Fraction(weight) * tokens),
                # As the recipe has it; a weight that was worked out is a fraction.
                "asked_share": f"{float(Fraction(weight)):.6f}" if "/" in weight else weight,
                "share": _quotient(counts["packed_tokens"], tokens),
                "epochs": _quotient(counts["packed_tokens"], counts["text_tokens"]),
            }
            for source, counts in documents.counts.items()
            for weight in [recipe.weights[source]]
        },
    }


def _quotient(part: int, of: int) -> str:
    return f"{part / of:.6f}"


def in_order(shards: Sequence[CorpusShard], recipe: PackRecipe) -> list[CorpusShard]:
    """The shards by their sources' names; those of a source as they were given. One that holds nothing needs no weight.

    Raises:
        UsageError: a source without a weight, or a weight without a source; nothing at all.
    """
    given = {shard.source for shard in shards}
    weighed = {shard.source for shard in shards if shard.rows} if recipe.weights is None else recipe.weights.keys()
    if not weighed:
        raise UsageError("there is no document", bare("pack"), "keep some, or leave `pack` out")
    for source in sorted(weighed):
        if source not in given:
            nearest = difflib.get_close_matches(source, given, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"there are {', '.join(sorted(given)) or 'none'}"
            raise UsageError(f"there is no source {source}", bare("pack.weights"), hint)
    if without := sorted({shard.source for shard in shards if shard.rows} - weighed):
        raise UsageError(
            f"the source {without[0]} has no weight", bare("pack.weights"), "give it one, or pack a corpus without it"
        )
    return sorted((shard for shard in shards if shard.source in weighed), key=lambda shard: shard.source)


def pack_corpus(
    building: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: PackRecipe,
    settings: RunSettings,
    created_at: datetime.datetime,
    tokenizer_file: Path | None = None,
    driver: Driver = "gigatoken",
) -> BuildResult:
    """The files that `formats.memmap` describes, and rejects. If the fast tokenizer ever disagrees with its oracle,
    everything is encoded again by the oracle.

    Args:
        created_at: what the label says.
        tokenizer_file: None for the one that ships with the program.
    Raises:
        UsageError: weights and sources don't match, there is not enough of a source, or a tokenizer lacks something.
        InputError: a damaged shard, or a tokenizer file that is none.
        RetryableError: the disk has no room for the rows.
    """
    ordered = in_order(shards, recipe)
    tokenizer = TokenizerFile(recipe.tokenizer, tokenizer_file, driver)
    return with_oracle_fallback(tokenizer, lambda by: _pack(building, ordered, recipe, settings, created_at, by))


def _plan(
    encoded: Sequence[plan_files.EncodedShard], recipe: PackRecipe, window: Window, folder: StagingView
) -> Receipt:
    # Compiled code is loaded only where it is needed: by the one worker that plans.
    from pipeline_assets.corpus.packing.plan import plan_rows

    return plan_rows(encoded, window, folder, recipe)


def _pack(
    building: StagingDir,
    shards: Sequence[CorpusShard],
    recipe: PackRecipe,
    settings: RunSettings,
    created_at: datetime.datetime,
    tokenizer: TokenizerFile,
) -> BuildResult:
    if recipe.num_seqs is not None:
        _refuse_beyond_disk(building, recipe.num_seqs, recipe.seq_len)
    library = load_tokenizer(tokenizer)
    corpus = plan_files.encoded_corpus(shards, tokenizer, building, settings)
    run, encoded, encodings = corpus.run, corpus.shards, corpus.receipts
    raise_if_unencodable([shard.source for shard in shards], encodings)
    [plan] = run("plan", [Task("plan", 0, functools.partial(_plan, encoded, recipe))], building)
    files, settled = plan_files.PlanFiles.below(building), ResolvedPack.from_content(plan.notes[plan_files.SETTLED])
    row_bytes = settled.seq_len * DTYPE.itemsize
    if recipe.num_seqs is None:
        _refuse_beyond_disk(building, settled.num_seqs, settled.seq_len)
    ranges = plan_files.row_ranges(encoded, files, recipe.seq_len)
    layout = {"seq_len": recipe.seq_len, "padding": library.padding, "zstd_level": settings.zstd_level}
    tasks = [Task.for_kernel(write_rows, one, **layout) for one in ranges]
    reserve(building.path(INPUT_IDS), settled.num_seqs * row_bytes)
    index = [receipt.files[1] for receipt in run("rows", tasks, building)]
    sha256 = file_sha256(building.path(INPUT_IDS))
    documents = DrawnDocuments(plan_files.read_drawn(plan, files), encoded, files, recipe.seq_len)
    outputs = [
        OutputFile(INPUT_IDS, settled.num_seqs, settled.num_seqs * row_bytes, sha256, sha256),
        gather_frames(building, index, INDEX),
        write_table(building.path(DOCUMENTS), DOCUMENTS, in_row_groups(documents.tables(), SCHEMA), SCHEMA),
        *(write_boundaries(building, files) if recipe.boundaries else []),
        corpus.gather_rejects(building, settings.zstd_level),
    ]
    counts = manifest_counts(settled, total_counts(encodings), documents, plan)
    offsets = itertools.accumulate((part.bytes for part in index), initial=0)
    meta = Meta(
        seq_len=settled.seq_len,
        n_seqs=settled.num_seqs,
        dtype=DTYPE.name,
        tokenizer_family=recipe.tokenizer.family,
        tokenizer_sha256=recipe.tokenizer.sha256,
        tokenizer_path=str(tokenizer.path),
        vocabulary_size=library.vocabulary_size,
        eod_id=library.end_of_document,
        pad_id=library.padding,
        strategy=recipe.strategy,
        documents=counts["documents"],
        tokens=counts["tokens"],
        padding_tokens=counts["padding_tokens"],
        counts=counts,
        created_at=created_at.isoformat(timespec="seconds"),
        index_frames=[Frame(one.start, offset) for one, offset in zip(ranges, offsets, strict=False)],
    )
    with DurableFile(building.path(META)) as label:
        label.write(meta.to_bytes())
    return BuildResult(
        files=outputs,
        counts=counts,
        decisions={
            "dtype": meta.dtype,
            "end_of_document": meta.eod_id,
            "padding": meta.pad_id,
            "vocabulary_size": meta.vocabulary_size,
        },
        labels=[OutputFile.plain(META, 1, label)],
        provenance=corpus.provenance,
    )


def _refuse_beyond_disk(building: StagingDir, num_seqs: int, seq_len: int) -> None:
    """
    Raises:
        RetryableError: the disk has no room for rows that aren't there yet.
        UsageError: nor would it have, were it empty.
    """
    path, size = building.path(INPUT_IDS), num_seqs * seq_len * DTYPE.itemsize
    disk = shutil.disk_usage(path.parent)
    if not path.exists() and size > disk.free:
        words = f"{num_seqs:,} rows of {seq_len:,} take {size:,} bytes, and {disk.free:,} are free"
        less, fix = f"ask for fewer rows by {key('pack.num_seqs')}", "give a folder on a larger disk"
        if size > disk.total:
            raise UsageError(words, building.target, f"{less}, or {fix}")
        raise RetryableError(words, building.target, f"free some, {less}, or {fix}")

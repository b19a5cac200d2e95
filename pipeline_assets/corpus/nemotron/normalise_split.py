"""A split's files → normalised rows as Parquet of one schema, each id once, with the tools that rows name and rejects.

    data/<split>-00000-of-0000N.parquet   rows, `schema.SCHEMA`, in source order
    <split>__tools_catalog.json           id → list of tools, by id: what `source_tools_id` names
    rejects.jsonl.zst                     rows that gave none, and why
    dropped.jsonl.zst                     rows that the recipe leaves out, and why, in the same form

Shards are planned from the files' sizes. Ids that repeat are numbered over the whole split, so a shard with such is
written again; the others stand as they were written. Any number of workers, killed or not, gives the same bytes.

The stage `nemotron_hf_layout`: the normalised rows of a dataset's splits in one folder, as a hub has them.

    data/<split>-00000-of-0000N.parquet   of every split
    <split>__tools_catalog.json
    README.md                             the dataset's card, if asked for

Nothing is copied: the files are those of the splits under a second name. Their rejects and dropped rows stay there.
"""

import functools
import heapq
import importlib
import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from pipeline_assets.corpus.converted_shards import gather_lines, read_rejects
from pipeline_assets.corpus.doc_ids import read_repeats, write_repeats
from pipeline_assets.corpus.document_shards import REJECTS_FILE
from pipeline_assets.corpus.formats.arrow_columns import strings
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.formats.parquet import ParquetOutput, open_parquet
from pipeline_assets.corpus.harmony.message import STRUCTURE
from pipeline_assets.corpus.nemotron.dataset_section import Domain, RowOrigin
from pipeline_assets.corpus.nemotron.normalise_shard import BY_NAME, bounded, normalise_shard
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.schema import DATA, DROPPED_FILE, SCHEMA
from pipeline_assets.corpus.nemotron.source_rows import empty_sample, plan_sample, plan_shards
from pipeline_assets.corpus.nemotron.splits import DEFAULT_CONFIG
from pipeline_assets.corpus.readers.lines import reject_formatter
from pipeline_assets.corpus.readers.source_folder import SourceFile
from pipeline_assets.corpus.tokens.encode import OracleDisagrees, load_tables
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import Driver
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger, Reject, RejectFormatter, check_rejects, summarize_reasons
from pipeline_assets.spine.manifest import Identity
from pipeline_assets.spine.stage import Task, Window, run_task
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingDir, StagingView, total_counts

logger = logging.getLogger("corpusmill")
_ROW_BYTES = 20_000  # of lines, about


def row_origin(pin: Identity, subset: str | None, domain: Domain) -> RowOrigin:
    """Where the rows of a split come from, but for their file.

    Args:
        pin: what the manifest that lists its files says.
        subset: what the recipe has them said to be of; None for what the card says.
    """
    subset, split = subset or pin.decisions.get("config") or DEFAULT_CONFIG, pin.recipe
    return RowOrigin(split["dataset"], subset, split["split"], domain, "", split.get("revision"))


def normalise_split(
    building: StagingDir, files: Sequence[SourceFile], origin: RowOrigin, rules: RowsRecipe, settings: RunSettings
) -> BuildResult:
    """The files above. If gigatoken ever disagrees with tiktoken, all is encoded again by that.

    Args:
        files: of the split, in order.
        origin: what the rows are of; its file is that of each row's.
    Raises:
        InputError: a file can't be read, too many rows are rejects, or none is left.
    """
    normalise = functools.partial(_normalise, building, files, origin, rules, settings)
    try:
        return normalise("gigatoken")
    except OracleDisagrees as disagreement:
        logger.error("%s; tiktoken encodes everything again", disagreement)
        return normalise("tiktoken")


def _normalise(
    building: StagingDir,
    files: Sequence[SourceFile],
    origin: RowOrigin,
    rules: RowsRecipe,
    settings: RunSettings,
    driver: Driver,
) -> BuildResult:
    shards = plan_shards(files, rules.shard_bytes) if rules.max_rows is None else plan_sample(files, rules.max_rows)
    work = functools.partial(
        normalise_shard,
        origin=origin,
        settings=rules,
        driver=driver,
        zstd_level=settings.zstd_level,
        vocabulary=settings.vocabulary,
    )
    rows = rules.max_rows or sum(file.bytes for file in files) // _ROW_BYTES
    tokenizer = TokenizerFile(rules.tokenizer, settings.vocabulary, driver)
    warm_up = functools.partial(load_tables, tokenizer, rows, controls=STRUCTURE)
    settings = limit_workers(building, settings, [sum(piece.bytes for piece in shard.pieces) for shard in shards])
    receipts = list(run_stage(f"normalise-{driver}", work, shards, building, settings, warm_up))
    counts = bounded(total_counts(receipts))
    _check(building, receipts, counts, rules, reject_formatter(files))
    outputs = [
        *_publish(building, receipts, origin.split, settings),
        _catalogue(building, receipts, f"{origin.split}__tools_catalog.json"),
        gather_lines(building, [receipt.files[2] for receipt in receipts], REJECTS_FILE, settings.zstd_level),
        gather_lines(building, [receipt.files[4] for receipt in receipts], DROPPED_FILE, settings.zstd_level),
    ]
    apart = ("rows", "spot_checked")
    told = {name: count for name, count in counts.items() if name not in apart and "/" not in name}
    by_name = {kind: of_kind for kind in BY_NAME if (of_kind := _below(counts, kind))}
    decisions = {"template": str(rules.template), "analysis": str(rules.analysis), "loss_rule": rules.loss_mode.rule}
    return BuildResult(
        files=outputs,
        counts={"ledger": Ledger.from_counts(counts).to_json(), **told, **by_name},
        decisions=decisions,
        provenance={"tokenizer_driver": driver},
    )


def _below(counts: Mapping[str, int], kind: str) -> dict[str, int]:
    """Return the counts `KIND/NAME` by name."""
    return {name.removeprefix(f"{kind}/"): count for name, count in counts.items() if name.startswith(f"{kind}/")}


def _check(
    building: StagingDir,
    receipts: Sequence[Receipt],
    counts: Mapping[str, int],
    rules: RowsRecipe,
    words: RejectFormatter,
) -> None:
    rejected = Ledger.from_counts(counts).total_rejected
    rows = counts.get("rows", 0)
    check_rejects(rejected, rows, rules.max_reject_fraction, read_rejects(building, receipts), building.target, words)
    if rules.max_rows is not None and not rows:
        raise empty_sample(rules.max_rows, building.target)
    if not counts.get("documents"):
        gone = [read_structs(building.path(receipt.files[4].path), Reject) for receipt in receipts]
        reasons, shown = summarize_reasons(itertools.chain(read_rejects(building, receipts), *gone), words)
        what = f"none of {rows:,} rows gives a conversation: {reasons} (the first: {shown})"
        what = what if rows else "there is no row in its files"
        raise InputError(what, building.target, "look at those rows, or leave the split out")


def _publish(building: StagingDir, receipts: Sequence[Receipt], split: str, settings: RunSettings) -> list[OutputFile]:
    """Put rows under their final names. Only shards in which an id is repeated are written again."""
    repeats = write_repeats([building.path(receipt.files[1].path) for receipt in receipts], building)
    finals = [f"{DATA}/{split}-{number:05d}-of-{len(receipts):05d}.parquet" for number in range(len(receipts))]
    files = [receipt.files[0] for receipt in receipts]
    again = [
        Task(f"{number:05d}", file.rows, functools.partial(number_ids, building.path(file.path), final, of_shard))
        for number, (file, final, of_shard) in enumerate(zip(files, finals, repeats, strict=True))
        if of_shard is not None
    ]
    warm_up = functools.partial(importlib.import_module, __name__)
    rewritten = run_stage("number_ids", run_task, again, building, settings, warm_up) if again else ()
    outputs = {receipt.files[0].path: receipt.files[0] for receipt in rewritten}
    return [outputs.get(final) or file.linked(final, building) for file, final in zip(files, finals, strict=True)]


def number_ids(path: Path, final: str, repeats: Path, window: Window, folder: StagingView) -> Receipt:
    """The shard's rows under their final name, ids that were there before numbered, in row groups as they were."""
    with (
        open_parquet(path) as file,
        ParquetOutput(folder.path(final), SCHEMA, file.metadata.num_rows) as output,
    ):
        times = read_repeats(repeats, file.metadata.num_rows)
        for group in range(file.num_row_groups):
            table: pa.Table = file.read_row_group(group)
            numbered = zip(table["id"].to_pylist(), itertools.islice(times, table.num_rows), strict=True)
            ids = [f"{row_id}#{nth}" if nth else row_id for row_id, nth in numbered]
            output.write(table.set_column(0, SCHEMA.field("id"), strings(ids)))
    return Receipt([output.output(final)], {})


def _catalogue(building: StagingDir, receipts: Sequence[Receipt], name: str) -> OutputFile:
    """Every list of tools once, by id; one line of the file each."""
    merged = heapq.merge(*(read_structs(building.path(receipt.files[3].path), tuple[str, str]) for receipt in receipts))
    tools = (next(group) for _, group in itertools.groupby(merged, key=lambda tool: tool[0]))
    lists = 0
    with DurableFile(building.path(name)) as file:
        file.write(b"{")
        for tools_id, canonical in tools:
            file.write(f'{"," if lists else ""}\n"{tools_id}": {canonical}'.encode())
            lists += 1
        file.write(b"\n}\n")
    return OutputFile.plain(name, lists, file)

"""Shard task of the stage `nemotron_normalise`.

Rows are read, rendered, encoded and written in blocks. The boundaries of blocks depend on the shard alone. The kept
rows of a block become a row group.
"""

import gc
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from pipeline_assets.corpus.chat_templates.template import ChatTemplateFiles, load_template
from pipeline_assets.corpus.converted_shards import IDS_FOLDER, REJECTS_FOLDER
from pipeline_assets.corpus.doc_ids import IdsWriter
from pipeline_assets.corpus.formats.jsonl_zst import SUFFIX, write_rows
from pipeline_assets.corpus.formats.parquet import ParquetOutput
from pipeline_assets.corpus.nemotron.dataset_section import RowOrigin
from pipeline_assets.corpus.nemotron.message_text import THINK_TAGS_COUNT_KEY, UNREAD_KEYS_COUNT_KEY
from pipeline_assets.corpus.nemotron.normalise_rows import INVALID_HARMONY, Encoder, NormalisedRows, normalise_rows
from pipeline_assets.corpus.nemotron.parquet_values import find_object_columns, to_json_row
from pipeline_assets.corpus.nemotron.row_census import OTHERS
from pipeline_assets.corpus.nemotron.row_checks import encoding_faults
from pipeline_assets.corpus.nemotron.row_values import Row
from pipeline_assets.corpus.nemotron.rows_recipe import RowsRecipe
from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.nemotron.seed_prompts import open_seed_prompts
from pipeline_assets.corpus.nemotron.source_rows import RowShard, SourceRow, read_shard
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.removals import NO_REMOVALS, Removals
from pipeline_assets.corpus.tokens.encode import OracleMismatchError, is_spot_checked
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder, load_encoder
from pipeline_assets.spine.gc_pause import pause_gc
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView

# Counts that are nested by name, as `COUNT/NAME`.
NESTED_COUNT_KEYS: Final = (INVALID_HARMONY, UNREAD_KEYS_COUNT_KEY, THINK_TAGS_COUNT_KEY)
_MAX_UNREAD_KEYS = 64
_BLOCK_CHARACTERS = 8 << 20
_BLOCK_ROWS = 4096


def normalise_shard(
    shard: RowShard,
    window: Window,
    folder: StagingView,
    origin: RowOrigin,
    rules: RowsRecipe,
    tokenizer: TokenizerFile,
    zstd_level: int,
    removals: Removals = NO_REMOVALS,
    seed_prompts: Path | None = None,
    template_files: ChatTemplateFiles | None = None,
) -> Receipt:
    """Normalize the rows of a shard of a split.

    `seed_prompts` is the file that `write_seed_prompts` wrote; None without seed sets. `origin.file` and
    `origin.find_prompt` are ignored. With `template_files`, the tokenizer of the chat template encodes all rows.
    Otherwise, tiktoken also encodes one row in a thousand, and a difference raises `OracleMismatchError`.

    The files, in order, are kept rows (`SCHEMA`; repeated ids are not numbered yet); their ids (`IdsWriter`); rejects;
    lists of tools as lines `[id, canonical JSON]`, sorted by id; and dropped rows in the format of rejects. The receipt
    has the counts of `NormalisedRows`, and `spot_checked`, the number of rows that tiktoken also encoded.
    """
    encoder: Encoder
    if template_files is None:
        encoder = load_encoder(rules.tokenizer.sha256, tokenizer.path, tokenizer.driver)
    else:
        encoder = load_template(template_files)
    counts: Counter[str] = Counter(rows=0, documents=0)
    rejects, dropped, tools = list[Reject](), list[Reject](), dict[str, str]()
    stem = f"{tokenizer.driver}/{shard.name}"
    rows_name, ids_name = f"{WORK_FOLDER}/rows/{stem}.parquet", f"{IDS_FOLDER}/{stem}"
    rejects_name, dropped_name = f"{REJECTS_FOLDER}/{stem}{SUFFIX}", f"{WORK_FOLDER}/dropped/{stem}{SUFFIX}"
    tools_name = f"{WORK_FOLDER}/tools/{stem}{SUFFIX}"
    with (
        pause_gc(),
        open_seed_prompts(seed_prompts) as find_prompt,
        ParquetOutput(folder.path(rows_name), SCHEMA, _BLOCK_ROWS) as output,
        IdsWriter(folder.path(ids_name)) as ids,
    ):
        for file, rows in _read_blocks(shard):
            block_origin = replace(origin, file=file, find_prompt=find_prompt)
            block = normalise_rows(rows, rules, block_origin, encoder, removals)
            rows.clear()
            gc.collect(0)  # the source rows are freed, so few objects are scanned
            if isinstance(encoder, HarmonyEncoder):  # texts of chat templates are all checked
                counts["spot_checked"] += _spot_check(block, rules, encoder)
            counts.update(block.counts)
            ids.add(block.batch.column("id").to_pylist())
            rejects += block.rejects
            dropped += block.dropped
            tools |= block.tool_lists
            if block.batch.num_rows:
                output.write(pa.Table.from_batches([block.batch], SCHEMA))
    lists = ((rejects_name, rejects), (tools_name, sorted(tools.items())), (dropped_name, dropped))
    files = [output.output(rows_name), ids.output(ids_name)]
    files += [write_rows(folder.path(name), name, entries, zstd_level) for name, entries in lists]
    return Receipt(files, merge_rare_keys(counts))


def merge_rare_keys(counts: Mapping[str, int]) -> dict[str, int]:
    """Merge the counts of all but the 64 most frequent unread keys into one count."""
    rest = f"{UNREAD_KEYS_COUNT_KEY}/{OTHERS}"
    names = sorted(
        (name for name in counts if name.startswith(f"{UNREAD_KEYS_COUNT_KEY}/") and name != rest),
        key=lambda name: (-counts[name], name),
    )
    rare = frozenset(names[_MAX_UNREAD_KEYS:])
    kept = {name: count for name, count in counts.items() if name not in rare}
    return kept | ({rest: kept.get(rest, 0) + sum(counts[name] for name in rare)} if rare else {})


def _read_blocks(shard: RowShard) -> Iterator[tuple[str, list[tuple[int, Row | Fault]]]]:
    """Yield each block as the name of its file and a list of (position, row) pairs."""
    parquet = find_object_columns(shard.pieces)
    for file, rows in itertools.groupby(read_shard(shard), key=lambda row: row.file):
        block: list[tuple[int, Row | Fault]] = []
        characters = 0
        for row in rows:
            if len(block) == _BLOCK_ROWS or characters >= _BLOCK_CHARACTERS:
                yield file, block
                block, characters = [], 0
            if isinstance(row, SourceRow):
                columns = to_json_row(row.columns, parquet[file]) if file in parquet else row.columns
                block.append((row.position, columns))
                characters += _estimate_characters(columns)
            else:
                block.append((row.row, Fault(row.reason, row.detail)))
        yield file, block


def _estimate_characters(columns: Mapping[str, object]) -> int:
    """Estimate the number of characters in the values of a row, without its keys."""
    characters = 0
    values: list[Any] = [*columns.values()]
    for value in values:
        kind = type(value)
        if kind is str:
            characters += len(value)
        elif kind is dict:
            values += value.values()
        elif kind is list:
            values += value
        else:
            characters += 1
    return characters


def _spot_check(block: NormalisedRows, rules: RowsRecipe, encoder: HarmonyEncoder) -> int:
    """Check sampled rows against tiktoken, and return their number.

    Raise OracleMismatchError if a row differs.
    """
    ids = block.batch.column("id").to_pylist()
    sample = [row for row, row_id in enumerate(ids) if is_spot_checked(row_id)]
    if sample:
        for row, what in encoding_faults(block.batch, sample, rules.loss_mode, encoder):
            raise OracleMismatchError(f"row {ids[row]}: {what}")
    return len(sample)

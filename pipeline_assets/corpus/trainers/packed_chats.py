"""Fine-tuning rows of equal length, packed from the token files of subsets.

A conversation is never cut: the best-fit algorithm places each one in a single row. Conversations longer than a row are
dropped. TRL's `DataCollatorForLanguageModeling(padding_free=True)` reads the columns as they are.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from pipeline_assets.corpus.formats.arrow_columns import to_arrow, to_numpy
from pipeline_assets.corpus.formats.npy_header import map_npy
from pipeline_assets.corpus.formats.parquet import read_columns
from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.corpus.formats.python_columns import to_column
from pipeline_assets.corpus.packing.strategies import best_fit_rows, count_best_fit_rows, count_pieces
from pipeline_assets.spine.ledger import dropped_key
from pipeline_assets.spine.staging import Receipt, StagingView

_INT_LIST = pa.list_(pa.int32())
_COLUMNS: Final = {
    "input_ids": (_INT_LIST, "Tokens of the conversations, then padding."),
    "labels": (_INT_LIST, "The same tokens; -100 where a token does not count in the loss."),
    "seq_lengths": (_INT_LIST, "Tokens of each conversation; a last number is the padding's, if any."),
    "ids": (pa.list_(pa.string()), "Split and id of each conversation."),
}
COLUMN_DESCRIPTIONS = {name: description for name, (_, description) in _COLUMNS.items()}
_SCHEMA = pa.schema([(name, kind) for name, (kind, _) in _COLUMNS.items()])
_IGNORED_LABEL, _BATCH_ROWS, _SEED = -100, 256, 1
TOO_LONG_COUNT_KEY = dropped_key("longer_than_a_row")


def pack_subset(tokens_folder: Path, folder: StagingView, path: str, seq_len: int, pad_id: int) -> Receipt:
    """Pack a subset into a file with rows of `seq_len` tokens.

    Longer conversations are dropped; if no conversation remains, no file is written. `tokens_folder` has the subset's
    token files (`subset_tokens`). `path` is relative to `folder`. `pad_id` fills the ends of rows. The receipt counts
    all conversations as `rows`, packed ones as `documents`, their tokens as `tokens` and, if any, dropped ones as
    `TOO_LONG_COUNT_KEY`.
    """
    rows = read_columns(tokens_folder / "rows.parquet")
    is_kept = to_numpy(rows["tokens"]) <= seq_len
    kept = rows.take(to_arrow(np.flatnonzero(is_kept)))
    counts = {"rows": len(rows), "documents": len(kept), "tokens": int(to_numpy(kept["tokens"]).sum())}
    counts |= {TOO_LONG_COUNT_KEY: len(rows) - len(kept)} if len(kept) < len(rows) else {}
    tables = _pack_rows(tokens_folder, kept, seq_len, pad_id)
    return Receipt([write_table(folder.path(path), path, tables, _SCHEMA)] if len(kept) else [], counts)


def _pack_rows(tokens_folder: Path, rows: pa.Table, seq_len: int, pad_id: int) -> Iterator[pa.Table]:
    """Yield packed rows, up to 256 per table; token arrays are memory-mapped."""
    tokens, loss_mask = (map_npy(tokens_folder / name) for name in ("tokens.npy", "loss_mask.npy"))
    lengths, firsts = to_numpy(rows["tokens"]).astype(np.int32), to_numpy(rows["first_token"])
    count = int(count_best_fit_rows(count_pieces(lengths, seq_len), seq_len))
    for segments in best_fit_rows(lengths, seq_len, count, _SEED):
        for begin in range(int(segments.rows[0]), int(segments.rows[-1]) + 1, _BATCH_ROWS):
            numbers = range(begin, min(begin + _BATCH_ROWS, int(segments.rows[-1]) + 1))
            packed = defaultdict[str, list[Any]](list)  # of arrays: Python lists need ten times as much
            for number in numbers:
                draws = segments.ranks[slice(*np.searchsorted(segments.rows, (number, number + 1)))]
                spans = [slice(firsts[draw], firsts[draw] + lengths[draw]) for draw in draws]
                used = int(lengths[draws].sum())
                pad_ids, no_loss = np.full(seq_len - used, pad_id, np.int32), np.zeros(seq_len - used, bool)
                ids = np.concatenate([*(tokens[span] for span in spans), pad_ids])
                in_loss = np.concatenate([*(loss_mask[span] for span in spans), no_loss])
                packed["input_ids"].append(ids.astype(np.int32))
                packed["labels"].append(np.where(in_loss, ids, _IGNORED_LABEL).astype(np.int32))
                packed["seq_lengths"].append([*lengths[draws].tolist(), *([seq_len - used] if used < seq_len else [])])
                chosen = rows.select(["split", "id"]).take(to_arrow(draws)).to_pylist()
                packed["ids"].append([f"{row['split']}/{row['id']}" for row in chosen])
            ends = to_arrow(np.arange(0, (len(numbers) + 1) * seq_len, seq_len, dtype=np.int32))
            values = (to_arrow(np.concatenate(packed[name])) for name in ("input_ids", "labels"))
            rows_of_ids = [pa.ListArray.from_arrays(ends, tokens) for tokens in values]
            lengths_and_ids = [to_column(packed[name], _SCHEMA.field(name).type) for name in ("seq_lengths", "ids")]
            yield pa.Table.from_arrays([*rows_of_ids, *lengths_and_ids], schema=_SCHEMA)

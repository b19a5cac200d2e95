"""Token files of training subsets.

    tokens/<rule>/tokens.npy      int32, shape (tokens,): concatenated rows, without padding
    tokens/<rule>/loss_mask.npy   bool, shape (tokens,): True if a token counts in the loss
    tokens/<rule>/rows.parquet    `ROWS_SCHEMA`: first token, number of tokens and loss rule of each row, in row order

`np.load(path, mmap_mode="r")` reads the arrays. A subset without rows has no files. Message bodies and the control
tokens between them are encoded separately, so that text in a body never becomes a control token.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.chat_templates.marked_text import MarkedSpans, encode_row, parse_row
from pipeline_assets.corpus.formats.arrow_columns import to_arrow, to_numpy
from pipeline_assets.corpus.formats.npy_header import write_npy_header
from pipeline_assets.corpus.formats.parquet import StoredParquet, read_columns
from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.corpus.formats.python_columns import rows_to_table
from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS, START, Refusal
from pipeline_assets.corpus.harmony.parse import ParsedText
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyEncoder
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import Window, group_by_size
from pipeline_assets.spine.staging import WORK_FOLDER, OutputFile, Receipt, StagingDir, StagingView

TOKENS_FOLDER = "tokens"
ROWS_SCHEMA = pa.schema(
    {"id": pa.string(), "split": pa.string(), "first_token": pa.int64(), "tokens": pa.int64(), "loss_rule": pa.string()}
)
_ARRAY_DTYPES = {"tokens.npy": "<i4", "loss_mask.npy": "|b1"}
_READ_COLUMNS = ["id", "text", "loss_mode", "loss_rule", "template"]
_BATCH_ROWS, _BATCH_CHARACTERS = 64, 4 << 20  # rows that are read together, characters that are encoded together
_FIX = "run `corpusmill verify` on the scored pools, then build them again"


class CountedControlTokens(NamedTuple):
    """Control tokens that count in a loss mask in addition to message bodies."""

    terminators: bool  # `<|end|>`, `<|return|>` and `<|call|>`
    headers: bool  # all tokens between author and body: recipient, channel, content type, `<|message|>`

    def loss_rule(self, body_mode: encode.LossMode) -> str:
        """Return the loss rule: `body_mode.rule`, then terminators=…, then headers=…."""
        return f"{body_mode.rule} terminators={str(self.terminators).lower()} headers={str(self.headers).lower()}"


@dataclass(frozen=True)
class _Shard:
    """File of a subset, with rows of one split."""

    name: str
    split: str  # dataset/split
    file: Path
    rows: int = 0  # so the engine does not search the shard for poison rows


def write_token_files(
    staging: StagingDir,
    subset_files: Mapping[str, Sequence[OutputFile]],
    tokenizer: Tokenizer,
    control_tokens: CountedControlTokens,
    settings: RunSettings,
) -> list[OutputFile]:
    """Write the token files of subsets from their Parquet files, in row order."""
    shards = {
        name: [
            _Shard(f"{name}-{number:05d}", file.path.partition("/")[2].rsplit("-", 3)[0], staging.path(file.path))
            for number, file in enumerate(files)
        ]
        for name, files in subset_files.items()
        if files
    }
    work = functools.partial(encode_rows, tokenizer=tokenizer, control_tokens=control_tokens)
    warm_up = functools.partial(_build_encoder_tables, tokenizer)
    receipts = run_stage("token_rows", work, [*itertools.chain(*shards.values())], staging, settings, warm_up)
    encoded = {name: [next(receipts).files for _ in subset_shards] for name, subset_shards in shards.items()}
    return [file for name, parts in encoded.items() for file in _concatenate(staging, f"{TOKENS_FOLDER}/{name}", parts)]


def _build_encoder_tables(tokenizer: Tokenizer) -> None:
    """Build the encoder's tables before workers are forked."""
    if not isinstance(tokenizer, HarmonyEncoder):
        return
    [encoded] = tokenizer.encode_controlled([b"the first text builds the tables"], CONTROL_TOKENS)
    tokenizer.decode(encoded.ids)


def encode_rows(
    shard: _Shard, window: Window, folder: StagingView, tokenizer: Tokenizer, control_tokens: CountedControlTokens
) -> Receipt:
    """Encode a shard's rows; InputError if a row's tokens do not decode to its text.

    The receipt lists three work files: token ids (int32), the loss mask (bool, one byte per token), and a `ROWS_SCHEMA`
    table, whose `first_token` is a position in the shard's token ids. The receipt counts `documents` and `tokens`.
    """
    names = [f"{WORK_FOLDER}/{TOKENS_FOLDER}/{shard.name}.{kind}" for kind in ("ids", "mask", "rows")]
    rows: list[dict[str, Any]] = []
    first_token = 0
    with DurableFile(folder.path(names[0])) as ids, DurableFile(folder.path(names[1])) as masks:
        for row, tokens, mask in _encode_rows(shard, tokenizer, control_tokens):
            ids.write(tokens.data)
            masks.write(mask.data)
            rows.append({**row, "split": shard.split, "first_token": first_token, "tokens": len(tokens)})
            first_token += len(tokens)
    files = [OutputFile.uncompressed(name, first_token, file) for name, file in zip(names, (ids, masks), strict=False)]
    files.append(write_table(folder.path(names[2]), names[2], [rows_to_table(rows, ROWS_SCHEMA)], ROWS_SCHEMA))
    return Receipt(files, {"documents": len(rows), "tokens": first_token})


def _encode_rows(
    shard: _Shard, tokenizer: Tokenizer, control_tokens: CountedControlTokens
) -> Iterator[tuple[dict[str, str], NDArray[np.int32], NDArray[np.bool_]]]:
    """Yield each row's `id` and `loss_rule` (as a dict), token ids and loss mask."""
    for batch in group_by_size(_read_rows(shard.file), lambda row: len(row["text"] or ""), _BATCH_CHARACTERS):
        names = [f"{shard.split} {row['id']}" for row in batch]
        parsed_rows = [_parse_row(row, name) for row, name in zip(batch, names, strict=True)]
        are_harmony = isinstance(tokenizer, HarmonyEncoder)
        encoded = list[encode.HarmonyTokens]()
        try:
            if are_harmony:
                encoded += encode.encode_harmony([parsed for parsed, _ in parsed_rows], tokenizer)
            else:
                for row, (parsed, mode) in zip(batch, parsed_rows, strict=True):
                    encoded.append(encode_row(parsed, row["template"], mode, tokenizer))
        except Refusal as refusal:
            number = refusal.text_index if are_harmony else len(encoded)
            raise InputError(str(refusal), names[number or 0], _FIX) from None
        for row, (parsed, mode), tokens, name in zip(batch, parsed_rows, encoded, names, strict=True):
            mask = _build_loss_mask(parsed, tokens, mode, control_tokens, tokenizer, name)
            yield {"id": row["id"], "loss_rule": control_tokens.loss_rule(mode)}, tokens.ids, mask


def _read_rows(file: Path) -> Iterator[dict[str, Any]]:
    with StoredParquet(file) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=_READ_COLUMNS):
            yield from batch.to_pylist()


def _parse_row(row: Mapping[str, Any], name: str) -> tuple[ParsedText, encode.LossMode]:
    if not row["text"]:
        raise InputError("row has no text", name, _FIX)
    try:
        return parse_row(row["text"], row["template"], row["loss_mode"], row["loss_rule"])
    except (Refusal, ValueError) as error:
        raise InputError(str(error), name, _FIX) from None


def _build_loss_mask(
    parsed: ParsedText,
    tokens: encode.HarmonyTokens,
    loss_mode: encode.LossMode,
    control_tokens: CountedControlTokens,
    tokenizer: Tokenizer,
    name: str,
) -> NDArray[np.bool_]:
    """Build a row's loss mask, shape (tokens,).

    For Harmony text, raise InputError if the tokens do not decode to the text; other text was checked during encoding.
    In text of a chat template, headers never count, and a body's terminator extends through the next special token.
    """
    mask, spans = np.zeros(len(tokens.ids), bool), []
    if isinstance(loss_mode, MarkedSpans):  # was checked when the row was encoded
        special = np.flatnonzero(np.isin(tokens.ids, [*tokenizer.special_ids.values()]))
        limits = [*tokens.bodies[1:, 0].tolist(), len(mask)]
        for number in loss_mode.message_indexes:
            start, stop = tokens.bodies[number].tolist()
            ends = special[(special >= stop) & (special < limits[number])][: control_tokens.terminators]
            mask[start : stop if not len(ends) else ends[0] + 1] = True
        return mask
    message_starts = np.flatnonzero(tokens.ids == tokenizer.special_ids[START])
    for number in encode.loss_message_indexes(parsed, loss_mode):
        message, (start, stop) = parsed.messages[number], tokens.bodies[number].tolist()
        begin = message.body.start  # in characters; start and stop are in tokens
        if control_tokens.headers:
            author = ":".join(filter(None, (message.message.role, message.message.name)))
            start = _find_stop(author, tokens.ids, int(message_starts[number]) + 1, start, tokenizer)
            begin = message.span.start + len(START) + len(author)
        mask[start : stop + control_tokens.terminators] = True  # a terminator is one token
        spans.append(parsed.text[begin : message.span.stop if control_tokens.terminators else message.body.stop])
    if tokenizer.decode(tokens.ids) != parsed.text:
        raise InputError("tokens do not decode to the row's text", name, _FIX)
    # Edges of the runs of True values, as (start, stop) pairs; False at both ends completes the outer runs.
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).reshape(-1, 2)
    if [tokenizer.decode(tokens.ids[start:stop]) for start, stop in edges.tolist()] != [*filter(None, spans)]:
        raise InputError("tokens in the loss mask do not decode to the text that counts", name, _FIX)
    return mask


def _find_stop(text: str, ids: NDArray[np.int32], start: int, stop: int, tokenizer: Tokenizer) -> int:
    """Return the first `end` at which `ids[start:end]` decodes to `text`, else `stop`."""
    return next((index for index in range(start + 1, stop) if tokenizer.decode(ids[start:index]) == text), stop)


def _concatenate(staging: StagingDir, folder: str, shard_files: Sequence[Sequence[OutputFile]]) -> Iterator[OutputFile]:
    total = sum(part[0].rows for part in shard_files)
    for index, (name, kind) in enumerate(_ARRAY_DTYPES.items()):
        with DurableFile(staging.path(f"{folder}/{name}")) as file:
            write_npy_header(file, kind, (total,))
            for part in shard_files:
                file.append(staging.path(part[index].path), part[index].bytes, part[index].sha256)
        yield OutputFile.uncompressed(f"{folder}/{name}", total, file)
    firsts = itertools.accumulate((part[0].rows for part in shard_files), initial=0)
    column = ROWS_SCHEMA.get_field_index("first_token")
    tables = (
        rows.set_column(column, ROWS_SCHEMA[column], to_arrow(to_numpy(rows[column]) + first))
        for rows, first in zip((read_columns(staging.path(part[2].path)) for part in shard_files), firsts, strict=False)
    )
    yield write_table(staging.path(f"{folder}/rows.parquet"), f"{folder}/rows.parquet", tables, ROWS_SCHEMA)

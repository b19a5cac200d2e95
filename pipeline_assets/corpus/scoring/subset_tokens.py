"""Token files of training subsets."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.arrow_columns import nullable, numbers, to_array
from pipeline_assets.corpus.formats.memmap import write_npy_header
from pipeline_assets.corpus.formats.parquet import open_parquet, read_columns, write_table
from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import START, STRUCTURE, Refusal
from pipeline_assets.corpus.harmony.parse import ParsedText, parse_harmony
from pipeline_assets.corpus.scoring.token_rows import _BATCH_CHARACTERS, _BATCH_ROWS
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder
from pipeline_assets.spine.durable import DurableFile
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import Window, grouped_by_size
from pipeline_assets.spine.staging import WORK, OutputFile, Receipt, StagingDir, StagingView

TOKENS = "tokens"
ROWS = pa.schema(
    {"id": pa.string(), "split": pa.string(), "first_token": pa.int64(), "tokens": pa.int64(), "loss_rule": pa.string()}
)
_ARRAYS = {"tokens.npy": "<i4", "loss_mask.npy": "|b1"}
_COLUMNS = ["id", "text", "loss_mode", "loss_rule"]
_FIX = "run `corpusmill verify` on what was scored, then build it again"


class TokenLoss(NamedTuple):
    """Tokens of a counting message that count in a loss mask, in addition to its body.

    Attributes:
        terminators: `<|end|>`, `<|return|>` and `<|call|>`.
        headers: all tokens from the author to the body, `<|message|>` included: recipient, channel, content type.
    """

    terminators: bool
    headers: bool

    def rule(self, bodies: encode.LossMode) -> str:
        """Return the loss rule of a row, which extends the rule of its bodies."""
        return f"{bodies.rule} terminators={str(self.terminators).lower()} headers={str(self.headers).lower()}"


@dataclass(frozen=True)
class _Shard:
    """File of a subset, with rows of one split, `dataset/split`."""

    name: str
    split: str
    file: Path
    rows: int = 0  # a file is read whole


def write_token_files(
    building: StagingDir,
    subsets: Mapping[str, Sequence[OutputFile]],
    encoder: Encoder,
    loss: TokenLoss,
    settings: RunSettings,
) -> list[OutputFile]:
    """The files above.

    Args:
        subsets: their files by name, `subset_<rule>/<dataset>/<split>-00000-of-0000N.parquet`, in the order of rows.
        loss: tokens that count in addition to bodies.
    Raises:
        InputError: a row's text is no Harmony, its loss isn't known, or its tokens don't decode to what they should.
    """
    shards = {
        name: [
            _Shard(f"{name}-{number:05d}", file.path.partition("/")[2].rsplit("-", 3)[0], building.path(file.path))
            for number, file in enumerate(files)
        ]
        for name, files in subsets.items()
        if files
    }
    work, warm_up = functools.partial(encode_rows, encoder=encoder, loss=loss), functools.partial(_load, encoder)
    receipts = run_stage("token_rows", work, [*itertools.chain(*shards.values())], building, settings, warm_up)
    encoded = {name: [next(receipts).files for _ in of_subset] for name, of_subset in shards.items()}
    return [file for name, parts in encoded.items() for file in _gathered(building, f"{TOKENS}/{name}", parts)]


def _load(encoder: Encoder) -> None:
    """Build the tables that encode and decode rows."""
    [encoded] = encoder.encode_controlled([b"the first text builds the tables"], STRUCTURE)
    encoder.decode(encoded.ids)


def encode_rows(shard: _Shard, window: Window, folder: StagingView, encoder: Encoder, loss: TokenLoss) -> Receipt:
    """Encode the rows of a subset's file, and decode each row to check it.

    The receipt's work files, in order: token ids (int32), loss mask (bool, one byte per token), `ROWS` from token 0 on.
    Its counts: `documents`, `tokens`.

    Args:
        window: unused, because a file is read whole.
    """
    names = [f"{WORK}/{TOKENS}/{shard.name}.{kind}" for kind in ("ids", "mask", "rows")]
    rows: list[dict[str, Any]] = []
    first_token = 0
    with DurableFile(folder.path(names[0])) as ids, DurableFile(folder.path(names[1])) as masks:
        for row, run, mask in _encoded(shard, encoder, loss):
            ids.write(run.data)
            masks.write(mask.data)
            rows.append({**row, "split": shard.split, "first_token": first_token, "tokens": len(run)})
            first_token += len(run)
    files = [OutputFile.plain(name, first_token, file) for name, file in zip(names, (ids, masks), strict=False)]
    table = pa.table({one.name: nullable([row[one.name] for row in rows], one.type) for one in ROWS}, ROWS)
    files.append(write_table(folder.path(names[2]), names[2], [table], ROWS))
    return Receipt(files, {"documents": len(rows), "tokens": first_token})


def _encoded(
    shard: _Shard, encoder: Encoder, loss: TokenLoss
) -> Iterator[tuple[dict[str, str], NDArray[np.int32], NDArray[np.bool_]]]:
    """Yield id and loss rule of each row, its token ids and its loss mask, both of shape (tokens,)."""
    for batch in grouped_by_size(_rows(shard.file), lambda row: len(row["text"] or ""), _BATCH_CHARACTERS):
        names = [f"{shard.split} {row['id']}" for row in batch]
        said = [_read(row, name) for row, name in zip(batch, names, strict=True)]
        try:
            encoded = encode.encode_harmony([parsed for parsed, _ in said], encoder)
        except Refusal as refusal:
            raise InputError(str(refusal), names[refusal.message or 0], _FIX) from None
        for row, (parsed, mode), tokens, name in zip(batch, said, encoded, names, strict=True):
            mask = _checked_mask(parsed, tokens, mode, loss, encoder, name)
            yield {"id": row["id"], "loss_rule": loss.rule(mode)}, tokens.ids, mask


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with open_parquet(file) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=_COLUMNS, use_threads=False):
            yield from batch.to_pylist()


def _read(row: Mapping[str, Any], name: str) -> tuple[ParsedText, encode.LossMode]:
    if not row["text"]:
        raise InputError("it has no text", name, _FIX)
    try:
        return parse_harmony(row["text"]), encode.row_loss_mode(row["loss_mode"], row["loss_rule"])
    except (Refusal, ValueError) as error:
        raise InputError(str(error), name, _FIX) from None


def _checked_mask(
    parsed: ParsedText,
    tokens: encode.HarmonyTokens,
    mode: encode.LossMode,
    loss: TokenLoss,
    encoder: Encoder,
    name: str,
) -> NDArray[np.bool_]:
    """Which tokens count, shape (tokens,); all, and those that count, decode to what they should."""
    mask, spans = np.zeros(len(tokens.ids), bool), []
    opened = np.flatnonzero(tokens.ids == encoder.special_ids[START])
    for number in encode.loss_messages(parsed, mode):
        place, (start, stop) = parsed.messages[number], tokens.bodies[number].tolist()
        begin = place.body.start
        if loss.headers:
            author = ":".join(filter(None, (place.message.role, place.message.name)))
            start = _after(author, tokens.ids, int(opened[number]) + 1, start, encoder)
            begin = place.span.start + len(START) + len(author)
        mask[start : stop + loss.terminators] = True
        spans.append(parsed.text[begin : place.span.stop if loss.terminators else place.body.stop])
    if encoder.decode(tokens.ids) != parsed.text:
        raise InputError("its tokens don't decode to its text", name, _FIX)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).reshape(-1, 2)
    if [encoder.decode(tokens.ids[start:stop]) for start, stop in edges.tolist()] != [*filter(None, spans)]:
        raise InputError("the tokens that count don't decode to the text that does", name, _FIX)
    return mask


def _after(text: str, ids: NDArray[np.int32], start: int, stop: int, encoder: Encoder) -> int:
    """Return the place of the token after a text that begins at `start`, at most `stop`."""
    return next((place for place in range(start + 1, stop) if encoder.decode(ids[start:place]) == text), stop)


def _gathered(building: StagingDir, folder: str, parts: Sequence[Sequence[OutputFile]]) -> Iterator[OutputFile]:
    total = sum(part[0].rows for part in parts)
    for place, (name, kind) in enumerate(_ARRAYS.items()):
        with DurableFile(building.path(f"{folder}/{name}")) as file:
            write_npy_header(file, kind, (total,))
            for part in parts:
                file.append(building.path(part[place].path), part[place].bytes)
        yield OutputFile.plain(f"{folder}/{name}", total, file)
    firsts = itertools.accumulate((part[0].rows for part in parts), initial=0)
    place = ROWS.get_field_index("first_token")
    tables = (
        rows.set_column(place, ROWS[place], to_array(numbers(rows[place]) + first))
        for rows, first in zip((read_columns(building.path(part[2].path)) for part in parts), firsts, strict=False)
    )
    yield write_table(building.path(f"{folder}/rows.parquet"), f"{folder}/rows.parquet", tables, ROWS)

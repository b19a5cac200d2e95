"""The rows of a subset as tokens, for trainers.

    tokens/<rule>/tokens.npy      int32, shape (tokens,): the rows one after the other, nothing between
    tokens/<rule>/loss_mask.npy   bool, the same shape: True where a token counts in the loss
    tokens/<rule>/rows.parquet    `ROWS`: where each row begins and how long it is, in their order

`np.load(path, mmap_mode="r")` reads them. A subset without rows has no files. Bodies, and what stands between them, are
encoded apart, and masked by their tokens: no text can become a control token, nor a control token text.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline_assets.corpus.formats.memmap import write_npy_header
from pipeline_assets.corpus.formats.parquet import open_parquet, read_columns, repeated, table_of, write_table
from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import Refusal
from pipeline_assets.corpus.harmony.parse import ParsedText, parse_harmony
from pipeline_assets.corpus.spine.durable import DurableFile
from pipeline_assets.corpus.spine.engine import RunSettings, run_stage
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.staging import WORK, BuildFolder, OutputFile, Receipt, StagingDir
from pipeline_assets.corpus.spine.worker import Window, grouped_by_size
from pipeline_assets.corpus.tokens.o200k_harmony import Encoder

TOKENS = "tokens"
ROWS = pa.schema([("id", pa.string()), ("split", pa.string()), ("first_token", pa.int64()), ("tokens", pa.int64())])
_ARRAYS = {"tokens.npy": "<i4", "loss_mask.npy": "|b1"}
_COLUMNS = ["id", "text", "loss_mode", "loss_rule"]
_BATCH_ROWS, _BATCH_CHARACTERS = 64, 4 << 20  # that are read, and encoded, together
_FIX = "run `corpusmill verify` on what was scored, then build it again"


@dataclass(frozen=True)
class _Shard:
    """A file of a subset on its way to tokens, its rows of one split, `dataset/split`."""

    name: str
    split: str
    file: Path
    rows: int = 0  # a file is read whole


def write_token_files(
    building: StagingDir, subsets: Mapping[str, Sequence[OutputFile]], encoder: Encoder, settings: RunSettings
) -> list[OutputFile]:
    """The files above.

    Args:
        subsets: their files by name, `subset_<rule>/<dataset>/<split>-00000-of-0000N.parquet`, in the order of rows.
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
    work, warm_up = functools.partial(encode_rows, encoder=encoder), functools.partial(_load, encoder)
    receipts = run_stage("tokens", work, [*itertools.chain(*shards.values())], building, settings, warm_up)
    encoded = {name: [next(receipts).files for _ in of_subset] for name, of_subset in shards.items()}
    return [file for name in shards for file in _gathered(building, f"{TOKENS}/{name}", shards[name], encoded[name])]


def _load(encoder: Encoder) -> None:
    """What every row needs: the tables that encode, and those that decode."""
    encoder.decode(encoder.encode(["the first text builds the tables"]).ids)


def encode_rows(shard: _Shard, window: Window, folder: BuildFolder, encoder: Encoder) -> Receipt:
    """Work files, in this order: ids, int32; what counts, bool; how many tokens each row has, int64. Every row is
    decoded again. Counts: `documents`, `tokens`.

    Args:
        window: has no part in this: a file is read whole.
    """
    names = [f"{WORK}/{TOKENS}/{shard.name}.{kind}" for kind in ("ids", "mask", "lengths")]
    lengths: list[int] = []
    with DurableFile(folder.path(names[0])) as ids, DurableFile(folder.path(names[1])) as masks:
        for run, mask in _encoded(shard, encoder):
            ids.write(run.data)
            masks.write(mask.data)
            lengths.append(len(run))
    with DurableFile(folder.path(names[2])) as rows:
        rows.write(np.array(lengths, "<i8").tobytes())
    files = [OutputFile.plain(name, sum(lengths), file) for name, file in zip(names, (ids, masks, rows), strict=True)]
    return Receipt(files, {"documents": len(lengths), "tokens": sum(lengths)})


def _encoded(shard: _Shard, encoder: Encoder) -> Iterator[tuple[NDArray[np.int32], NDArray[np.bool_]]]:
    """The ids of each row, and which of them count; both of shape (tokens,)."""
    for batch in grouped_by_size(_rows(shard.file), lambda row: len(row["text"] or ""), _BATCH_CHARACTERS):
        names = [f"{shard.split} {row['id']}" for row in batch]
        said = [_read(row, name) for row, name in zip(batch, names, strict=True)]
        try:
            encoded = encode.encode_harmony([parsed for parsed, _ in said], encoder)
        except Refusal as refusal:
            raise InputError(str(refusal), names[refusal.message or 0], _FIX) from None
        for (parsed, mode), tokens, name in zip(said, encoded, names, strict=True):
            yield tokens.ids, _checked_mask(parsed, tokens, mode, encoder, name)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with open_parquet(file) as parquet:
        for batch in parquet.iter_batches(_BATCH_ROWS, columns=_COLUMNS, use_threads=False):
            yield from batch.to_pylist()


def _read(row: Mapping[str, Any], name: str) -> tuple[ParsedText, encode.LossMode]:
    if not row["text"]:
        raise InputError("it has no text", name, _FIX)
    try:
        return parse_harmony(row["text"]), encode.loss_mode_of(row["loss_mode"], row["loss_rule"])
    except (Refusal, ValueError) as error:
        raise InputError(str(error), name, _FIX) from None


def _checked_mask(
    parsed: ParsedText, tokens: encode.HarmonyTokens, mode: encode.LossMode, encoder: Encoder, name: str
) -> NDArray[np.bool_]:
    """Which tokens count, shape (tokens,).

    Raises:
        InputError: the tokens don't decode to the text, or those that count to the bodies that do.
    """
    mask = np.zeros(len(tokens.ids), bool)
    for start, stop in tokens.bodies[encode.loss_messages(parsed, mode)].tolist():
        mask[start:stop] = True
    if encoder.decode(tokens.ids) != parsed.text:
        raise InputError("its tokens don't decode to its text", name, _FIX)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]]).astype(np.int8))).reshape(-1, 2)
    spans = [parsed.text[start:stop] for start, stop in encode.loss_spans(parsed, mode) if stop > start]
    if [encoder.decode(tokens.ids[start:stop]) for start, stop in edges.tolist()] != spans:
        raise InputError("the tokens that count don't decode to the bodies that do", name, _FIX)
    return mask


def _gathered(
    building: StagingDir, folder: str, shards: Sequence[_Shard], parts: Sequence[Sequence[OutputFile]]
) -> Iterator[OutputFile]:
    """The files of a subset, from those of its parts."""
    total = sum(part[0].rows for part in parts)
    for place, (name, kind) in enumerate(_ARRAYS.items()):
        with DurableFile(building.path(f"{folder}/{name}")) as file:
            write_npy_header(file, kind, (total,))
            for part in parts:
                file.append(building.path(part[place].path), part[place].bytes)
        yield OutputFile.plain(f"{folder}/{name}", total, file)
    firsts = itertools.accumulate((part[0].rows for part in parts), initial=0)
    lengths = [np.fromfile(building.path(part[2].path), "<i8") for part in parts]
    rows = (_places(shard, of, first) for shard, of, first in zip(shards, lengths, firsts, strict=False))
    yield write_table(building.path(f"{folder}/rows.parquet"), f"{folder}/rows.parquet", rows, ROWS)


def _places(shard: _Shard, lengths: NDArray[np.int64], first: int) -> pa.Table:
    """`ROWS` of a part whose first token is `first`."""
    said = {"id": read_columns(shard.file, ["id"])["id"], "split": repeated(shard.split, len(lengths))}
    return table_of({**said, "first_token": first + np.cumsum(lengths) - lengths, "tokens": lengths})

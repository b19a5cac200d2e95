"""Rows as tokens: as a model reads those of pools, and, of a subset, as files for trainers.

    tokens/<rule>/tokens.npy      int32, shape (tokens,): the rows one after the other, nothing between
    tokens/<rule>/loss_mask.npy   bool, the same shape: True where a token counts in the loss
    tokens/<rule>/rows.parquet    `ROWS`: where each row begins, how long it is and its loss rule, in their order

`np.load(path, mmap_mode="r")` reads them. A subset without rows has no files. Bodies, and what stands between them, are
encoded apart, and masked by their tokens: no text can become a control token, nor a control token text.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import END, STRUCTURE, Refusal
from pipeline_assets.corpus.harmony.parse import parse_harmony
from pipeline_assets.corpus.tokens.hf_tokenizer import load_hf_tokenizer
from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses
from pipeline_assets.corpus.tokens.tokenizer import FileTokenizerRecipe, Tokenizer
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256

TOKENIZER_FILE = "tokenizer.json"
NO_TEXT = "no_text"
NO_COMPLETION = "no_completion"
NO_COMPLETION_LEFT = "no_completion_left"
UNKNOWN_LOSS_MODE = "unknown_loss_mode"
_CUT_CHARACTER = "\N{REPLACEMENT CHARACTER}"
_BATCH_ROWS, _BATCH_CHARACTERS = 64, 4 << 20  # that are read, and encoded, together


@dataclass(frozen=True)
class TokenRow:
    """A row as a model reads it.

    Attributes:
        ids: shape (tokens,).
        counts: whether the token's NLL counts, shape (tokens,); never of the first, which nothing predicts.
    """

    ids: NDArray[np.int32]
    counts: NDArray[np.bool_]


_NO_TOKENS = TokenRow(np.empty(0, np.int32), np.empty(0, bool))


@dataclass(frozen=True)
class EncodedRow:
    """A row's tokens, as many as a model takes.

    Attributes:
        completion_bytes: UTF-8 bytes of the tokens that count.
        tokens_lost: tokens that were cut off at the end.
        losses: what the tokenizer loses of the row's text.
        reason: why nothing of it could be scored: `no_text`, `unknown_loss_mode`, `no_completion` (it is all prompt),
            `no_completion_left` (it was cut off), or why its text is no Harmony, by the code of the `Refusal`.
    """

    tokens: TokenRow = _NO_TOKENS
    completion_bytes: int = 0
    tokens_lost: int = 0
    losses: Losses = NO_LOSSES
    reason: str | None = None


def encode_row(
    text: str | None, loss_mode: str | None, loss_rule: str | None, tokenizer: Tokenizer, max_length: int
) -> EncodedRow:
    """A row's tokens, each message's body encoded by itself, and which of them count: see `encode_harmony`."""
    if not text:
        return EncodedRow(reason=NO_TEXT)
    try:
        mode = encode.row_loss_mode(loss_mode, loss_rule)
    except ValueError:
        return EncodedRow(reason=UNKNOWN_LOSS_MODE)
    try:
        parsed = parse_harmony(text)
        [encoded] = encode.encode_harmony([parsed], tokenizer)
    except Refusal as refusal:
        return EncodedRow(reason=refusal.reason)
    counts, size = np.zeros(len(encoded.ids), bool), 0
    for number in encode.loss_messages(parsed, mode):
        start, stop = encoded.bodies[number].tolist()
        counts[start:stop] = True
        if stop <= max_length:
            size += len(parsed.messages[number].message.content.encode())
        elif start < max_length:
            size += len(tokenizer.decode(encoded.ids[start:max_length]).rstrip(_CUT_CHARACTER).encode())
    kept = TokenRow(encoded.ids[:max_length], counts[:max_length])
    reason = None if kept.counts.any() else NO_COMPLETION_LEFT if counts.any() else NO_COMPLETION
    return EncodedRow(kept, size, max(len(encoded.ids) - max_length, 0), encoded.losses, reason)


def load_model_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a model, which must know Harmony's control tokens.

    Raises:
        InputError: there is none that can be read, or it lacks a control token: then every text would be read wrong.
    """
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        fix = "choose a model that has one, or set `scoring.tokenizer` to o200k_harmony if it was trained with that"
        raise InputError("the model has no tokenizer.json", folder, fix)
    try:
        added: list[dict[str, Any]] = json.loads(path.read_bytes()).get("added_tokens") or []
    except (ValueError, AttributeError) as error:
        raise InputError(f"this is no tokenizer.json ({error})", path, "give all files of the model") from None
    special = {token["content"] for token in added if token.get("special")}
    missing = [control for control in STRUCTURE if control not in special]
    if missing:
        what = f"its tokenizer has no special token {', '.join(missing)}, and rows are Harmony texts"
        fix = "give a model that was trained on Harmony, or add these tokens to its tokenizer and its embeddings"
        raise InputError(what, folder, fix)
    recipe = FileTokenizerRecipe(family="hf_tokenizer", sha256=file_sha256(path), end_of_document=END)
    return load_hf_tokenizer(recipe, path)

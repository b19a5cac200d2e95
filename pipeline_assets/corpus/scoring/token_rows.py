"""Rows of pools, converted to the tokens that a scoring model reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.chat_templates import marked_text
from pipeline_assets.corpus.harmony import encode
from pipeline_assets.corpus.harmony.message import Refusal
from pipeline_assets.corpus.tokens.losses import NO_LOSSES, Losses
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer

NO_TEXT = "no_text"
NO_COMPLETION = "no_completion"
NO_COMPLETION_LEFT = "no_completion_left"
UNKNOWN_LOSS_MODE = "unknown_loss_mode"
_REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class TokenRow:
    """Row as a model reads it: token ids, and whether the NLL of each counts.

    The tokens that count are the completion: the message bodies that the row's loss mode selects. The first token never
    counts: nothing predicts it.
    """

    ids: NDArray[np.int32]  # shape (tokens,)
    in_loss: NDArray[np.bool_]  # shape (tokens,)


_NO_TOKENS = TokenRow(np.empty(0, np.int32), np.empty(0, bool))


@dataclass(frozen=True)
class EncodedRow:
    """Tokens of a row, truncated to the maximum length.

    `reason` states why no token is in the loss: `no_text`, `unknown_loss_mode`, `no_completion` (only a prompt),
    `no_completion_left` (completion cut off), or the `Refusal.reason` of an invalid text.
    """

    tokens: TokenRow = _NO_TOKENS
    completion_bytes: int = 0  # UTF-8 bytes of the tokens in the loss
    tokens_lost: int = 0  # cut off at the end
    encoding_losses: Losses = NO_LOSSES  # text that the tokenizer lost, including text that was then cut off
    reason: str | None = None


def encode_row(
    text: str | None,
    loss_mode: str | None,
    loss_rule: str | None,
    tokenizer: Tokenizer,
    max_length: int,
    template: str | None = None,
) -> EncodedRow:
    """Encode a row, cut it to `max_length` tokens, and mark the tokens in the loss.

    `text`, `loss_mode`, `loss_rule` and `template` are columns of the row; see `marked_text.parse_row`. Raise
    InputError if `tokenizer` is not the tokenizer of the chat template, or lacks control tokens of a Harmony text.
    """
    if not text:
        return EncodedRow(reason=NO_TEXT)
    try:
        parsed, mode = marked_text.parse_row(text, template, loss_mode, loss_rule)
    except ValueError:
        return EncodedRow(reason=UNKNOWN_LOSS_MODE)
    except Refusal as refusal:
        return EncodedRow(reason=refusal.reason)
    try:
        encoded = marked_text.encode_row(parsed, template, mode, tokenizer)
    except Refusal as refusal:
        return EncodedRow(reason=refusal.reason)
    in_loss, completion_bytes = np.zeros(len(encoded.ids), bool), 0
    for number in encode.loss_message_indexes(parsed, mode):
        start, stop = encoded.bodies[number].tolist()
        in_loss[start:stop] = True
        if stop <= max_length:
            completion_bytes += len(text[slice(*parsed.messages[number].body)].encode())
        elif start < max_length:
            # The cut may divide a character, whose first bytes decode to replacement characters.
            completion = tokenizer.decode(encoded.ids[start:max_length]).rstrip(_REPLACEMENT_CHARACTER)
            completion_bytes += len(completion.encode())
    kept = TokenRow(encoded.ids[:max_length], in_loss[:max_length])
    reason = None if kept.in_loss.any() else NO_COMPLETION_LEFT if in_loss.any() else NO_COMPLETION
    return EncodedRow(kept, completion_bytes, max(len(encoded.ids) - max_length, 0), encoded.losses, reason)

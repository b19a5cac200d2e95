"""Pool rows as tokens, as the scoring model reads them."""

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
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.files import file_sha256

TOKENIZER_FILE = "tokenizer.json"
NO_TEXT = "no_text"
NO_COMPLETION = "no_completion"
NO_COMPLETION_LEFT = "no_completion_left"
UNKNOWN_LOSS_MODE = "unknown_loss_mode"
_CUT_CHARACTER = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class TokenRow:
    """Row as a model reads it.

    Attributes:
        ids: Token ids, shape (tokens,).
        counts: Whether the NLL of each token counts, shape (tokens,). The tokens that count are the completion: the
            message bodies that the row's loss mode selects. The first token never counts: nothing predicts it.
    """

    ids: NDArray[np.int32]
    counts: NDArray[np.bool_]


_NO_TOKENS = TokenRow(np.empty(0, np.int32), np.empty(0, bool))


@dataclass(frozen=True)
class EncodedRow:
    """Tokens of a row, truncated to the maximum length.

    Attributes:
        completion_bytes: UTF-8 bytes of the tokens that count.
        tokens_lost: Number of tokens that were cut off at the end.
        losses: Text that the tokenizer lost.
        reason: Reason why nothing can be scored; None if some token counts: `no_text`, `unknown_loss_mode`,
            `no_completion` (only a prompt), `no_completion_left` (completion cut off), or the code of the `Refusal` if
            the text is not Harmony.
    """

    tokens: TokenRow = _NO_TOKENS
    completion_bytes: int = 0
    tokens_lost: int = 0
    losses: Losses = NO_LOSSES
    reason: str | None = None


def encode_row(
    text: str | None, loss_mode: str | None, loss_rule: str | None, tokenizer: Tokenizer, max_length: int
) -> EncodedRow:
    """Encode a row as Harmony, cut it at `max_length`, and mark the tokens that count.

    `text`, `loss_mode` and `loss_rule` are columns of the row, see `encode.row_loss_mode`.
    """
    if not text:
        return EncodedRow(reason=NO_TEXT)
    try:
        mode = encode.row_loss_mode(loss_mode, loss_rule)
        parsed = parse_harmony(text)
        counting = encode.loss_messages(parsed, mode)
    except ValueError:
        return EncodedRow(reason=UNKNOWN_LOSS_MODE)
    except Refusal as refusal:
        return EncodedRow(reason=refusal.reason)
    try:
        [encoded] = encode.encode_harmony([parsed], tokenizer)
    except Refusal as refusal:
        return EncodedRow(reason=refusal.reason)
    counts, size = np.zeros(len(encoded.ids), bool), 0
    for number in counting:
        start, stop = encoded.bodies[number].tolist()
        counts[start:stop] = True
        if stop <= max_length:
            size += len(parsed.messages[number].message.content.encode())
        elif start < max_length:
            # The cut may divide a character, whose first bytes decode to replacement characters.
            size += len(tokenizer.decode(encoded.ids[start:max_length]).rstrip(_CUT_CHARACTER).encode())
    kept = TokenRow(encoded.ids[:max_length], counts[:max_length])
    reason = None if kept.counts.any() else NO_COMPLETION_LEFT if counts.any() else NO_COMPLETION
    return EncodedRow(kept, size, max(len(encoded.ids) - max_length, 0), encoded.losses, reason)


def load_model_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a model, which must have Harmony's control tokens."""
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        fix = "choose a model that has one, or set `scoring.tokenizer` to o200k_harmony if it was trained with that"
        raise InputError("the model has no tokenizer.json", folder, fix)
    try:
        added: list[dict[str, Any]] = json.loads(path.read_bytes()).get("added_tokens") or []
    except (ValueError, AttributeError) as error:
        fix = "use a folder with all files of the model"
        raise InputError(f"not a valid tokenizer.json ({error})", path, fix) from None
    # Without the id of a control token, every text would be misread.
    special = {token["content"] for token in added if token.get("special")}
    missing = [control for control in STRUCTURE if control not in special]
    if missing:
        what = f"the model's tokenizer lacks the special tokens {', '.join(missing)} of Harmony"
        fix = "use a model that was trained on Harmony, or add these tokens to its tokenizer and its embeddings"
        raise InputError(what, folder, fix)
    recipe = FileTokenizerRecipe(family="hf_tokenizer", sha256=file_sha256(path), end_of_document=END)
    return load_hf_tokenizer(recipe, path)

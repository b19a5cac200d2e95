"""Tokenizers of a `tokenizer.json`.

Text is encoded as ordinary text: no template, no truncation, no padding, whatever the file says of them, and special
tokens by their characters. Where a model gives a special id all the same, `holds_special` tells.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.losses import LossCounter
from pipeline_assets.corpus.tokens.tokenizer import FileTokenizerRecipe, Tokenizer, TokenRuns, read_pinned
from pipeline_assets.spine.errors import InputError, UsageError, bare
from pipeline_assets.spine.install_hints import not_installed

if TYPE_CHECKING:
    import tokenizers

_HF_FIX = "give the path of a tokenizer.json"
_MAX_IDS = 2**31
# Steps of a normaliser or a pre-tokenizer that can remove characters that aren't blank: not one that replaces blanks.
_REMOVES_TEXT = re.compile(
    r'"(Removed|StripAccents|BertNormalizer|CharDelimiterSplit)"|"Replace", "pattern": (?!\{"String": " "\})'
)


class HfTokenizer(Tokenizer):
    """Text to ids, in one thread."""

    driver = "tokenizers"

    def __init__(
        self,
        library: "tokenizers.Tokenizer",
        path: Path,
        end_of_document: int,
        padding: int,
        special: set[int],
        special_ids: Mapping[str, int],
        losses: LossCounter | None,
    ) -> None:
        """
        Args:
            path: what it was loaded from.
            special: ids that only a builder may write, among them those of the end and of padding.
            losses: counts what the file loses of texts; None if it cannot lose any.
        """
        self.special_ids = special_ids
        self.end_of_document = end_of_document
        self.padding = padding
        self._path, self._losses = path, losses
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        self._library = library
        self.vocabulary_size = max(library.get_vocab(with_added_tokens=True).values()) + 1
        self._is_special = np.zeros(self.vocabulary_size, bool)
        self._is_special[list(special)] = True

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Ids of each text, one by one: a batch would take threads of its own in every worker.

        Raises:
            InputError: the library can't encode one by this file, as where the unknown token is not in the vocabulary.
        """
        try:
            runs = [self._library.encode(text, add_special_tokens=False).ids for text in texts]
        except Exception as error:  # the library raises no narrower one
            fix = "give a tokenizer.json that has an id for every text"
            raise InputError(f"it can't encode a text ({error})", self._path, fix) from None
        return TokenRuns.from_lists(runs, sum(len(text.encode()) for text in texts)).counted_by(self._losses, texts)

    def decode(self, ids: NDArray[np.int32]) -> str:
        return str(self._library.decode(ids.tolist(), skip_special_tokens=False))

    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        return bool(self._is_special[ids].any())


def load_hf_tokenizer(recipe: FileTokenizerRecipe, path: Path) -> HfTokenizer:
    """Errors as `load_tokenizer`; a file that encodes at random, or whose ids are odd, is an InputError too."""
    data = read_pinned(path, recipe.sha256, _HF_FIX)
    try:
        import tokenizers
    except ImportError as error:
        raise not_installed(error, "tokenizers") from None
    try:
        library = tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises no narrower one
        raise InputError(f"this is no tokenizer.json ({error})", path, _HF_FIX) from None
    content, vocabulary = json.loads(data), library.get_vocab(with_added_tokens=True)
    added = content.get("added_tokens") or []
    _refuse_odd_ids(added, vocabulary, path)
    if content["model"].get("dropout"):
        raise InputError("it drops merges at random (model.dropout)", path, "give a file without dropout")
    special = {token["content"]: int(token["id"]) for token in added if token["special"]}
    if recipe.end_of_document not in special:
        what = f"{recipe.end_of_document!r} is no special token of {path.name}"
        known = ", ".join(list(special)[:5]) or "none"
        raise UsageError(
            what, bare("pack.tokenizer.end_of_document"), f"name the one that ends a document; it has {known}"
        )
    end = special[recipe.end_of_document]
    model = content["model"]
    unknown = model.get("unk_id")  # what content gives that the vocabulary lacks; -1 where there is none
    unknown = vocabulary.get(model.get("unk_token") or "", -1) if unknown is None else int(unknown)
    never_text, losses = set(special.values()) - {unknown}, _hf_losses(content, library, vocabulary, unknown)
    padding = _padding_id(library, vocabulary, path)
    padding = padding if padding in never_text else end
    return HfTokenizer(library, path, end, padding, never_text | {end}, special, losses)


def _padding_id(library: "tokenizers.Tokenizer", vocabulary: dict[str, int], path: Path) -> int | None:
    """The id that the file pads with, None without one. It may be any token: the library pads with 0 where nobody says
    otherwise.
    """
    if library.padding is None:
        return None
    padding, largest = int(library.padding["pad_id"]), max(vocabulary.values())
    if padding > largest:
        what = f"it pads with the id {padding}, and its largest id is {largest}"
        raise InputError(
            what, path, "give a file whose `padding.pad_id` is the id of a special token, or without padding"
        )
    return padding


def _refuse_odd_ids(added: Sequence[dict[str, Any]], vocabulary: dict[str, int], path: Path) -> None:
    """After a gap the library gives an added token another id than the file."""
    for token in added:
        if vocabulary.get(token["content"]) != token["id"]:
            what = (
                f"{token['content']!r} has the id {token['id']} there, {vocabulary.get(token['content'])} once loaded"
            )
            raise InputError(what, path, "give a file whose ids have no gap")
    if not vocabulary or max(vocabulary.values()) >= _MAX_IDS:
        what = f"its largest id is {max(vocabulary.values(), default=None)}"
        raise InputError(what, path, f"give a tokenizer with ids below {_MAX_IDS:,}: tokens are int32")


def _hf_losses(
    content: dict[str, Any], library: "tokenizers.Tokenizer", vocabulary: dict[str, int], unknown: int
) -> LossCounter | None:
    """What counts the losses of a tokenizer.json; None if it has a token for every byte, and removes no text."""
    from tokenizers.pre_tokenizers import ByteLevel

    model, steps = content["model"], json.dumps([content.get("normalizer"), content.get("pre_tokenizer")])
    byte_tokens = (
        {f"<0x{byte:02X}>" for byte in range(256)} if model.get("byte_fallback") else set(ByteLevel.alphabet())
    )
    has_bytes = model.get("byte_fallback") or ("merges" in model and '"ByteLevel"' in steps)
    removes = _REMOVES_TEXT.search(steps) is not None
    if has_bytes and vocabulary.keys() >= byte_tokens and not removes:
        return None
    decode = functools.partial(library.decode, skip_special_tokens=False)
    return LossCounter(unknown, decode, drops=removes or ("merges" in model and unknown < 0))

"""Tokenizers from a `tokenizer.json`.

The file's template, truncation and padding are not applied. If a text contains the name of a special token, `encode`
treats the name like other text; only `encode_with_offsets` uses the special id. Some tokenizers also encode plain text
to special ids; `contains_special` detects these ids.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.harmony.message import CONTROL_TOKENS, END
from pipeline_assets.corpus.tokens.loss_counter import LossCounter, with_losses
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe, read_pinned
from pipeline_assets.corpus.tokens.token_runs import TokenRuns
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError, one_line
from pipeline_assets.spine.files import file_sha256
from pipeline_assets.spine.install_hints import not_installed_error

if TYPE_CHECKING:
    import tokenizers

TOKENIZER_FILE = "tokenizer.json"
_FIX = "put the tokenizer.json there, or correct its path"
_MAX_IDS = 2**31
# Steps of a normalizer or pre-tokenizer that can remove characters other than spaces; one that replaces spaces cannot.
_TEXT_REMOVAL_PATTERN = re.compile(
    r'"(Removed|StripAccents|BertNormalizer|CharDelimiterSplit)"|"Replace", "pattern": (?!\{"String": " "\})'
)


class HfTokenizer(Tokenizer):
    """Single-threaded tokenizer that was loaded from a `tokenizer.json`."""

    driver = "tokenizers"

    def __init__(
        self,
        backend: "tokenizers.Tokenizer",
        recipe: FileTokenizerRecipe,
        path: Path,
        special_ids: Mapping[str, int],
        padding_id: int,
        forbidden_ids: set[int],
        loss_counter: LossCounter | None,
    ) -> None:
        """Wrap a loaded tokenizer; switch off truncation, padding and special tokens.

        No text may encode to one of `forbidden_ids`. `loss_counter` is None if the tokenizer cannot lose text.
        """
        self.recipe, self.sha256, self.path = recipe, recipe.sha256, path
        self.added_tokens = [token.content for token in backend.get_added_tokens_decoder().values()]
        self.special_ids, self.padding_id = special_ids, padding_id
        self.end_of_document_id = special_ids[recipe.end_of_document]
        self._counter = loss_counter
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        backend.post_processor = None  # which would move offsets, and adds only special tokens
        self._backend = backend
        self.vocabulary_size = max(backend.get_vocab(with_added_tokens=True).values()) + 1
        self._is_special = np.zeros(self.vocabulary_size, bool)
        self._is_special[list(forbidden_ids)] = True

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the recipe and the path; unpickling loads the file again."""
        return load_hf_tokenizer, (self.recipe, self.path)

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Encode texts one by one, without threads; InputError if the library fails."""
        try:
            runs = [self._backend.encode(text, add_special_tokens=False).ids for text in texts]
        except Exception as error:  # the library raises no narrower one
            fix = "use a tokenizer.json that has an id for every text"
            raise InputError(f"the tokenizer cannot encode a text ({error})", self.path, fix) from None
        encoded = TokenRuns.from_lists(runs, sum(len(text.encode()) for text in texts))
        return with_losses(encoded, self._counter, texts)

    def encode_with_offsets(self, text: str) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Return a text's ids and offsets; a special token's name becomes the token's id.

        The offsets have shape (tokens, 2): start and stop of each token, in characters. Tokens that share a character
        have overlapping offsets.
        """
        self._backend.encode_special_tokens = False
        try:
            encoding = self._backend.encode(text, add_special_tokens=False)
        finally:
            self._backend.encode_special_tokens = True
        return np.array(encoding.ids, np.int32), np.array(encoding.offsets, np.int64).reshape(-1, 2)

    def decode(self, ids: NDArray[np.int32]) -> str:
        return str(self._backend.decode(ids.tolist(), skip_special_tokens=False))

    def contains_special(self, ids: NDArray[np.int32]) -> bool:
        return bool(self._is_special[ids].any())


def load_hf_tokenizer(recipe: FileTokenizerRecipe, path: Path, section: str = "pack.tokenizer") -> HfTokenizer:
    """Load a `tokenizer.json`; UsageError if it lacks the end-of-document token.

    `section` is the recipe section that the UsageError names. Raise InputError if the file is invalid, the hash is
    wrong, encoding is random, an id exceeds int32, or loading changes the id of an added token.
    """
    data = read_pinned(path, recipe.sha256, _FIX)
    try:
        import tokenizers
    except ImportError as error:
        raise not_installed_error(error, "tokenizers") from None
    try:
        library = tokenizers.Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises no narrower one
        raise InputError(f"not a tokenizer.json ({error})", path, _FIX) from None
    content, vocabulary = json.loads(data), library.get_vocab(with_added_tokens=True)
    added = content.get("added_tokens") or []
    _check_ids(added, vocabulary, path)
    if content["model"].get("dropout"):
        raise InputError("the tokenizer drops merges at random (model.dropout)", path, "use a file without dropout")
    special = {token["content"]: int(token["id"]) for token in added if token["special"]}
    if recipe.end_of_document not in special:
        what = f"{recipe.end_of_document!r} is not a special token of {path.name}"
        known = ", ".join(list(special)[:5])
        fix = f"name the token that ends a document; it has {known}" if known else "use a file with special tokens"
        raise UsageError(what, RecipeKey(f"{section}.end_of_document"), fix)
    end, model = special[recipe.end_of_document], content["model"]
    unknown = model.get("unk_id")  # id of text that the vocabulary lacks; -1 if missing
    unknown = vocabulary.get(model.get("unk_token") or "", -1) if unknown is None else int(unknown)
    never_text, losses = set(special.values()) - {unknown}, _make_loss_counter(content, library, vocabulary, unknown)
    padding = _padding_id(library, vocabulary, path)
    padding = padding if padding in never_text else end
    return HfTokenizer(library, recipe, path, special, padding, never_text | {end}, losses)


def load_model_tokenizer(folder: Path, is_harmony: bool = True) -> HfTokenizer:
    """Load a model's `tokenizer.json`; the file must define special tokens.

    With `is_harmony`, the special tokens must include all control tokens of Harmony. Raise InputError if the file is
    missing or invalid, or if it lacks required tokens.
    """
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        fix = "choose a model that has one, or set `scoring.tokenizer` to o200k_harmony if it was trained with that"
        raise InputError("the model has no tokenizer.json", folder, fix)
    try:
        added = json.loads(path.read_bytes()).get("added_tokens") or []
        special: list[str] = [token["content"] for token in added if token.get("special")]
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError) as error:
        fix = "use a folder with all files of the model"
        raise InputError(f"not a valid tokenizer.json ({one_line(error)})", path, fix) from None
    # Without the id of a control token, every text would be misread.
    missing = [control for control in CONTROL_TOKENS if control not in special] if is_harmony else []
    if missing:
        what = f"the model's tokenizer lacks the special tokens {', '.join(missing)} of Harmony"
        fix = "use a model that was trained on Harmony, or add these tokens to its tokenizer and its embeddings"
        raise InputError(what, folder, fix)
    if not special:
        fix = "use a model whose tokenizer has special tokens, such as one that ends a message"
        raise InputError("the model's tokenizer has no special tokens", folder, fix)
    end = END if is_harmony else special[0]
    recipe = FileTokenizerRecipe(family="hf_tokenizer", sha256=file_sha256(path), end_of_document=end)
    return load_hf_tokenizer(recipe, path)


def _padding_id(backend: "tokenizers.Tokenizer", vocabulary: dict[str, int], path: Path) -> int | None:
    """Return the padding id, which may be an ordinary token's id; None if not set."""
    if backend.padding is None:
        return None
    padding, largest = int(backend.padding["pad_id"]), max(vocabulary.values())
    if padding > largest:
        what = f"padding id is {padding}, the largest id is {largest}"
        fix = "use a file whose `padding.pad_id` is the id of a special token, or without padding"
        raise InputError(what, path, fix)
    return padding


def _check_ids(added_tokens: Sequence[dict[str, Any]], vocabulary: dict[str, int], path: Path) -> None:
    """Raise InputError if an id exceeds int32, or loading changed an added token's id."""
    for token in added_tokens:
        if vocabulary.get(token["content"]) != token["id"]:
            loaded = vocabulary.get(token["content"])
            what = f"{token['content']!r} has id {token['id']} in the file, {loaded} when loaded"
            raise InputError(what, path, "use a file whose ids have no gap")
    if not vocabulary or max(vocabulary.values()) >= _MAX_IDS:
        what = f"the largest id is {max(vocabulary.values(), default=None)}"
        raise InputError(what, path, f"use a tokenizer with ids below {_MAX_IDS:,}, because tokens are int32")


def _make_loss_counter(
    content: dict[str, Any], backend: "tokenizers.Tokenizer", vocabulary: dict[str, int], unknown_id: int
) -> LossCounter | None:
    """Return a counter of lost text; None if the tokenizer cannot lose text."""
    from tokenizers.pre_tokenizers import ByteLevel

    model, steps = content["model"], json.dumps([content.get("normalizer"), content.get("pre_tokenizer")])
    falls_back = model.get("byte_fallback")
    byte_tokens = {f"<0x{byte:02X}>" for byte in range(256)} if falls_back else set(ByteLevel.alphabet())
    has_bytes = falls_back or ("merges" in model and '"ByteLevel"' in steps)
    removes = _TEXT_REMOVAL_PATTERN.search(steps) is not None
    if has_bytes and vocabulary.keys() >= byte_tokens and not removes:
        return None
    decode = functools.partial(backend.decode, skip_special_tokens=False)
    return LossCounter(unknown_id, decode, can_drop_text=removes or ("merges" in model and unknown_id < 0))

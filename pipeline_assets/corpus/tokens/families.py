"""Families of tokenizers, and how one is loaded: o200k Harmony, a `tokenizer.json`, a SentencePiece model.

A `tokenizer.json` encodes text as ordinary text: no template, no truncation, no padding, whatever the file says of
them, and special tokens by their characters. Where a model gives a special id all the same, `holds_special` tells. The
control symbols of a SentencePiece model never come out of text.
"""

import functools
import hashlib
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import pydantic
from numpy.typing import NDArray

from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare, install_hint, key
from pipeline_assets.corpus.spine.recipe import RecipePart
from pipeline_assets.corpus.tokens.losses import LossCounter
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY, Driver, TokenizerRecipe, load_encoder
from pipeline_assets.corpus.tokens.tokenizer import Sha256, Tokenizer, TokenRuns, read_pinned

if TYPE_CHECKING:
    import sentencepiece
    import tokenizers

_HF_FIX = "give the path of a tokenizer.json"
_SENTENCEPIECE_FIX = "give the path of a SentencePiece .model file"
_MAX_IDS = 2**31
# Steps of a normaliser or a pre-tokenizer that can remove characters that aren't blank: not one that replaces blanks.
_REMOVES_TEXT = re.compile(
    r'"(Removed|StripAccents|BertNormalizer|CharDelimiterSplit)"|"Replace", "pattern": (?!\{"String": " "\})'
)


class FileTokenizerRecipe(RecipePart):
    """Which tokenizer: `sha256` of its file, and the token, or piece, that closes a document."""

    family: Literal["hf_tokenizer", "sentencepiece"]
    sha256: Sha256
    end_of_document: str


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
        return TokenRuns.of(runs, sum(len(text.encode()) for text in texts)).counted_by(self._losses, texts)

    def decode(self, ids: NDArray[np.int32]) -> str:
        return str(self._library.decode(ids.tolist(), skip_special_tokens=False))

    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        return bool(self._is_special[ids].any())


def load_hf_tokenizer(recipe: FileTokenizerRecipe, path: Path) -> HfTokenizer:
    """Errors as `load_tokenizer`; a file that encodes at random, or whose ids are odd, is an InputError too."""
    data = read_pinned(path, recipe.sha256, _HF_FIX)
    tokenizers = _library("tokenizers")
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
    unknown = _unknown_id(content["model"], vocabulary)
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


def _unknown_id(model: dict[str, Any], vocabulary: dict[str, int]) -> int:
    """The id of what the vocabulary lacks, which content gives; -1 without one."""
    return int(model["unk_id"]) if model.get("unk_id") is not None else vocabulary.get(model.get("unk_token") or "", -1)


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


class SentencePieceModel(Tokenizer):
    """Text to ids, in one thread."""

    driver = "sentencepiece"

    def __init__(self, library: "sentencepiece.SentencePieceProcessor", end_of_document: int) -> None:
        self.vocabulary_size: int = library.get_piece_size()
        self.end_of_document = end_of_document
        self.padding: int = library.pad_id() if library.pad_id() >= 0 else end_of_document
        self.special_ids: dict[str, int] = {}
        self.library = library
        self._losses = _sentencepiece_losses(library)

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Ids of each text, without those of a begin or an end."""
        runs = self.library.encode(
            list(texts), out_type=int, add_bos=False, add_eos=False, enable_sampling=False, num_threads=1
        )
        return TokenRuns.of(runs, sum(len(text.encode()) for text in texts)).counted_by(self._losses, texts)

    def decode(self, ids: NDArray[np.int32]) -> str:
        return str(self.library.decode(ids.tolist()))

    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        """A symbol that its user defined can close a document too, and that one does come out of text."""
        return bool(((ids == self.end_of_document) | (ids == self.padding)).any())


def _sentencepiece_losses(library: "sentencepiece.SentencePieceProcessor") -> LossCounter | None:
    """Return what counts the losses of a model; None if it has byte pieces, and so a piece for every text."""
    if any(map(library.is_byte, range(library.get_piece_size()))):
        return None
    return LossCounter(library.unk_id(), library.decode)


def load_sentencepiece(recipe: FileTokenizerRecipe, path: Path) -> SentencePieceModel:
    """Errors as `load_tokenizer`."""
    library = parse_sentencepiece(read_pinned(path, recipe.sha256, _SENTENCEPIECE_FIX), path)
    piece = library.piece_to_id(recipe.end_of_document)
    if library.is_unknown(piece) or library.id_to_piece(piece) != recipe.end_of_document:
        what = f"{recipe.end_of_document!r} is no piece of {path.name}"
        raise UsageError(what, bare("pack.tokenizer.end_of_document"), "name the piece that ends a document there")
    return SentencePieceModel(library, piece)


def parse_sentencepiece(data: bytes, path: Path) -> "sentencepiece.SentencePieceProcessor":
    """The model that a file says. Raises InputError where it says none, UsageError without the library."""
    library: sentencepiece.SentencePieceProcessor = _library("sentencepiece").SentencePieceProcessor()
    try:
        library.LoadFromSerializedProto(data)
        is_model = library.get_piece_size() > 0
    except RuntimeError:
        is_model = False
    if not is_model:
        raise InputError("this is no SentencePiece model", path, _SENTENCEPIECE_FIX)
    return library


CHECKSUM = "checksum.json"  # beside a model: {"file", "sha256", "bytes"}


def expected_hash(path: Path, given: str = "") -> str:
    """Return the sha256 that a model file should have: the given one, else that in its `checksum.json`, else none."""
    sibling = path.with_name(CHECKSUM)
    return given or (str(json.loads(sibling.read_bytes())["sha256"]) if sibling.is_file() else "")


def describe_sentencepiece(path: Path, expected_sha256: str = "") -> dict[str, Any]:
    """What a model file is: its pieces by kind, the ids of its control symbols, and how it writes a probe.

    Args:
        expected_sha256: empty for the one that `checksum.json` beside it says, where it is there.
    Raises:
        UsageError: the expected hash is none; the library is not installed.
        InputError: missing, another hash, or no such model.
    """
    expected_sha256 = expected_hash(path, expected_sha256)
    if expected_sha256 and not re.fullmatch("[0-9a-f]{64}", expected_sha256):
        raise UsageError("this is no sha256", expected_sha256, "give 64 hex digits")
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    recipe = FileTokenizerRecipe(family="sentencepiece", sha256=expected_sha256 or found, end_of_document="</s>")
    model = load_sentencepiece(recipe, path)
    pieces = model.library
    kinds = {"control": pieces.is_control, "unknown": pieces.is_unknown, "byte": pieces.is_byte}
    ids = range(model.vocabulary_size)
    return {
        "family": "sentencepiece",
        "file": path.name,
        "bytes": path.stat().st_size,
        "sha256": found,
        "is_expected": bool(expected_sha256),
        "vocabulary_size": model.vocabulary_size,
        "pieces": {kind: sum(map(is_kind, ids)) for kind, is_kind in kinds.items()},
        "ids": {"unknown": pieces.unk_id(), "begin": pieces.bos_id(), "end": pieces.eos_id(), "pad": pieces.pad_id()},
        "probe": [pieces.id_to_piece(one) for one in model.encode(["Hello, world: 3.14!"]).ids.tolist()],
    }


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        what = f"the library `{name}` is not installed"
        raise UsageError(what, bare("pack.tokenizer.family"), install_hint("tokenizers")) from None


AnyTokenizerRecipe = Annotated[TokenizerRecipe | FileTokenizerRecipe, pydantic.Discriminator("family")]


@dataclass(frozen=True)
class TokenizerFile:
    """A tokenizer and where its file lies: None for the one that ships with the program."""

    recipe: TokenizerRecipe | FileTokenizerRecipe
    file: Path | None = None
    driver: Driver = "gigatoken"

    @property
    def path(self) -> Path:
        """
        Raises:
            UsageError: none is given, and none ships.
        """
        if self.file is None and not isinstance(self.recipe, TokenizerRecipe):
            fix = f"set {key('pack.tokenizer_path')} to it: only that of o200k_harmony ships with this program"
            raise UsageError(f"the tokenizer file of {self.recipe.family} is not given", bare("pack.tokenizer"), fix)
        return self.file or VOCABULARY


@functools.lru_cache(maxsize=1)
def load_tokenizer(tokenizer: TokenizerFile) -> Tokenizer:
    """The tokenizer, kept for the life of the process.

    Raises:
        InputError: the file can't be read, has another hash than the pinned one, or is none of its kind.
        UsageError: it is not given, it lacks the end of a document, or its library is not installed.
    """
    recipe = tokenizer.recipe
    if isinstance(recipe, TokenizerRecipe):
        return load_encoder(recipe.sha256, tokenizer.path, tokenizer.driver)
    load = load_hf_tokenizer if recipe.family == "hf_tokenizer" else load_sentencepiece
    return load(recipe, tokenizer.path)

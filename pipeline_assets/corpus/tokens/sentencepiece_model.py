"""Tokenizers of a SentencePiece model, whose control symbols never come out of text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.losses import LossCounter
from pipeline_assets.corpus.tokens.tokenizer import FileTokenizerRecipe, Tokenizer, TokenRuns, read_pinned
from pipeline_assets.spine.errors import InputError, UsageError, bare
from pipeline_assets.spine.install_hints import not_installed

if TYPE_CHECKING:
    import sentencepiece

_SENTENCEPIECE_FIX = "give the path of a SentencePiece .model file"


class SentencePieceModel(Tokenizer):
    """Text to ids, in one thread."""

    driver = "sentencepiece"

    def __init__(self, library: "sentencepiece.SentencePieceProcessor", end_of_document: int) -> None:
        self.vocabulary_size: int = library.get_piece_size()
        self.end_of_document = end_of_document
        self.padding: int = library.pad_id() if library.pad_id() >= 0 else end_of_document
        self.special_ids: dict[str, int] = {}
        self.library = library
        has_bytes = any(map(library.is_byte, range(self.vocabulary_size)))  # and so a piece for every text
        self._losses = None if has_bytes else LossCounter(library.unk_id(), library.decode)

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Ids of each text, without those of a begin or an end."""
        runs = self.library.encode(
            list(texts), out_type=int, add_bos=False, add_eos=False, enable_sampling=False, num_threads=1
        )
        return TokenRuns.from_lists(runs, sum(len(text.encode()) for text in texts)).counted_by(self._losses, texts)

    def decode(self, ids: NDArray[np.int32]) -> str:
        return str(self.library.decode(ids.tolist()))

    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        """A symbol that its user defined can close a document too, and that one does come out of text."""
        return bool(((ids == self.end_of_document) | (ids == self.padding)).any())


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
    try:
        import sentencepiece
    except ImportError as error:
        raise not_installed(error, "tokenizers") from None
    library = sentencepiece.SentencePieceProcessor()
    try:
        library.LoadFromSerializedProto(data)
        is_model = library.get_piece_size() > 0
    except RuntimeError:
        is_model = False
    if not is_model:
        raise InputError("this is no SentencePiece model", path, _SENTENCEPIECE_FIX)
    return library

"""Tokenizers from a SentencePiece model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.tokens.loss_counter import LossCounter, with_losses
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe, read_pinned
from pipeline_assets.corpus.tokens.token_runs import TokenRuns
from pipeline_assets.corpus.tokens.tokenizer import Tokenizer
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.install_hints import not_installed_error

if TYPE_CHECKING:
    import sentencepiece

_FIX = "put the .model file there, or correct its path"


class SentencePieceModel(Tokenizer):
    """Single-threaded tokenizer that was loaded from a SentencePiece model."""

    driver = "sentencepiece"

    def __init__(self, processor: "sentencepiece.SentencePieceProcessor", end_of_document_id: int) -> None:
        self.vocabulary_size: int = processor.get_piece_size()
        self.end_of_document_id = end_of_document_id
        self.padding_id: int = processor.pad_id() if processor.pad_id() >= 0 else end_of_document_id
        self.special_ids: dict[str, int] = {}
        self.processor = processor
        has_bytes = any(map(processor.is_byte, range(self.vocabulary_size)))  # so every text has pieces
        self._losses = None if has_bytes else LossCounter(processor.unk_id(), processor.decode)

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Encode texts without begin and end tokens."""
        runs = self.processor.encode(
            list(texts), out_type=int, add_bos=False, add_eos=False, enable_sampling=False, num_threads=1
        )
        encoded = TokenRuns.from_lists(runs, sum(len(text.encode()) for text in texts))
        return with_losses(encoded, self._losses, texts)

    def decode(self, ids: NDArray[np.int32]) -> str:
        return str(self.processor.decode(ids.tolist()))

    def contains_special(self, ids: NDArray[np.int32]) -> bool:
        """Check whether one of `ids` is the end-of-document id or the padding id.

        Text can encode to the end-of-document id if the model defines this token as a user-defined symbol.
        """
        return bool(((ids == self.end_of_document_id) | (ids == self.padding_id)).any())


def load_sentencepiece(recipe: FileTokenizerRecipe, path: Path, section: str = "pack.tokenizer") -> SentencePieceModel:
    """Load a SentencePiece model; UsageError if it lacks the end-of-document piece.

    Errors name `section`, the tokenizer's section of the recipe.
    """
    library = parse_sentencepiece(read_pinned(path, recipe.sha256, _FIX), path)
    piece = library.piece_to_id(recipe.end_of_document)
    if library.is_unknown(piece) or library.id_to_piece(piece) != recipe.end_of_document:
        what = f"{recipe.end_of_document!r} is not a piece of {path.name}"
        raise UsageError(what, RecipeKey(f"{section}.end_of_document"), "name the piece that ends a document")
    return SentencePieceModel(library, piece)


def parse_sentencepiece(model_bytes: bytes, path: Path) -> "sentencepiece.SentencePieceProcessor":
    """Parse the bytes of a SentencePiece model; raise InputError if invalid."""
    try:
        import sentencepiece
    except ImportError as error:
        raise not_installed_error(error, "tokenizers") from None
    library = sentencepiece.SentencePieceProcessor()
    try:
        library.LoadFromSerializedProto(model_bytes)
        is_model = library.get_piece_size() > 0
    except RuntimeError:
        is_model = False
    if not is_model:
        raise InputError("not a SentencePiece model", path, _FIX)
    return library

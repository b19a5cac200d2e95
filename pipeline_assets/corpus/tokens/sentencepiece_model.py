"""A SentencePiece model, by the library `sentencepiece`. Its control symbols never come out of text."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare, install_hint
from pipeline_assets.corpus.spine.recipe import RecipePart
from pipeline_assets.corpus.tokens.pinned_file import Sha256, read_pinned
from pipeline_assets.corpus.tokens.token_runs import TokenRuns

if TYPE_CHECKING:
    import sentencepiece

_FIX = "give the path of a SentencePiece .model file"


class SentencePieceRecipe(RecipePart):
    """Which model: `sha256` of its file, and the piece that closes a document."""

    family: Literal["sentencepiece"]
    sha256: Sha256
    end_of_document: str


class SentencePieceModel:
    """Text to ids, in one thread."""

    driver = "sentencepiece"

    def __init__(self, library: "sentencepiece.SentencePieceProcessor", end_of_document: int) -> None:
        self.vocabulary_size: int = library.get_piece_size()
        self.end_of_document = end_of_document
        self.padding: int = library.pad_id() if library.pad_id() >= 0 else end_of_document
        self._library = library

    def can_encode(self, text: str) -> bool:
        return True

    def encode(self, texts: Sequence[str]) -> TokenRuns:
        """Ids of each text, without those of a begin or an end."""
        runs = self._library.encode(
            list(texts), out_type=int, add_bos=False, add_eos=False, enable_sampling=False, num_threads=1
        )
        return TokenRuns.of(runs, sum(len(text.encode()) for text in texts))

    def oracle_ids(self, text: str) -> None:
        return None

    def decode(self, ids: NDArray[np.int32]) -> str:
        return str(self._library.decode(ids.tolist()))

    def holds_special(self, ids: NDArray[np.int32]) -> bool:
        """A symbol that its user defined can close a document too, and that one does come out of text."""
        return bool(((ids == self.end_of_document) | (ids == self.padding)).any())


def load_sentencepiece(recipe: SentencePieceRecipe, path: Path) -> SentencePieceModel:
    """
    Raises:
        InputError: the file can't be read, has another hash, or is none of its kind.
        UsageError: it doesn't know the end of a document, or the library is not installed.
    """
    data = read_pinned(path, recipe.sha256, _FIX)
    try:
        import sentencepiece
    except ImportError:
        what = "the library `sentencepiece` is not installed"
        raise UsageError(what, bare("pack.tokenizer.family"), install_hint("tokenizers")) from None
    library = sentencepiece.SentencePieceProcessor()
    try:
        library.LoadFromSerializedProto(data)
        is_model = library.get_piece_size() > 0
    except RuntimeError:
        is_model = False
    if not is_model:
        raise InputError("this is no SentencePiece model", path, _FIX)
    piece = library.piece_to_id(recipe.end_of_document)
    if library.is_unknown(piece) or library.id_to_piece(piece) != recipe.end_of_document:
        what = f"{recipe.end_of_document!r} is no piece of {path.name}"
        raise UsageError(what, bare("pack.tokenizer.end_of_document"), "name the piece that ends a document there")
    return SentencePieceModel(library, piece)

"""SentencePiece model that encodes sentence pairs."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline_assets.corpus.parallel_text.encode_recipe import EncodeRecipe
from pipeline_assets.corpus.tokens.pinned_file import read_pinned
from pipeline_assets.corpus.tokens.sentencepiece_model import SentencePieceModel, parse_sentencepiece
from pipeline_assets.corpus.tokens.unigram import VocabularyTooLargeError, require_sentencepiece, train_unigram
from pipeline_assets.spine.errors import InputError, UsageError

_SECTION = "encode"  # section of the recipe that has the keys of the training
_VOCABULARY_STEP = 100  # a reduced number of pieces is a multiple of this
MODEL_HINT = "pass a SentencePiece .model"
logger = logging.getLogger("corpusmill")


def read_or_train_model(texts: Sequence[str], recipe: EncodeRecipe, root: Path) -> bytes:
    """Read the external model, or train a model; return the bytes of the model file.

    Args:
        texts: Texts of both sides of the train split, on which a model is trained.
        recipe: Settings of the training, or path and sha256 of the external model.
        root: Folder that a relative path of the model starts from.

    Raises:
        UsageError: `vocab_size` is too small for the texts.
        InputError: The external model is missing, unreadable or has another sha256, or no model can be trained.
    """
    if recipe.model is not None and recipe.model_sha256 is not None:
        return read_pinned(root / recipe.model, recipe.model_sha256, "put the .model file there, or correct its path")
    try:
        return train_unigram(texts, recipe, _SECTION).model_bytes
    except VocabularyTooLargeError as error:
        allowed = error.max_pieces
        pieces = allowed // _VOCABULARY_STEP * _VOCABULARY_STEP or allowed
        logger.info("train split allows %d of %d pieces; training %d", allowed, recipe.vocab_size, pieces)
        try:
            return train_unigram(texts, recipe.model_copy(update={"vocab_size": pieces}), _SECTION).model_bytes
        except UsageError:
            logger.info("%d pieces are too few for the characters of the train split; training %d", pieces, allowed)
            return train_unigram(texts, recipe.model_copy(update={"vocab_size": allowed}), _SECTION).model_bytes


def check_model(recipe: EncodeRecipe, root: Path) -> None:
    """Raise InputError if SentencePiece is missing or the model is unusable."""
    if recipe.model is None:
        require_sentencepiece()
    else:
        parse_model(read_or_train_model((), recipe, root), root / recipe.model)


def parse_model(model_bytes: bytes, where: Path) -> SentencePieceModel:
    """Parse a SentencePiece model; raise InputError if it is invalid or lacks </s>."""
    library = parse_sentencepiece(model_bytes, where)
    if library.eos_id() < 0:
        raise InputError("the model has no piece that ends a sequence", where, "use a model that has </s>")
    return SentencePieceModel(library, library.eos_id())


def char_coverage(model: SentencePieceModel, texts: Iterable[str]) -> str:
    """Return the share of characters that have a piece in the model, as decimal text.

    Whitespace is not counted.
    """
    counts = Counter(character for text in texts for character in text if not character.isspace())
    is_unknown, piece_id = model.processor.is_unknown, model.processor.piece_to_id
    known = sum(count for character, count in counts.items() if not is_unknown(piece_id(character)))
    return f"{known / max(counts.total(), 1):.6f}"

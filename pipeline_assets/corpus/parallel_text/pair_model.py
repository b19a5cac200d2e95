"""SentencePiece model that encodes sentence pairs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pipeline_assets.corpus.parallel_text.encode_recipe import EncodeRecipe
from pipeline_assets.corpus.parallel_text.token_cache import logger
from pipeline_assets.corpus.tokens.sentencepiece_model import SentencePieceModel, parse_sentencepiece
from pipeline_assets.corpus.tokens.tokenizer import read_pinned
from pipeline_assets.corpus.tokens.unigram import VocabularyTooLargeError, train_unigram
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError

_STEP = 100
MODEL_HINT = "give a SentencePiece .model"


def model_data(lines: Sequence[str], recipe: EncodeRecipe, given: Path | None) -> bytes:
    """Return the model file: the external one, or one trained on lines, those of both sides of the train split.

    Raises:
        UsageError: There is an external model and no pinned hash, or a hash and no model.
        InputError: The external model isn't the pinned one; or from `train_unigram`.
    """
    if (recipe.model_sha256 is None) != (given is None):
        fix = "give both the model's file and its sha256, or neither"
        raise UsageError("a model is given or pinned, and not both", RecipeKey("model_sha256"), fix)
    if recipe.model_sha256 is not None and given is not None:
        return read_pinned(given, recipe.model_sha256, "give the path of a SentencePiece .model file")
    try:
        return train_unigram(lines, recipe).model
    except VocabularyTooLargeError as error:
        pieces = error.max_pieces // _STEP * _STEP or error.max_pieces
        logger.info(
            "the train split allows %d pieces, of %d: %d are trained", error.max_pieces, recipe.vocab_size, pieces
        )
        return train_unigram(lines, recipe.model_copy(update={"vocab_size": pieces})).model


def load_model(data: bytes, where: Path) -> SentencePieceModel:
    """The model, which must have a piece that ends a sequence. Raises InputError where it is none, or has none."""
    library = parse_sentencepiece(data, where)
    if library.eos_id() < 0:
        raise InputError("it has no piece that ends a sequence", where, "give a model that has </s>")
    return SentencePieceModel(library, library.eos_id())


def char_coverage(model: SentencePieceModel, texts: Sequence[str]) -> str:
    """Return the share of characters, without blanks, that have a piece of their own, as a decimal string."""
    counts = Counter(character for text in texts for character in text if not character.isspace())
    is_unknown, piece_id = model.library.is_unknown, model.library.piece_to_id
    known = sum(count for character, count in counts.items() if not is_unknown(piece_id(character)))
    return f"{known / max(counts.total(), 1):.6f}"

"""The SentencePiece model of a sample: given, or trained on both sides of its train split."""

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pydantic

from pipeline_assets.corpus.spine.errors import InputError, UsageError, bare
from pipeline_assets.corpus.spine.manifest import StageVersion
from pipeline_assets.corpus.spine.recipe import Option, Share
from pipeline_assets.corpus.tokens.families import SentencePieceModel, parse_sentencepiece
from pipeline_assets.corpus.tokens.tokenizer import Sha256, read_pinned
from pipeline_assets.corpus.tokens.train_sentencepiece import UnigramRecipe, VocabularyTooLargeError, train_unigram

ENCODE_STAGE = StageVersion("parallel_tokens", 1)
_STEP, NO_MODEL = 100, "give a SentencePiece .model"
logger = logging.getLogger("corpusmill")


class EncodeRecipe(UnigramRecipe):
    """How a sample becomes ids.

    Attributes:
        vocab_size: pieces of a trained model, at most. Where the text allows fewer, it is as many as it allows, rounded
            down to a multiple of 100.
        model_sha256: of a model that is given; None trains one.
        seq_len: tokens of a pair, at most; a longer one is cut, see `encoder.cut_lengths`. None cuts none.
    """

    vocab_size: Annotated[int, Option("Pieces of a trained model, at most.")] = pydantic.Field(default=8000, ge=8)
    character_coverage: Share = "1"
    byte_fallback: bool = True
    model_sha256: Sha256 | None = None
    seq_len: Annotated[int | None, Option("Cut pairs to so many tokens, and pad.", default=None)] = pydantic.Field(
        default=None, ge=4
    )


def model_data(lines: Sequence[str], recipe: EncodeRecipe, given: Path | None) -> bytes:
    """The model file.

    Raises:
        UsageError: a model is given, and none is pinned, or none is given, and one is.
        InputError: the one that is given isn't the pinned one; or from `train_unigram`.
    """
    if given is None and recipe.model_sha256 is None:
        return _trained(lines, recipe)
    if given is None or recipe.model_sha256 is None:
        what = "a model is pinned, and none is given" if given is None else "a model is given, and none is pinned"
        raise UsageError(what, bare("model_sha256"), "give both the model's file and its sha256, or neither")
    return read_pinned(given, recipe.model_sha256, "give the path of a SentencePiece .model file")


def _trained(lines: Sequence[str], recipe: EncodeRecipe) -> bytes:
    try:
        return train_unigram(lines, recipe).model
    except VocabularyTooLargeError as error:
        pieces = error.most // _STEP * _STEP or error.most
        logger.info("the train split allows %d pieces, of %d: %d are trained", error.most, recipe.vocab_size, pieces)
        return train_unigram(lines, recipe.model_copy(update={"vocab_size": pieces})).model


def load_model(data: bytes, where: Path) -> SentencePieceModel:
    """The model, which must have a piece that ends a sequence. Raises InputError where it is none, or has none."""
    library = parse_sentencepiece(data, where)
    if library.eos_id() < 0:
        raise InputError("it has no piece that ends a sequence", where, "give a model that has </s>")
    return SentencePieceModel(library, library.eos_id())


def char_coverage(model: SentencePieceModel, texts: Sequence[str]) -> str:
    """Of all characters that are no blanks the share that have a piece of their own, a decimal string."""
    characters = Counter("".join(texts))
    counts = {one: count for one, count in characters.items() if not one.isspace()}
    library = model.library
    known = sum(count for one, count in counts.items() if not library.is_unknown(library.piece_to_id(one)))
    return f"{known / max(sum(counts.values()), 1):.6f}"

"""Training of a SentencePiece unigram model.

Training is deterministic: sampling, which SentencePiece cannot seed, is off, and one thread trains. The text comes from
an iterator, because the model would contain the path of an input file. The trainer silently skips long lines, and lines
with NUL or U+2585, so `split_for_trainer` first cuts such lines.
"""

import io
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

import pydantic

from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.errors import InputError, RecipeKey, UsageError
from pipeline_assets.spine.install_hints import not_installed_error
from pipeline_assets.spine.key_types import Share, text_rule
from pipeline_assets.spine.section import RecipeSection

Coverage = Annotated[Share, text_rule(lambda share: Fraction(share) >= Fraction("0.98"), "must be in [0.98, 1]")]
MAX_TRAINER_LINE_BYTES = 4192  # longer lines are skipped by the trainer
MEMORY_PER_BYTE = 30  # of text, at the trainer's peak: 22 were measured, 30 were reported for large samples
_SKIPPED_CHARACTERS = re.compile("[\0\u2585]")
_TOO_LARGE_PATTERN = re.compile(r"Vocabulary size too high .* a value <= (\d+)")
_TOO_SMALL_PATTERN = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


class UnigramRecipe(RecipeSection):
    """Recipe of a unigram model (Kudo 2018, "Subword Regularization").

    Every key changes bytes of the model.

    Attributes:
        vocab_size: Number of pieces, including those for unknown text, begin and end.
        character_coverage: Share of the sample's characters that the pieces cover; other characters are unknown.
        byte_fallback: Whether unknown characters are encoded as bytes; bytes use 256 of the pieces.
        normalization: Normalization before text is cut into pieces: `nfkc` applies NFKC; `nmt_nfkc`, SentencePiece's
            default, also turns line feeds and tabs into spaces; `identity` changes nothing.
        keeps_blanks: Whether all spaces are kept. If False, spaces at the ends of a text are stripped, and a run of
            spaces becomes one space.
    """

    vocab_size: Annotated[int, Option("Number of pieces, including unknown, begin and end.")] = pydantic.Field(
        32_000, ge=8, lt=1 << 31
    )
    character_coverage: Coverage = "0.9995"
    byte_fallback: bool = False
    normalization: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    keeps_blanks: bool = False


@dataclass(frozen=True)
class TrainedModel:
    """Unigram model, with counts of the text from which it was trained.

    Attributes:
        model_bytes: Content of the model file.
        lines: Number of lines that the trainer read.
        added_lines: Number of lines that were added because `split_for_trainer` cut lines.
        text_bytes: Number of UTF-8 bytes that the trainer read.
    """

    model_bytes: bytes
    lines: int
    added_lines: int
    text_bytes: int


class VocabularyTooLargeError(UsageError):
    """Error if the vocabulary size exceeds `max_pieces`, the maximum for the text."""

    max_pieces = 0


def require_sentencepiece() -> None:
    """Raise UsageError if SentencePiece is not installed."""
    try:
        import sentencepiece  # noqa: F401
    except ImportError as error:
        raise not_installed_error(error, "tokenizers") from None


def train_unigram(lines: Iterable[str], recipe: UnigramRecipe, section: str = "tokenizer") -> TrainedModel:
    """Train a model on lines without line feeds; blank lines are skipped.

    `section` is the recipe section that contains `vocab_size`; errors name it.

    Raises:
        VocabularyTooLargeError: The text has too few different pieces.
        UsageError: The vocabulary is too small for the characters of the text.
        InputError: SentencePiece cannot train on this text, or the text is empty.
    """
    require_sentencepiece()
    import sentencepiece

    counts = {"uncut": 0, "lines": 0, "bytes": 0}

    def counted() -> Iterator[str]:
        for line in lines:
            pieces = list(split_for_trainer(line, recipe.keeps_blanks))
            counts["uncut"] += bool(pieces)
            counts["lines"] += len(pieces)
            counts["bytes"] += sum(len(piece.encode()) for piece in pieces)
            yield from pieces

    read = counted()
    first = next(read, None)
    if first is None:
        raise InputError("no text to train on", "the sample", "choose sources with text, or a larger sample")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=itertools.chain([first], read),
            model_writer=model,
            model_type="unigram",
            vocab_size=recipe.vocab_size,
            character_coverage=float(recipe.character_coverage),
            byte_fallback=recipe.byte_fallback,
            normalization_rule_name=recipe.normalization,
            remove_extra_whitespaces=not recipe.keeps_blanks,
            allow_whitespace_only_pieces=recipe.keeps_blanks,
            max_sentence_length=MAX_TRAINER_LINE_BYTES,
            num_threads=1,
            input_sentence_size=0,
            shuffle_input_sentence=False,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _training_error(str(error), recipe.vocab_size, section) from None
    return TrainedModel(model.getvalue(), counts["lines"], counts["lines"] - counts["uncut"], counts["bytes"])


def split_for_trainer(line: str, keeps_blanks: bool = False) -> Iterator[str]:
    """Split a line into lines that SentencePiece's trainer does not skip.

    The line is cut at each NUL and U+2585, which are removed; a line feed becomes a space. A part longer than
    `MAX_TRAINER_LINE_BYTES` is cut at the last space within that size, or between two characters if no space fits.
    Blank parts are dropped. Spaces at both ends of a part are stripped. With `keeps_blanks`, leading spaces are kept,
    except after a cut for length.
    """
    for part in _SKIPPED_CHARACTERS.split(line.replace("\n", " ")):
        data = (part.rstrip() if keeps_blanks else part.strip()).encode("utf-8", "replace")
        while data:
            stop = len(data)
            if stop > MAX_TRAINER_LINE_BYTES:
                stop = data.rfind(b" ", 0, MAX_TRAINER_LINE_BYTES + 1)
                if stop <= 0:
                    stop = MAX_TRAINER_LINE_BYTES
                    while data[stop] & 0xC0 == 0x80:  # a continuation byte, 10xxxxxx: go back to its character's start
                        stop -= 1
            piece = data[:stop].decode().rstrip() if keeps_blanks else data[:stop].decode().strip()
            if piece.strip():
                yield piece
            data = data[stop:].lstrip()


def _training_error(message: str, vocab_size: int, section: str) -> InputError:
    where = RecipeKey(f"{section}.vocab_size")
    if match := _TOO_LARGE_PATTERN.search(message):
        maximum = int(match[1])
        fix = f"add text, or set at most {maximum:,}"
        error = VocabularyTooLargeError(f"must be <= {maximum:,} for this sample, got {vocab_size:,}", where, fix)
        error.max_pieces = maximum
        return error
    if match := _TOO_SMALL_PATTERN.search(message):
        minimum = int(match[1])
        what = f"must be >= {minimum:,} for the characters of this sample, got {vocab_size:,}"
        return UsageError(what, where, "raise it, or lower `character_coverage`")
    what = f"SentencePiece cannot train on this text ({' '.join(message.split())[:200]})"
    return InputError(what, "the sample", "use other text")

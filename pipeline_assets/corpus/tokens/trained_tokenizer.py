"""A SentencePiece tokenizer of several corpora: what it is trained on, how, and what lies in its folder.

Files: `spm_<vocab>_unigram.model`; `spm_<vocab>_unigram.vocab`, a line a piece, with its score; `checksum.json`, the
sha256 of the model; `tokenizer.json`, figures of the sample and of each corpus, beside those of o200k.

Equal lines give an equal model, and no line is lost. The trainer's own sampling can't be seeded, its pieces depend on
the number of threads, and a model file embeds the path of its input; so it samples nothing, works in one thread, and
reads and writes memory. It would skip in silence lines that are too long, and those with NUL or U+2585, which stands
for what it doesn't know: here the first are cut, the others are cut around these characters.
"""

import io
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pydantic

from pipeline_assets.corpus.shards.mixture_figures import MIXTURES
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.tokenizer import FileTokenizerRecipe, Sha256
from pipeline_assets.corpus.weights import Weights
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.durable import make_folder, write_durably
from pipeline_assets.spine.errors import InputError, UsageError, bare
from pipeline_assets.spine.install_hints import not_installed
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.section import Option, RecipeSection, Share

TOKENIZER_STAGE = StageVersion("tokenizer", 1)
END_OF_DOCUMENT = "</s>"
FIGURES = "tokenizer.json"
_NEAR_ENOUGH = 0.8  # of a share: which documents are drawn is chance
LINE_BYTES = 4192  # of a line, at which the trainer skips it
MEMORY_A_BYTE = 30  # of a sample, at the trainer's peak: 22 were measured, 30 were reported of large ones
_UNREADABLE = re.compile("[\0\u2585]")
_TOO_LARGE = re.compile(r"Vocabulary size too high .* a value <= (\d+)")
_TOO_SMALL = re.compile(r"smaller than required_chars\. \d+ vs (\d+)")


class UnigramRecipe(RecipeSection):
    """How a unigram model is trained (Kudo 2018, "Subword Regularization"). All of it changes bytes.

    Attributes:
        character_coverage: share of the sample's characters that have a piece; the others are unknown.
        byte_fallback: what has no piece is written as its bytes, which take 256 pieces; else it is unknown.
        normalization: what becomes of text before it is cut into pieces: `nmt_nfkc`, SentencePiece's own, makes blanks
            of line feeds and tabs, and NFKC of all else; `identity` leaves it.
        keeps_blanks: whether blanks in a row, and at the ends, are kept; else each run is one.
    """

    vocab_size: Annotated[int, Option("Pieces, those for unknown, begin and end included.")] = pydantic.Field(
        32_000, ge=8, lt=1 << 31
    )
    character_coverage: Share = "0.9995"
    byte_fallback: bool = False
    normalization: Literal["nmt_nfkc", "nfkc", "identity"] = "nmt_nfkc"
    keeps_blanks: bool = False


class TrainRecipe(UnigramRecipe):
    """A tokenizer, and the sample that it is trained on.

    Attributes:
        sources: of the sample's text the share of each.
        sample_bytes: of its text, UTF-8, within what chance leaves: a document is in it by the hash of seed and id.
        seed: of the draw, and of the order of lines.
        expected_sha256: of the model; with another nothing is made of it. Changes no byte.
    """

    sources: Weights
    sample_bytes: Annotated[int, Option("Bytes of text that it is trained on, about.")] = pydantic.Field(
        100_000_000, ge=1
    )
    seed: str = "1"
    expected_sha256: Sha256 | None = None

    def training_content(self) -> dict[str, Any]:
        """What the model's bytes depend on."""
        return {key: value for key, value in self.content().items() if key != "expected_sha256"}


@dataclass(frozen=True)
class ExpectedTokenizer:
    """The sha256 that a recipe asks of a model, as a demand on its artifact."""

    sha256: str
    check: str = "model_is_expected"

    def evaluate(self, manifest: Manifest) -> Verdict:
        """Whether the model is that one."""
        found = manifest.identity.decisions["sha256"]
        if found == self.sha256:
            return Verdict(True, f"its sha256 is {found}, as expected")
        return Verdict(False, f"its sha256 is {found}, expected {self.sha256}: correct `tokenizer.expected_sha256`")


def model_name(vocab_size: int) -> str:
    """The model's file."""
    return f"spm_{vocab_size}_unigram.model"


def trained_file(tokenizer: Artifact) -> TokenizerFile:
    """The trained tokenizer, as it is loaded."""
    decisions = tokenizer.manifest.identity.decisions
    recipe = FileTokenizerRecipe(
        family="sentencepiece", sha256=decisions["sha256"], end_of_document=decisions["end_of_document"]
    )
    return TokenizerFile(recipe, tokenizer.path(decisions["model"]))


def preview_tokenizer(tokenizer: Artifact) -> list[dict[str, str]]:
    """A row a corpus."""
    figures = msgspec.json.decode(tokenizer.path(FIGURES).read_bytes())
    return [
        {"corpus": corpus} | {name: str(value) for name, value in of.items()}
        for corpus, of in figures["corpora"].items()
    ]


def shares_are_kept(tokenizer: Artifact) -> Verdict:
    """The sample has of each corpus the share that was asked for: else a corpus had too little text."""
    asked, drawn = tokenizer.manifest.identity.recipe["tokenizer"], tokenizer.manifest.identity.counts["drawn_bytes"]
    short = [
        f"{name} gave {drawn[name]:,} of {wanted:,.0f} bytes"
        for name, share in asked["sources"].items()
        if drawn[name] < _NEAR_ENOUGH * (wanted := float(share) * asked["sample_bytes"])
    ]
    return Verdict(not short, "; ".join(short) or "every corpus gave its share of the sample")


def write_tokenizer_figures(tokenizer: Artifact) -> Path:
    """A copy of the figures beside the recipe's artifacts: `mixtures/<recipe>_tokenizer.json`."""
    of_recipe = tokenizer.folder.parent
    path = of_recipe / MIXTURES / f"{of_recipe.name}_tokenizer.json"
    make_folder(path.parent)
    write_durably(path, tokenizer.path(FIGURES).read_bytes())
    return path


@dataclass(frozen=True)
class Trained:
    """A model, as its file has it.

    Attributes:
        lines: that the trainer read.
        cut: more lines than were given, since some were cut.
        text_bytes: of these lines, UTF-8.
    """

    model: bytes
    lines: int
    cut: int
    text_bytes: int


class VocabularyTooLargeError(UsageError):
    """More pieces were asked for than a sample supports, which are `most`."""

    most = 0


def check_trainer() -> None:
    """Raises UsageError where SentencePiece is not installed."""
    try:
        import sentencepiece  # noqa: F401
    except ImportError as error:
        raise not_installed(error, "tokenizers") from None


def train_unigram(lines: Iterable[str], recipe: UnigramRecipe) -> Trained:
    """A model of lines. Memory: about `MEMORY_A_BYTE` times the text.

    Args:
        lines: without line feeds; blank ones are passed over.
    Raises:
        UsageError: SentencePiece is not installed.
        VocabularyTooLargeError: so many pieces don't come out of it.
        InputError: there is no text; or so many pieces are too few for its characters.
    """
    check_trainer()
    import sentencepiece

    counts = {"given": 0, "lines": 0, "bytes": 0}

    def counted() -> Iterator[str]:
        for line in lines:
            pieces = list(fit_lines(line, recipe.keeps_blanks))
            counts["given"] += bool(pieces)
            counts["lines"] += len(pieces)
            counts["bytes"] += sum(len(piece.encode()) for piece in pieces)
            yield from pieces

    read = counted()
    first = next(read, None)
    if first is None:
        raise InputError("there is no text to train on", "the sample", "give sources that have some")
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
            max_sentence_length=LINE_BYTES,
            num_threads=1,
            input_sentence_size=0,
            shuffle_input_sentence=False,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise _explained(str(error), recipe.vocab_size) from None
    return Trained(model.getvalue(), counts["lines"], counts["lines"] - counts["given"], counts["bytes"])


def fit_lines(line: str, keeps_blanks: bool = False) -> Iterator[str]:
    """A line as the trainer reads it: of at most `LINE_BYTES`, cut at the last blank before that, else at a character;
    without what it can't read; none where nothing is left.

    Args:
        keeps_blanks: at its beginning.
    """
    for part in _UNREADABLE.split(line.replace("\n", " ")):
        data = (part.rstrip() if keeps_blanks else part.strip()).encode("utf-8", "replace")
        while data:
            stop = len(data)
            if stop > LINE_BYTES:
                stop = data.rfind(b" ", 0, LINE_BYTES + 1)
                if stop <= 0:
                    stop = LINE_BYTES
                    while data[stop] & 0xC0 == 0x80:  # within a character
                        stop -= 1
            piece = data[:stop].decode().rstrip() if keeps_blanks else data[:stop].decode().strip()
            if piece.strip():
                yield piece
            data = data[stop:].lstrip()


def _explained(said: str, wanted: int) -> InputError:
    where = bare("tokenizer.vocab_size")
    if found := _TOO_LARGE.search(said):
        most = int(found[1])
        fix = f"give more text, or ask for {most:,} or fewer"
        error = VocabularyTooLargeError(f"it is {wanted:,}, and the sample supports {most:,} pieces", where, fix)
        error.most = most
        return error
    if found := _TOO_SMALL.search(said):
        least = int(found[1])
        what = f"it is {wanted:,}, and the sample's characters alone take {least:,} pieces"
        return UsageError(what, where, f"ask for more than {least:,}, or lower `character_coverage`")
    return InputError(
        f"SentencePiece can't train on it ({' '.join(said.split())[:200]})", "the sample", "give other text"
    )

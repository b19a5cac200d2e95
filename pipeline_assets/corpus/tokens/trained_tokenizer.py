"""Artifact of a SentencePiece tokenizer that was trained on several corpora.

Files: `spm_<vocab>_unigram.model`; `spm_<vocab>_unigram.vocab`, one line per piece with its score; `checksum.json`, the
sha256 of the model; `tokenizer.json`, the sample's size and, for each corpus, figures of this tokenizer and of o200k.
"""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import pydantic

from pipeline_assets.corpus.shards.mixture_figures import MIXTURES_FOLDER
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.pinned_file import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.unigram import UnigramRecipe
from pipeline_assets.corpus.weights import Weights
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.damage import errors_as_damage
from pipeline_assets.spine.durable import make_folder, write_durably
from pipeline_assets.spine.key_types import Sha256
from pipeline_assets.spine.manifest import Manifest, StageVersion

TOKENIZER_STAGE = StageVersion("tokenizer", 1)
END_OF_DOCUMENT_PIECE = "</s>"
FIGURES_FILE = "tokenizer.json"
_MIN_SHARE_FRACTION = 0.8  # below 1, because chance decides which documents are drawn


class TrainRecipe(UnigramRecipe):
    """Recipe of a trained tokenizer and of its sample.

    Attributes:
        sources: Share of the sample's bytes for each source.
        sample_bytes: UTF-8 size of the sample, approximate because a hash decides whether each document is drawn.
        seed: Seed for drawing the documents and for the order in which the trainer reads them.
        expected_sha256: Expected hash, unused in training; if the model's hash differs, downstream builds are blocked.
    """

    sources: Weights
    sample_bytes: Annotated[int, Option("Approximate size of the training sample in bytes.")] = pydantic.Field(
        100_000_000, ge=1
    )
    seed: str = "1"
    expected_sha256: Sha256 | None = None

    def training_content(self) -> dict[str, Any]:
        """Return the recipe keys that change bytes of the model."""
        return {key: value for key, value in self.content().items() if key != "expected_sha256"}


@dataclass(frozen=True)
class ExpectedTokenizer:
    """Expected sha256 of a trained model."""

    check_name: ClassVar[str] = "model_is_expected"
    sha256: str

    def evaluate(self, manifest: Manifest) -> Verdict:
        """Compare the model's hash with the expected one."""
        actual = manifest.identity.decisions["sha256"]
        if actual == self.sha256:
            return Verdict(True, f"sha256 is {actual}, as expected")
        return Verdict(False, f"sha256 is {actual}, expected {self.sha256}; correct `tokenizer.expected_sha256`")


def model_name(vocab_size: int) -> str:
    """Return the name of the model file for a vocabulary size."""
    return f"spm_{vocab_size}_unigram.model"


def trained_tokenizer_file(tokenizer: Artifact) -> TokenizerFile:
    """Return the tokenizer file of a trained model, with a recipe that pins its hash."""
    decisions = tokenizer.manifest.identity.decisions
    sha256, end = decisions["sha256"], decisions["end_of_document"]
    recipe = FileTokenizerRecipe(family="sentencepiece", sha256=sha256, end_of_document=end)
    return TokenizerFile(recipe, tokenizer.path(decisions["model"]))


def preview_tokenizer(tokenizer: Artifact) -> list[dict[str, str]]:
    """Return preview rows with the tokenizer's figures, one row per corpus."""
    path = tokenizer.path(FIGURES_FILE)
    with errors_as_damage(path, "table of figures"):
        figures = msgspec.json.decode(path.read_bytes())
        return [
            {"corpus": corpus} | {name: str(value) for name, value in values.items()}
            for corpus, values in figures["corpora"].items()
        ]


def shares_are_kept(tokenizer: Artifact) -> Verdict:
    """Check that the sample has at least 80 % of the requested bytes of each corpus.

    A corpus with too little text contributes less than requested.
    """
    recipe, drawn = tokenizer.manifest.identity.recipe["tokenizer"], tokenizer.manifest.identity.counts["drawn_bytes"]
    short = [
        f"{name} has {drawn[name]:,} of {requested:,.0f} bytes"
        for name, share in recipe["sources"].items()
        if drawn[name] < _MIN_SHARE_FRACTION * (requested := float(Fraction(share)) * recipe["sample_bytes"])
    ]
    return Verdict(not short, "; ".join(short) or "every corpus has its share of the sample")


def write_tokenizer_figures(tokenizer: Artifact) -> Path:
    """Copy `tokenizer.json` to `mixtures/<recipe>_tokenizer.json`; return the copy."""
    recipe_folder = tokenizer.folder.parent
    path = recipe_folder / MIXTURES_FOLDER / f"{recipe_folder.name}_tokenizer.json"
    make_folder(path.parent)
    write_durably(path, tokenizer.path(FIGURES_FILE).read_bytes())
    return path

"""A SentencePiece tokenizer of several corpora: what it is trained on, and what lies in its folder.

Files: `spm_<vocab>_unigram.model`; `spm_<vocab>_unigram.vocab`, a line a piece, with its score; `checksum.json`, the
sha256 of the model; `tokenizer.json`, figures of the sample and of each corpus, beside those of o200k.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic

from pipeline_assets.corpus.sampling import Weights
from pipeline_assets.corpus.shards.mixture_views import MIXTURES
from pipeline_assets.corpus.spine.artifact import Artifact, Verdict
from pipeline_assets.corpus.spine.durable import make_folder, write_durably
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.recipe import Option
from pipeline_assets.corpus.tokens.families import FileTokenizerRecipe, TokenizerFile
from pipeline_assets.corpus.tokens.tokenizer import Sha256
from pipeline_assets.corpus.tokens.train_sentencepiece import UnigramRecipe

TOKENIZER_STAGE = StageVersion("tokenizer", 1)
END_OF_DOCUMENT = "</s>"
FIGURES = "tokenizer.json"
_NEAR_ENOUGH = 0.8  # of a share: which documents are drawn is chance


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

    def judge(self, manifest: Manifest) -> Verdict:
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

"""The tokenizer that ships, as a resource: its file is held against its hash when a run starts, and loaded once."""

import dagster as dg
from pydantic import Field

from pipeline_assets.corpus.tokens.encode import cached_encoder
from pipeline_assets.corpus.tokens.o200k_harmony import FAMILY, VOCABULARY, VOCABULARY_SHA256, Encoder, check_vocabulary


class Tokenizer(dg.ConfigurableResource):
    """Text to ids, as recipes pin it. Files of other tokenizers are named by the recipes that pack with them."""

    family: str = Field(default=FAMILY, description="Of the tokenizer; recipes name it")
    sha256: str = Field(default=VOCABULARY_SHA256, description="Of its vocabulary file; recipes pin it")

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """
        Raises:
            InputError: the file is missing, or has another hash.
        """
        check_vocabulary(VOCABULARY, self.sha256)

    def encoder(self) -> Encoder:
        """The encoder that builds take, loaded once in a process."""
        return cached_encoder(self.sha256, "gigatoken")

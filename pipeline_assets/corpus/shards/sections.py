"""Sections of a mixture's recipe: its sources, its tokenizer, its shards; and sources without a licence."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.corpus.licences import UNKNOWN
from pipeline_assets.corpus.normalize.sources import FileSource, HubSource
from pipeline_assets.corpus.sampling.weights import Weights
from pipeline_assets.corpus.shards.recipe import ShardsRecipe
from pipeline_assets.corpus.spine.recipe import Misfit, section_at, sections_at
from pipeline_assets.corpus.tokens.families import FileTokenizerRecipe
from pipeline_assets.corpus.tokens.trained_tokenizer import TrainRecipe

Source = Annotated[HubSource | FileSource, pydantic.Field(discriminator="kind")]


class TrainedTokenizer(TrainRecipe):
    """A tokenizer that is trained on sources of the recipe."""

    kind: Literal["trained"]


class GivenTokenizer(FileTokenizerRecipe):
    """A tokenizer that is there already.

    Attributes:
        path: of its file, absolute or below the data root; changes no byte, since `sha256` pins what is in it.
    """

    kind: Literal["file"]
    path: str

    def file(self) -> FileTokenizerRecipe:
        """What bytes depend on."""
        return FileTokenizerRecipe(family=self.family, sha256=self.sha256, end_of_document=self.end_of_document)


class ShardsSection(ShardsRecipe):
    """Token shards of sources.

    Attributes:
        sources: whose, with the share of each in what is trained on; no shard depends on these shares.
    """

    sources: Weights

    def corpus_content(self) -> dict[str, Any]:
        """What the shards of one corpus depend on."""
        return {key: value for key, value in self.content().items() if key != "sources"}


def licence_misfits(values: Mapping[str, Any]) -> Iterator[Misfit]:
    """Sources of which nothing says the licence."""
    for position, section in sections_at(values, "sources"):
        columns = section_at(section, "columns")
        says_none = section.get("license_tag", UNKNOWN) in (UNKNOWN, None) and not columns.get("license")
        if section.get("kind") in ("hub", "local") and says_none and not section.get("license_files"):
            fix = "set `license_tag` to it, or `columns.license` to the column that says it"
            what = f"nothing says the licence of {section.get('source')}"
            yield Misfit(("sources", position), what, fix)

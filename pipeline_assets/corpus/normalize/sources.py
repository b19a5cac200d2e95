"""The sources of a stage A recipe: a section each, by kind."""

from typing import Annotated, Any, Literal

import pydantic

from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.readers.columns import LicensedColumns
from pipeline_assets.corpus.readers.local import LocalRecipe
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe
from pipeline_assets.corpus.snapshot.recipe import HubRows, SnapshotRecipe
from pipeline_assets.corpus.spine.recipe import Name, Option, RecipePart, RejectShare

_NOT_OF_THE_ROWS = frozenset({"path", "filters"})


class SourceSection(RecipePart):
    """What every source says.

    Attributes:
        source: its name: of its partition, of its folders, and in each of its Documents.
        filters: which of its documents are kept, and what is changed in them.
    """

    source: Name
    filters: FilterRecipe = FilterRecipe()

    def rows_content(self, shard_text_bytes: int) -> dict[str, Any]:
        """What the bytes of its Documents depend on."""
        content = {key: value for key, value in self.content().items() if key not in _NOT_OF_THE_ROWS}
        return content | {"shard_text_bytes": shard_text_bytes}


class HubSource(SourceSection, HubRows):
    """Rows of a hub dataset at a commit: all, or a sample drawn by row group."""

    kind: Literal["hub"]
    columns: LicensedColumns

    def snapshot(self, shard_text_bytes: int) -> SnapshotRecipe:
        """The rows that are read, as the snapshot kernels know them."""
        plain = self.columns.content()
        plain.pop("license")
        left_out = {*_NOT_OF_THE_ROWS, "kind", "columns"}
        section = {key: value for key, value in self.content().items() if key not in left_out}
        return SnapshotRecipe.from_content(
            section | {"name": self.source, "columns": plain, "shard_text_bytes": shard_text_bytes}
        )


class FilesSection(SourceSection):
    """A source of files on this machine.

    Attributes:
        path: their folder, absolute or below the data root; where it lies changes no byte.
        max_reject_fraction: more bad rows than this stop the build.
    """

    path: str
    max_reject_fraction: RejectShare = "0.001"


class WikipediaSource(FilesSection, WikipediaRecipe):
    """What wikiextractor made of a dump. Pages with nothing but a title don't count as bad rows."""

    kind: Literal["wikipedia"]
    source: Annotated[Name, Option("Name of the source.", default="wikipedia")]


class StackExchangeSource(FilesSection):
    """One site: its Posts.xml, or the .7z that it came in.

    Attributes:
        files: a pattern that matches that one file.
        host: `beer.stackexchange.com`.
        min_question_score, min_answer_score: posts below are left out; None for no limit.
        min_answers: threads with fewer that are kept are left out.
    """

    kind: Literal["stackexchange"]
    files: Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]
    domain: Annotated[str, Option("What kind of text.", default="questions")]
    host: str
    min_question_score: Annotated[int | None, Option("Threads below are left out.", default=None)]
    min_answer_score: Annotated[int | None, Option("Answers below are left out.", default=None)]
    min_answers: Annotated[int, Option("Threads with fewer are left out.", default=0)] = pydantic.Field(ge=0)


class LocalSource(FilesSection, LocalRecipe):
    """Files of JSON lines, Parquet or text."""

    kind: Literal["local"]
    source: Annotated[Name, Option("Name of the source.")]


class NormalizedSource(SourceSection):
    """A source that is normalised already: it is found by its name in `outputs.normalized_dir`."""

    kind: Literal["normalized"]


Source = Annotated[
    HubSource | WikipediaSource | StackExchangeSource | LocalSource | NormalizedSource,
    pydantic.Field(discriminator="kind"),
]
FileSource = WikipediaSource | StackExchangeSource | LocalSource
_KINDS: dict[str, type[HubSource] | type[WikipediaSource] | type[StackExchangeSource] | type[LocalSource]] = {
    "hub": HubSource,
    "wikipedia": WikipediaSource,
    "stackexchange": StackExchangeSource,
    "local": LocalSource,
}


def source_of(rows_content: Any) -> tuple[HubSource | FileSource, int]:
    """The section and the shard size that `rows_content` wrote down; what it left out is made up.

    Raises:
        UsageError: this program reads no such section.
    """
    content = {key: value for key, value in rows_content.items() if key not in ("shard_text_bytes", "licences")}
    section = _KINDS[content["kind"]]
    made_up = {} if section is HubSource else {"path": "."}
    return section.from_content(content | made_up), rows_content["shard_text_bytes"]

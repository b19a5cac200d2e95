"""What a snapshot takes from a hub dataset."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Self

import pydantic

from pipeline_assets.corpus.filters.column_rules import ColumnRule
from pipeline_assets.corpus.readers.columns import ColumnMap
from pipeline_assets.corpus.sampling.row_groups import Amount
from pipeline_assets.corpus.spine.recipe import COMMIT_PATTERN, SHARD_TEXT_BYTES, Name, Option, RecipePart, RejectShare

Texts = Annotated[tuple[str, ...], pydantic.Field(strict=False)]


class HubRows(RecipePart):
    """One dataset, split and commit, and which of its rows become Documents.

    Attributes:
        files: patterns of paths in the dataset, as fnmatch reads them.
        rules: comparisons that a row must pass, `int_score >= 3`.
        language: value of the column `language` that is kept where that column exists; None keeps every language.
        seed: of the draw of row groups.
        max_reject_fraction: more bad rows than this stop the build.
    """

    dataset: str
    config: Annotated[
        str, Option("Of every --source. Default: fineweb-2 eng_Latn, others default.", "config-name", default=None)
    ] = "default"
    revision: Annotated[str, Option("Branch, tag or commit; its commit is written down.", default="main")]
    split: str = "train"
    files: Texts = pydantic.Field(min_length=1)
    source: str
    domain: str = "web"
    license_tag: str = "unknown"
    rules: Annotated[Texts, Option("A row must pass 'int_score >= 3'; repeatable.", "rule")] = ()
    language: str | None = None
    amount: Amount
    seed: Annotated[str, Option("Of a sample's draw; nothing else is random.")] = "0"
    max_reject_fraction: RejectShare = "0.001"

    @pydantic.field_validator("dataset")
    @classmethod
    def _has_an_owner(cls, dataset: str) -> str:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset):
            raise ValueError("write owner/name, such as HuggingFaceFW/fineweb-edu")
        return dataset

    @pydantic.field_validator("revision")
    @classmethod
    def _is_a_commit(cls, revision: str) -> str:
        if not re.fullmatch(COMMIT_PATTERN, revision):
            raise ValueError(
                "a revision is a commit of 40 hex digits, since a branch moves; `corpusmill pin` gives the commit"
            )
        return revision

    @pydantic.field_validator("rules")
    @classmethod
    def _can_be_read(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            ColumnRule.parse(rule)
        return rules

    def parsed_rules(self) -> list[ColumnRule]:
        """The rules, read."""
        return [ColumnRule.parse(rule) for rule in self.rules]

    def row_rules(self, columns: Collection[str]) -> list[ColumnRule]:
        """What a row of these columns must pass: the rules, then the language where there is a column of it."""
        has_language = self.language is not None and "language" in columns
        language = [ColumnRule("language", "language", "==", self.language or "")] if has_language else []
        return [*self.parsed_rules(), *language]


class SnapshotRecipe(HubRows):
    """Rows of a hub dataset as Document shards.

    Attributes:
        name: of the folder, `corpora/<name>/<commit>`: two samples of one commit need two names. Changes no byte.
        shard_text_bytes: a shard is closed by the row group that brings it to this size.
    """

    name: Name
    columns: ColumnMap = ColumnMap()
    shard_text_bytes: int = pydantic.Field(SHARD_TEXT_BYTES, gt=0)

    def rows_content(self) -> Mapping[str, Any]:
        """What the snapshot's bytes depend on: nothing of what is made from it, so that several sets can share it."""
        return {key: value for key, value in self.content().items() if key != "name"}

    @classmethod
    def of_rows(cls, content: Mapping[str, Any]) -> Self:
        """The recipe that `rows_content` wrote down; the name, which it leaves out, is made up.

        Raises:
            UsageError: this program reads no such recipe.
        """
        return cls.from_content({**content, "name": "unnamed"})

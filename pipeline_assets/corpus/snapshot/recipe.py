"""Recipe of a snapshot: one dataset at one commit, and which of its rows become Documents."""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.filters.column_rules import ColumnRule, Rules
from pipeline_assets.corpus.readers.column_recipe import ColumnMap, Patterns
from pipeline_assets.spine.errors import key
from pipeline_assets.spine.section import (
    COMMIT_PATTERN,
    SHARD_TEXT_BYTES,
    Name,
    Option,
    RecipeSection,
    RejectShare,
    text_rule,
)

Unit = Literal["files", "documents", "text_bytes"]
_UNITS: tuple[Unit, ...] = ("files", "documents", "text_bytes")
_DATASET_RULE = "write owner/name, such as HuggingFaceFW/fineweb-edu"
_REVISION_RULE = "a revision is a commit of 40 hex digits, since a branch moves; `corpusmill pin` gives the commit"


class Amount(RecipeSection):
    """How much is read; exactly one key.

    Attributes:
        files: whole files, the first in rank.
        documents: source rows, before any filter; the last row group is cut.
        text_bytes: uncompressed bytes of the text column, as the footers say; the last row group is taken whole.
    """

    files: int | None = pydantic.Field(default=None, gt=0)
    documents: Annotated[
        int | None, Option("Rows to read, drawn over all files.", "max-documents", 100_000, ("--limit",))
    ] = pydantic.Field(default=None, gt=0)
    text_bytes: int | None = pydantic.Field(default=None, gt=0)

    @pydantic.model_validator(mode="after")
    def _has_one_unit(self) -> Self:
        if sum(getattr(self, unit) is not None for unit in _UNITS) != 1:
            raise ValueError(f"give exactly one of {', '.join(_UNITS)}")
        return self

    @property
    def limit(self) -> tuple[Unit, int]:
        """The unit that is counted and how many of it."""
        return next((unit, getattr(self, unit)) for unit in _UNITS if getattr(self, unit) is not None)


class HubRows(RecipeSection):
    """One dataset, split and commit, and which of its rows become Documents.

    Attributes:
        files: patterns of paths in the dataset, as fnmatch reads them.
        rules: comparisons that a row must pass, `int_score >= 3`.
        language: value of the column `language` that is kept where that column exists; None keeps every language.
        seed: of the draw of row groups.
        max_reject_fraction: more bad rows than this stop the build.
    """

    dataset: Annotated[str, text_rule(re.compile(r"[\w.-]+/[\w.-]+").fullmatch, _DATASET_RULE)]
    config: Annotated[
        str, Option("Config. Default: fineweb-2 eng_Latn, others default.", "config-name", None, ("--subset",))
    ] = "default"
    revision: Annotated[
        str,
        text_rule(re.compile(COMMIT_PATTERN).fullmatch, _REVISION_RULE),
        Option("Branch, tag or commit; its commit is written down.", default="main"),
    ]
    split: Annotated[str, Option("Split of the dataset.")] = "train"
    files: Patterns
    source: str
    domain: str = "web"
    license_tag: Annotated[
        str, Option("Licence, such as mit or unknown. Default: the card's or each row's.", "license", default=None)
    ] = "unknown"
    rules: Annotated[Rules, Option("A row must pass 'int_score >= 3'; repeatable.", "rule")] = ()
    language: str | None = None
    amount: Amount
    seed: Annotated[str, Option("Of a sample's draw; nothing else is random.")] = "0"
    max_reject_fraction: RejectShare = "0.001"

    def row_rules(self, columns: Collection[str]) -> list[ColumnRule]:
        """What a row of these columns must pass: the rules, then the language where there is a column of it."""
        rules = [ColumnRule.parse(rule) for rule in self.rules]
        if self.language is None or "language" not in columns:
            return rules
        return [*rules, ColumnRule("language", "language", "==", self.language)]

    def rule_columns(self) -> dict[str, str]:
        """Columns that the rules ask for, each with what to do where there is no such column."""
        rules = key("rules", "in the recipe", "of {}")
        return {rule.column: f"correct the rule `{rule.text}` {rules}" for rule in self.row_rules(())}

    def where(self, path: str) -> str:
        """A file of the dataset, in an error."""
        return f"{self.dataset}@{self.revision}:{path}"


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
    def from_rows(cls, content: Mapping[str, Any]) -> Self:
        """The recipe that `rows_content` wrote down; the name, which it leaves out, is made up.

        Raises:
            UsageError: this program reads no such recipe.
        """
        return cls.from_content({**content, "name": "unnamed"})

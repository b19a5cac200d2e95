"""Recipe of a snapshot of a hub dataset at one commit."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, Self

import pydantic

from pipeline_assets.corpus.document import derive_doc_id
from pipeline_assets.corpus.filters.column_rules import ColumnRule, ColumnRules
from pipeline_assets.corpus.readers.column_recipe import ColumnMap
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.key_types import (
    COMMIT_PATTERN,
    SHARD_TEXT_BYTES,
    MaxRejectShare,
    Name,
    Patterns,
    pattern_rule,
)
from pipeline_assets.spine.section import RecipeSection

Unit = Literal["files", "documents", "text_bytes"]
_UNITS: tuple[Unit, ...] = ("files", "documents", "text_bytes")
_DATASET_RULE = "must be owner/name, such as HuggingFaceFW/fineweb-edu"
_REVISION_RULE = "a revision must be a commit of 40 hex digits, because branches move; get it with `corpusmill pin`"


class Amount(RecipeSection):
    """Amount of rows to read; exactly one key must be set.

    Attributes:
        files: Number of files, drawn by the seed and read whole.
        documents: Number of rows to read, before rules drop any. The last row group is read only up to this number.
        text_bytes: Number of uncompressed bytes. In Parquet files, only the text column counts, with the size in the
            footers; in JSON lines, all bytes count. Parquet row groups are read whole.
    """

    files: int | None = pydantic.Field(default=None, gt=0)
    documents: Annotated[
        int | None, Option("Rows to read, drawn over all files.", "max-documents", 100_000, ("--limit",))
    ] = pydantic.Field(default=None, gt=0)
    text_bytes: int | None = pydantic.Field(default=None, gt=0)

    @pydantic.model_validator(mode="after")
    def _check_unit(self) -> Self:
        if sum(getattr(self, unit) is not None for unit in _UNITS) != 1:
            raise ValueError(f"the amount must have one unit; set exactly one of {', '.join(_UNITS)}")
        return self

    @property
    def limit(self) -> tuple[Unit, int]:
        """Unit and value of the key that is set."""
        return next((unit, getattr(self, unit)) for unit in _UNITS if getattr(self, unit) is not None)


class HubRowsSection(RecipeSection):
    """Split of a hub dataset at a commit, and the rules that select rows to keep.

    Attributes:
        files: Patterns of the paths of files to read, in fnmatch syntax.
        rules: Comparisons that a row must pass, such as `int_score >= 3`.
        language: Required value of the column `language` if that column exists; None keeps every language.
        generated_by: Model that wrote the texts, for `corpusmill describe`; None if people wrote them, or if unknown.
        max_reject_fraction: Share of rejected rows above which the build stops.
    """

    OMITTABLE_KEYS = frozenset({"generated_by"})
    dataset: Annotated[str, pattern_rule(r"[\w.-]+/[\w.-]+", _DATASET_RULE)]
    config: Annotated[
        str, Option("Config. Default: fineweb-2 eng_Latn, others default.", "config-name", None, ("--subset",))
    ] = "default"
    revision: Annotated[
        str,
        pattern_rule(COMMIT_PATTERN, _REVISION_RULE),
        Option("Branch, tag or commit; the recipe records the commit.", default="main"),
    ]
    split: Annotated[str, Option("Split of the dataset.")] = "train"
    files: Patterns
    source: str
    domain: str = "web"
    license_tag: Annotated[str, Option("Licence tag. Default: the card's, or each row's.", "license", None)] = "unknown"
    rules: Annotated[ColumnRules, Option("Condition on rows, such as 'int_score >= 3'; repeatable.", "rule")] = ()
    language: str | None = None
    generated_by: str | None = None
    amount: Amount
    seed: Annotated[str, Option("Random seed for drawing the sample.")] = "0"
    max_reject_fraction: MaxRejectShare = "0.001"

    def derive_id(self, text: str) -> str:
        """Derive the id of a row without an id from its text."""
        return derive_doc_id(self.dataset, self.config, self.split, text)

    def row_rules(self, columns: Collection[str]) -> list[ColumnRule]:
        """Return the rules; add one for `language` if set and if `columns` contains it."""
        rules = [ColumnRule.parse(rule) for rule in self.rules]
        if self.language is None or "language" not in columns:
            return rules
        return [*rules, ColumnRule("language", "language", "==", self.language)]

    def rule_columns(self) -> dict[str, str]:
        """Return the fixes to suggest for missing columns of rules, by column."""
        return {rule.column: f"correct the rule `{rule.text}` in the recipe" for rule in self.row_rules(())}

    def input_name(self, path: str) -> str:
        """Return the name of the dataset's file at a path, for errors and manifests."""
        return f"{self.dataset}@{self.revision}:{path}"


class SnapshotRecipe(HubRowsSection):
    """Rows of a hub dataset as Document shards.

    Attributes:
        name: Name in the path `corpora/<name>/<commit>`; changes no output. Two samples of one commit need two names.
        shard_text_bytes: Minimum text bytes of a shard. A shard ends with the row group that reaches this size.
    """

    name: Name
    columns: ColumnMap = ColumnMap()
    shard_text_bytes: int = pydantic.Field(SHARD_TEXT_BYTES, gt=0)

    def output_content(self) -> Mapping[str, Any]:
        """Return the recipe without its name; recipes with equal content share a snapshot."""
        return {key: value for key, value in self.content().items() if key != "name"}

    @classmethod
    def from_output_content(cls, content: Mapping[str, Any]) -> Self:
        """Restore a recipe from `output_content`, with a placeholder as name."""
        return cls.from_content({**content, "name": "unnamed"})

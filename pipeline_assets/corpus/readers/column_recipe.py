"""Recipe keys that name the source columns of Document fields."""

from typing import Annotated

import pydantic

from pipeline_assets.corpus.document import derive_doc_id
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.section import RecipeSection

ID_COLUMN_FIX = "set `columns.id` to another column, or to null for ids that are derived from the texts"
"""Fix that an error message proposes for repeated ids."""


def column_fix(field: str) -> str:
    """Return the fix to propose in the error for a field whose column is missing."""
    if field == "text":
        return "set `columns.text` in the recipe to the column that holds the text"
    return f"set `columns.{field}` in the recipe to an existing column, or leave it out"


class ColumnMap(RecipeSection):
    """Source columns of a Document's fields; None if the source has no such column.

    A name that matches no column is a path: `metadata.url` is the field `url` of the object `metadata`. A Document's
    `meta` keeps all columns except text and id, so it also has the original date.
    """

    text: str = "text"
    id: str | None = None
    created_at: str | None = None


ColumnChoice = str | Annotated[tuple[str, ...], pydantic.Field(strict=False)] | None


class LicensedColumns(RecipeSection):
    """Source columns of a Document's fields, for rows that may state their licence.

    If a field has a single column name, every Parquet and CSV file must have this column. If a field has several names,
    each row uses the first of these columns that contains a value of a valid type.

    Attributes:
        id: Columns of ids, which are text or integers. A row without an id gets a derived id.
        license: Columns of licences; values are converted to lower case. A row without a value gets the licence of its
            licence file, or the recipe's licence if no licence file applies. With a single column name, a value that is
            not text (such as a list) results in `unknown`. `meta` keeps the original value.
    """

    text: Annotated[str, Option("Text column, or path such as body.text.", "text-column")] = "text"
    id: Annotated[
        ColumnChoice, Option("Id column. Default: doc_id or id, else derived.", "id-column", default=None)
    ] = ("doc_id", "id")
    created_at: Annotated[
        ColumnChoice, Option("Date column. Default: created_at if it exists.", "created-at-column", default=None)
    ] = ("created_at",)
    license: Annotated[
        ColumnChoice, Option("Licence column. Default: license if it exists.", "license-column", default=None)
    ] = ("license",)


class SourceLabels(RecipeSection):
    """Source name, domain, default licence and generating model of a local source."""

    OMITTABLE_KEYS = frozenset({"generated_by"})
    source: str
    domain: Annotated[str, Option("Domain label of the documents.")] = "unknown"
    license_tag: Annotated[str, Option("Licence of rows that do not state one.", "license")] = "unknown"
    generated_by: str | None = None

    def derive_id(self, text: str) -> str:
        """Derive the id of a row without an id from its text.

        The file name is not used, so renaming, splitting or compressing a file changes no id.
        """
        return derive_doc_id("local", self.source, "", text)

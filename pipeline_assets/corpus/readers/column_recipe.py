"""Recipe keys that name the source columns of Document fields."""

from typing import Annotated

import pydantic

from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.section import RecipeSection

ID_COLUMN_FIX = "set `columns.id` to another column, or to null for ids that are derived from the texts"
"""Fix that an error message proposes for repeated ids."""


def column_fix(field: str) -> str:
    """Return the fix that an error message proposes if a field's column is missing."""
    if field == "text":
        return "set `columns.text` in the recipe to the column that holds the text"
    return f"set `columns.{field}` in the recipe to an existing column, or leave it out"


class ColumnMap(RecipeSection):
    """Source columns of a Document's fields; None if the source has no such column.

    A name that is not a column is a path: `metadata.url` is the field `url` of the object `metadata`. A Document's
    `meta` has all columns other than text and id, including the original date.
    """

    text: str = "text"
    id: str | None = None
    created_at: str | None = None


ColumnChoice = str | Annotated[tuple[str, ...], pydantic.Field(strict=False)] | None


class LicensedColumns(RecipeSection):
    """Source columns of a Document's fields, for rows that may state their licence.

    Parquet and CSV files must have each column that is set as a single name. If several names are set, each row uses
    the first column that has a value of a valid type.

    Attributes:
        id: Columns of ids, which are text or integers. A row without an id gets a derived id.
        license: Columns of licences; values are converted to lower case. A row without a value has the licence of its
            licence file, or else of the recipe. If a single name is set, a value that is not text (for example a list)
            results in `unknown`. `meta` keeps the column unchanged.
    """

    text: Annotated[str, Option("Text column, or path such as body.text.", "text-column")] = "text"
    id: Annotated[
        ColumnChoice, Option("Id column. Default: doc_id or id, else derived.", "id-column", default=None)
    ] = (
        "doc_id",
        "id",
    )
    created_at: Annotated[
        ColumnChoice, Option("Date column. Default: created_at if it exists.", "created-at-column", default=None)
    ] = ("created_at",)
    license: Annotated[
        ColumnChoice, Option("Licence column. Default: license if it exists.", "license-column", default=None)
    ] = ("license",)


class SourceLabels(RecipeSection):
    """Source name, domain, default licence and generating model of a local source."""

    LATER_KEYS = frozenset({"generated_by"})
    source: str
    domain: Annotated[str, Option("Domain label of the documents.")] = "unknown"
    license_tag: Annotated[str, Option("Licence of rows that do not state one.", "license")] = "unknown"
    generated_by: str | None = None

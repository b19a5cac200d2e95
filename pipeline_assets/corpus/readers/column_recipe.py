"""Columns of a source as a recipe names them."""

from typing import Annotated

import pydantic

from pipeline_assets.spine.errors import IN_RECIPE, key
from pipeline_assets.spine.section import Option, RecipeSection


def another_column(field: str) -> str:
    """What to do about a field's column that isn't there."""
    name = f"columns.{field}"
    if field == "text":
        return f"set {key(name, IN_RECIPE)} to the column that holds the text"
    return f"set {key(name, IN_RECIPE)} to one that is there{key(name, ', or to null', ', or leave it out')}"


class ColumnMap(RecipeSection):
    """Which source column is which field of a Document; None where the source has none.

    A name is that of a column, else a path into nested ones: `metadata.url` is `url` of the object `metadata`. The
    columns of text and id leave the row; all others stay in its `meta`, that of the date as it came too.
    """

    text: str = "text"
    id: str | None = None
    created_at: str | None = None


Patterns = Annotated[tuple[str, ...], pydantic.Field(strict=False, min_length=1)]
"""Of files, relative to their folder, see `list_files`; those of a hub as fnmatch reads them."""
Columns = str | Annotated[tuple[str, ...], pydantic.Field(strict=False)] | None


class LicensedColumns(RecipeSection):
    """The same for sources whose rows may say their own licence.

    A column that is named alone is there. Of several the first is taken that a row has a fitting value in; it may have
    none.

    Attributes:
        id: text or whole numbers; a row without one gets a derived id.
        license: the row's licence, lower-cased; a row without one has the recipe's, and one that is no text (a list,
            say) is `unknown`. The column stays in `meta` as it came.
    """

    text: Annotated[str, Option("Column, or path such as body.text.", "text-column")] = "text"
    id: Annotated[
        Columns, Option("Default: doc_id or id, else ids are derived from texts.", "id-column", default=None)
    ] = ("doc_id", "id")
    created_at: Annotated[
        Columns, Option("Date of a row. Default: created_at, where it is there.", "created-at-column", default=None)
    ] = ("created_at",)
    license: Annotated[
        Columns, Option("Licence of a row. Default: license, where it is there.", "license-column", default=None)
    ] = ("license",)


class SourceLabels(RecipeSection):
    """What holds for every document of a local source.

    Attributes:
        license_tag: of rows that don't say their own.
    """

    source: str
    domain: Annotated[str, Option("What kind of text.")] = "unknown"
    license_tag: Annotated[str, Option("Of rows that don't say theirs.", "license")] = "unknown"

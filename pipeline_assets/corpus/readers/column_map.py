"""Which column of a source is which field of a Document."""

from typing import Annotated

from pipeline_assets.corpus.spine.errors import IN_RECIPE, key
from pipeline_assets.corpus.spine.recipe import Option, RecipePart


def another_column(field: str) -> str:
    """What to do about a field's column that isn't there."""
    name = f"columns.{field}"
    or_none = "" if field == "text" else key(name, ", or to null", ", or leave it out")
    return f"set {key(name, IN_RECIPE)} to one that is there{or_none}"


class ColumnMap(RecipePart):
    """Which source column is which field of a Document; None where the source has none.

    A name is that of a column, else a path into nested ones: `metadata.url` is `url` of the object `metadata`. The
    columns of text, id and date leave `meta`, all others stay there.
    """

    text: Annotated[str, Option("Column, or path such as body.text.", "text-column", default="text")]
    id: Annotated[str | None, Option("Default: ids are derived from texts.", "id-column", default=None)]
    created_at: Annotated[str | None, Option("Date of a row.", "created-at-column", default=None)]


class LicensedColumns(ColumnMap):
    """The same for sources whose rows may say their own licence.

    Attributes:
        id: text or whole numbers; a row without one gets a derived id.
        created_at: kept as text, as it came.
        license: the row's licence, lower-cased; a row without one has the recipe's, and one that is no text (a list,
            say) is `unknown`. The column stays in `meta` as it came.
    """

    license: Annotated[str | None, Option("Licence of a row.", "license-column", default=None)]

"""Which column of a source is which field of a Document."""

from pipeline_assets.corpus.spine.recipe import RecipePart


class ColumnMap(RecipePart):
    """Which source column is which field of a Document; None where the source has none.

    A name is that of a column, else a path into nested ones: `metadata.url` is `url` of the object `metadata`. The
    columns of text, id and date leave `meta`, all others stay there.
    """

    text: str
    id: str | None
    created_at: str | None


class LicensedColumns(ColumnMap):
    """The same for sources whose rows may say their own licence.

    Attributes:
        id: text or whole numbers; a row without one gets a derived id.
        created_at: kept as text, as it came.
        license: the row's licence, lower-cased; a row without one has the recipe's, and one that is no text (a list,
            say) is `unknown`. The column stays in `meta` as it came.
    """

    license: str | None

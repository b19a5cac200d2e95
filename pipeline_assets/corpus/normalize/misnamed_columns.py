"""Search for misspelt columns of a recipe, which have no value in any document."""

from collections.abc import Iterable, Mapping

from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.normalize.row_converter import NO_SUCH_COLUMN
from pipeline_assets.corpus.readers.column_recipe import LicensedColumns, column_fix
from pipeline_assets.spine.artifact import Artifact, Verdict
from pipeline_assets.spine.rejects import Reject

_WITHOUT_VALUES_KEY = "columns_without_values"
_FIELD_COUNT_PREFIX = "found/"  # of a receipt's counts of fields with values


def count_fields_with_values(fields_with_values: Iterable[str], writer: ShardWriter) -> None:
    """Add 1 to the count `found/<field>` for each Document field with a value."""
    for field in sorted(fields_with_values):
        writer.count(f"{_FIELD_COUNT_PREFIX}{field}")


def columns_without_values(columns: LicensedColumns, counts: Mapping[str, int]) -> dict[str, list[str]]:
    """Return the decision that lists the columns without any value; {} if none.

    A field is checked only if the recipe names a single column for it. The text is not checked.
    """
    named = [(field, name) for field, name in columns if field != "text" and isinstance(name, str)]
    missing = [name for field, name in named if not counts.get(f"{_FIELD_COUNT_PREFIX}{field}")]
    return {_WITHOUT_VALUES_KEY: missing} if missing else {}


def named_columns_have_values(normalized: Artifact) -> Verdict:
    """Check that each column for id, date or licence has a value in some document.

    A misspelt column name would give every row a derived id, no date, or the recipe's licence.
    """
    missing = normalized.manifest.identity.decisions.get(_WITHOUT_VALUES_KEY, [])
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        return Verdict(False, f"no document has a value for {names}; check the spelling")
    return Verdict(True, "every named column has values")


def reject_fix(first_reject: Reject | None) -> str:
    """Return advice, based on the first reject, for a build with too many rejects."""
    if first_reject is None or not first_reject.detail.startswith(NO_SUCH_COLUMN):
        return "inspect these rows"
    return f"{column_fix('text')}, or move files with other columns to a source of their own"

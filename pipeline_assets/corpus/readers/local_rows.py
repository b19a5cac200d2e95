"""A row of a local file → a Document, by a map of columns."""

import datetime
from typing import Annotated, Any

from pipeline_assets.corpus.document import DeriveId, Document, derived_doc_id
from pipeline_assets.corpus.readers.column_map import LicensedColumns
from pipeline_assets.corpus.readers.column_paths import find_column
from pipeline_assets.corpus.readers.row_faults import Fault, text_fault
from pipeline_assets.corpus.spine.recipe import Option, RecipePart
from pipeline_assets.corpus.spine.rejects import Reject

NO_SUCH_COLUMN = "no such column; there are "  # and those that there are: the detail of a row without text
_DATES = (str, int, float, datetime.datetime, datetime.date)


class SourceLabels(RecipePart):
    """What holds for every document of a local source.

    Attributes:
        license_tag: of rows that don't say their own.
    """

    source: str
    domain: Annotated[str, Option("What kind of text.")]
    license_tag: Annotated[str, Option("Of rows that don't say theirs.", "license", default="unknown")]


class RowMap:
    """Makes Documents of the rows of a file."""

    def __init__(self, columns: LicensedColumns, labels: SourceLabels, file_name: str, derive_id: DeriveId) -> None:
        self._columns = [(field, name) for field, name in columns if name is not None]
        self._license_column = columns.license
        self._source, self._domain, self._license_tag = labels.source, labels.domain, labels.license_tag
        self._file_name, self._derive_id = file_name, derive_id

    def document(self, row: dict[str, Any], place: int) -> Document | Reject:
        """The row as a Document, which takes it over as its `meta`.

        Args:
            place: of the row in its file.
        """
        found = {field: find_column(row, name) for field, name in self._columns}
        values = {field: at[0][at[1]] for field, at in found.items() if at is not None}
        if "text" not in values:
            detail = f"{NO_SUCH_COLUMN}{', '.join(list(row)[:8]) or 'none'}"
            return Reject(self._file_name, place, "no_text", detail)
        text, doc_id, created_at = values["text"], _id(values.get("id")), values.get("created_at")
        fault = _fault(text, doc_id, created_at)
        if fault is not None:
            return Reject(self._file_name, place, fault.reason, fault.detail)
        for field, at in found.items():
            if at is not None and field != "license":
                at[0].pop(at[1], None)
        license_tag, row["license_evidence"] = self._licence(values.get("license"))
        row["source_file"], row["source_row"] = self._file_name, place
        return Document(
            text=text,
            source=self._source,
            domain=self._domain,
            doc_id=doc_id or self._derive_id(text),
            license_tag=license_tag,
            created_at=None if created_at is None else str(created_at),
            meta=row,
        )

    def _licence(self, value: object) -> tuple[str, str]:
        """(tag, what it rests on)."""
        if value is None or value == "":
            return self._license_tag, "recipe"
        return (value.strip().lower() if isinstance(value, str) else "unknown"), f"row: {self._license_column}"


def local_doc_id(source: str, text: str) -> str:
    """The id of a local text without one: `derived_doc_id` with `local` as dataset, the source's name as config, no
    split. File names have no part in it: a file that is renamed, split or compressed keeps its ids.
    """
    return derived_doc_id("local", source, "", text)


def _id(value: Any) -> Any:
    """Whole numbers as text, an empty text as none."""
    if type(value) is int:
        return str(value)
    return None if value == "" else value


def _fault(text: object, doc_id: object, created_at: object) -> Fault | None:
    fault = text_fault(text, doc_id)
    if fault is None and created_at is not None and not isinstance(created_at, _DATES):
        return Fault("wrong_type", f"created_at is {type(created_at).__name__}")
    return fault

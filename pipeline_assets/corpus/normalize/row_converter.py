"""Conversion of source rows to Documents, by a map of columns."""

import datetime
import functools
from dataclasses import dataclass
from typing import Any

from pipeline_assets.corpus.document import Document, Meta, to_iso_time
from pipeline_assets.corpus.licences import LicenceTag
from pipeline_assets.corpus.readers.column_recipe import ColumnMap, LicensedColumns, SourceLabels
from pipeline_assets.corpus.readers.columns import Column, find_column
from pipeline_assets.corpus.readers.faults import Fault, Row
from pipeline_assets.corpus.snapshot.recipe import HubRowsSection
from pipeline_assets.spine.rejects import Reject

NO_SUCH_COLUMN = "no such column; there are "  # detail of a row without text, before the names of its columns
_DATE_TYPES = (str, int, float, datetime.datetime, datetime.date, type(None))
_VALUE_TYPES: dict[str, tuple[type, ...]] = {"id": (str, int), "created_at": _DATE_TYPES[:-1], "license": (str,)}
DocumentOrReject = Document | Reject


@dataclass
class RowConverter:
    """Converter of a file's rows to Documents, by a map of columns.

    Attributes:
        columns: Column of each Document field, or several columns as alternatives.
        source_section: Recipe section with source, domain and default licence; derives missing ids.
        file_name: Name of the file in rejects and in the meta of its Documents.
        default_licence: Licence of rows that do not state their own; None uses the licence of `source_section`.
        fields_with_values: Document fields for which rows had values; the converter adds to this set.
    """

    columns: ColumnMap | LicensedColumns
    source_section: SourceLabels | HubRowsSection
    file_name: str
    default_licence: LicenceTag | None = None
    fields_with_values: set[str] | None = None

    def __post_init__(self) -> None:
        # A column without alternatives may have a value of any type (None).
        self._columns = [
            (field, (name,), None) if isinstance(name, str) else (field, name, _VALUE_TYPES[field])
            for field, name in self.columns
            if name is not None
        ]
        self._is_licensed = isinstance(self.columns, LicensedColumns)
        self._licence = self.default_licence or LicenceTag(self.source_section.license_tag, "recipe")
        self._reject = functools.partial(Reject, self.file_name)

    def to_document(self, row: Row, position: int) -> DocumentOrReject:
        """Convert or reject a row; `row`, without its text and id, becomes the meta."""
        if isinstance(row, Fault):
            return row.to_reject(self.file_name, position)
        columns = self._find_columns(row)
        values = {field: column.value for field, column in columns.items()}
        if "text" not in values:
            detail = f"{NO_SUCH_COLUMN}{', '.join(list(row)[:8]) or 'none'}"
            return self._reject(position, "no_text", detail)
        text, doc_id, created_at = values["text"], values.get("id"), values.get("created_at")
        if self._is_licensed and type(doc_id) is int:
            doc_id = str(doc_id)
        if reject := self._check_values(position, text, doc_id, created_at):
            return reject
        if self.fields_with_values is not None and len(self.fields_with_values) < len(self._columns):
            self.fields_with_values.update(field for field, value in values.items() if value not in (None, ""))
        for field, column in columns.items():
            if field in ("text", "id"):
                column.parent.pop(column.key, None)
        license_tag, evidence = self._row_licence(columns.get("license"))
        return Document(
            text=text,
            source=self.source_section.source,
            domain=self.source_section.domain,
            doc_id=doc_id or self.source_section.derive_id(text),
            license_tag=license_tag,
            created_at=to_iso_time(created_at),
            meta=Meta.from_mapping(self.file_name, position, row, evidence),
        )

    def _check_values(self, position: int, text: object, doc_id: object, created_at: object) -> Reject | None:
        """Return the reject of a row with unusable values; None if they are usable."""
        if text is None:
            return self._reject(position, "no_text", "null")
        if not isinstance(text, str):
            return self._reject(position, "wrong_type", f"text is {type(text).__name__}")
        if doc_id is not None and not isinstance(doc_id, str):
            return self._reject(position, "wrong_type", f"id is {type(doc_id).__name__}")
        if not text:
            return self._reject(position, "empty_text")
        if self._is_licensed and not isinstance(created_at, _DATE_TYPES):
            return self._reject(position, "wrong_type", f"created_at is {type(created_at).__name__}")
        return None

    def _find_columns(self, row: dict[str, Any]) -> dict[str, Column]:
        """Find a row's columns by field; try alternatives until a value is valid."""
        columns = {}
        for field, names, types in self._columns:
            for name in names:
                column = find_column(row, name)
                if column is not None and (types is None or type(column.value) in types):  # a bool is not an int
                    columns[field] = column
                    break
        return columns

    def _row_licence(self, column: Column | None) -> tuple[str, str]:
        """Return a row's licence tag, and the evidence for it, such as `row: license`."""
        if column is None or column.value is None or column.value == "":
            return self._licence.tag, self._licence.evidence
        tag = column.value.strip().lower() if isinstance(column.value, str) else "unknown"
        return tag, f"row: {column.name}"

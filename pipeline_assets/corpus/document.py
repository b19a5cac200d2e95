"""Document: the row that every text reader yields and every text stage reads."""

import contextlib
import datetime
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

DeriveId = Callable[[str], str]
"""Function that derives the id of a text whose source has no id; picklable."""
_FIELD_COLUMNS = ("title", "url", "language")
_ORIGIN_FIELDS = ("source_file", "source_row", "license_evidence")
# Stricter than Python's parser, which reads milliseconds (`1512041251000`) as a day of the year 1512, and in some
# versions accepts hour 24.
_DATE_OR_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ](?!24).*)?")
_extra_decoder = msgspec.json.Decoder(dict[str, Any])


class Meta(msgspec.Struct, frozen=True):
    """Origin of a document, and columns of its source row.

    Attributes:
        source_file: Name of the row's file in a source folder or hub dataset.
        source_row: Number of the row in that file, or the byte at which the row begins: see `readers/lines.py`.
        license_evidence: Evidence for the document's `license_tag`, such as `recipe`.
        title, url, language: Text of the column with this name; "" if its value is not text, or is a date.
        extra: JSON object of all other columns, with unchanged values. If the field `title`, `url` or `language` is "",
            the column with this name is in `extra`, too.
    """

    source_file: str
    source_row: int
    license_evidence: str = "recipe"
    title: str = ""
    url: str = ""
    language: str = ""
    extra: str = "{}"

    @classmethod
    def from_mapping(
        cls, source_file: str, source_row: int, columns: dict[str, Any], license_evidence: str = "recipe"
    ) -> "Meta":
        """Build the meta of a row; columns that become fields are removed from `columns`."""
        present = [name for name in _FIELD_COLUMNS if name in columns]
        named = {name: columns.pop(name) for name in present if _is_plain_text(columns[name])}
        extra = msgspec.json.encode(columns).decode() if columns else "{}"
        return cls(source_file, source_row, license_evidence, **named, extra=extra)

    @property
    def source_location(self) -> str:
        """Source row in the form that `trace --source` reads."""
        return f"{self.source_file}#{self.source_row}"

    def columns(self) -> dict[str, Any]:
        """Return the source's columns and `source_file`, `source_row`, `license_evidence`.

        If a source column has one of these three names, its value is only in `extra`.
        """
        named = {name: value for name in _FIELD_COLUMNS if (value := getattr(self, name))}
        return _extra_decoder.decode(self.extra) | named | {name: getattr(self, name) for name in _ORIGIN_FIELDS}


def _is_plain_text(value: object) -> bool:
    """Check whether a value is text that is not empty and not a date.

    Dates are excluded: if the first titles were dates, some readers of JSON lines would read the whole column as dates.
    """
    return isinstance(value, str) and bool(value) and not _DATE_OR_TIME.fullmatch(value)


class Document(msgspec.Struct, frozen=True):
    """Text with its origin; `COLUMN_DESCRIPTIONS` describes the fields.

    Fields are written in this order, so equal documents are encoded as equal bytes. A missing value is "", not null,
    because readers of JSON lines infer the types of columns from the first rows.
    """

    text: str
    source: str
    domain: str
    doc_id: str
    license_tag: str
    created_at: str  # date in the form of `to_iso_time`
    meta: Meta


COLUMN_DESCRIPTIONS: Final = {
    "text": "Text of the source row without NUL characters, as changed by filters and decontamination.",
    "source": "Name of the source in the recipe.",
    "domain": "Kind of text according to the recipe, such as `web` or `code`.",
    "doc_id": "Id from the source row, else derived from the text; unique in its source.",
    "license_tag": "SPDX identifier in lower case, `public-domain`, `proprietary` or `unknown`.",
    "created_at": "Date in UTC, such as `2013-05-18T05:48:54.000`; empty if missing.",
    "meta.source_file": "File of the source that contains the row.",
    "meta.source_row": "Number of the row in that file, or the byte at which it begins.",
    "meta.license_evidence": "Basis of `license_tag`, such as `recipe`.",
    "meta.title": "Column `title` of the source.",
    "meta.url": "Column `url` of the source.",
    "meta.language": "Column `language` of the source.",
    "meta.extra": "JSON object of all other columns of the source.",
}
"""Descriptions of a Document's columns; fields of `meta` are `meta.field`."""


def to_iso_time(date: str | float | datetime.date | None) -> str:
    """Format a date as ISO 8601 in UTC with milliseconds: `2013-05-18T05:48:54.000`.

    A time without a zone is read as UTC, and a date without a time as midnight. A number, or text that is not an
    ISO 8601 date, is returned as text; None becomes "".
    """
    if isinstance(date, str) and _DATE_OR_TIME.fullmatch(date):
        with contextlib.suppress(ValueError):
            date = datetime.datetime.fromisoformat(date)
    elif isinstance(date, datetime.date) and not isinstance(date, datetime.datetime):
        date = datetime.datetime.combine(date, datetime.time())
    if not isinstance(date, datetime.datetime):
        return "" if date is None else str(date)
    if date.tzinfo is not None:
        with contextlib.suppress(OverflowError):  # in UTC before the first day or after the last: keep it
            date = date.astimezone(datetime.UTC).replace(tzinfo=None)
    return date.isoformat(timespec="milliseconds")


def utf8_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8"))


def derive_doc_id(dataset: str, config: str, split: str, text: str) -> str:
    """Derive a document id: hex sha256 of dataset, config, split, text, joined by NUL.

    The revision is not part of the id, so that a text has the same id, and thus the same split, in every revision.
    """
    return hashlib.sha256("\0".join((dataset, config, split, text)).encode("utf-8")).hexdigest()

"""Document: the row that every text reader yields and every text stage reads."""

import contextlib
import datetime
import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec

from pipeline_assets.spine.errors import InputError

DeriveId = Callable[[str], str]
"""The id of a text whose source has none; picklable."""
_NAMED = ("title", "url", "language")
_PLACE = ("source_file", "source_row", "license_evidence")
# Less than Python's parser takes: that reads milliseconds, `1512041251000`, as a day of the year 1512, and takes 24 for
# an hour in some versions alone.
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ](?!24).*)?")
_extra_decoder = msgspec.json.Decoder(dict[str, Any])


class Meta(msgspec.Struct, frozen=True):
    """Which row a document was, and what else its source says of it.

    Attributes:
        source_file: of a source folder or a hub dataset.
        source_row: number of the row in it, or the byte at which it begins: see `readers/lines.py`.
        license_evidence: what `license_tag` rests on.
        title, url, language: columns of these names that are text, and no dates; "" where there is none.
        extra: a JSON object of all other columns, as they came: of these names, what is null, "", a date, or no text.
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
        """What a row's columns say; those that have fields of their own leave `columns`."""
        named = {name: columns.pop(name) for name in _NAMED if _is_plain_text(columns.get(name))}
        extra = msgspec.json.encode(columns).decode() if columns else "{}"
        return cls(source_file, source_row, license_evidence, **named, extra=extra)

    def columns(self) -> dict[str, Any]:
        """The columns that its source has, by name, and the place and `license_evidence`, as rules ask for them. A
        source's own column of such a name is in `extra` alone.
        """
        named = {name: value for name in _NAMED if (value := getattr(self, name))}
        return _extra_decoder.decode(self.extra) | named | {name: getattr(self, name) for name in _PLACE}


def _is_plain_text(value: object) -> bool:
    """Titles such as `2013-05-18` would be times for readers that take a column's type from its first rows."""
    return isinstance(value, str) and bool(value) and not _MOMENT.fullmatch(value)


_meta_decoder = msgspec.json.Decoder(Meta)


def arrow_columns(meta: bytes | msgspec.Raw, where: object) -> dict[str, Any]:
    """As `Meta.columns`, of a `meta` as it is written.

    Raises:
        InputError: it is none.
    """
    try:
        return _meta_decoder.decode(meta).columns()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"a document's `meta` can't be read ({error})", where, "build the corpus again") from None


class Document(msgspec.Struct, frozen=True):
    """One text and where it came from. Fields are written in this order, so equal documents are equal bytes.

    Every document has every field, "" where its source says nothing: readers of JSON lines take a column's type from
    the first rows that they see, and a column of nulls there refuses the texts of another source.

    Attributes:
        text: as it came; only NUL characters are removed.
        source: which corpus.
        domain: what kind of text.
        doc_id: the source's stable id, else `derived_doc_id`; unique in a corpus.
        license_tag: of the source.
        created_at: as `parse_moment` writes it.
        meta: which row this was, and its other columns.
    """

    text: str
    source: str
    domain: str
    doc_id: str
    license_tag: str
    created_at: str
    meta: Meta


class RawDocument(Document, frozen=True):
    """A Document of whose meta not a byte moves."""

    meta: msgspec.Raw  # type: ignore[assignment]


RAW_DOCUMENTS = msgspec.json.Decoder(RawDocument)


def with_text(document: RawDocument, text: str) -> bytes:
    """The document as a line, without its line feed, that has this text and is the same otherwise."""
    return msgspec.json.encode(msgspec.structs.replace(document, text=text))


class DocumentText(msgspec.Struct, frozen=True):
    """The fields that tokenising reads; decoding skips the others."""

    doc_id: str
    text: str
    license_tag: str


class LicensedText(msgspec.Struct, frozen=True):
    """A text and its licence; decoding skips the other fields."""

    text: str
    license_tag: str


def parse_moment(value: str | float | datetime.date | None) -> str:
    """A date as ISO 8601 in UTC, to the millisecond: `2013-05-18T05:48:54.000`. A time without a zone is taken for UTC,
    a day for its beginning; what isn't written as `2013-05-18`, with or without a time, is kept as text; "" where there
    is none.

    One form for all sources: readers of JSON lines take other forms for times in one file, and for text in the next.
    """
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        with contextlib.suppress(ValueError):
            value = datetime.datetime.fromisoformat(value)
    elif isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        value = datetime.datetime.combine(value, datetime.time())
    if not isinstance(value, datetime.datetime):
        return "" if value is None else str(value)
    if value.tzinfo is not None:
        with contextlib.suppress(OverflowError):  # in UTC it is before the first day, or after the last: it stays
            value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value.isoformat(timespec="milliseconds")


def derived_doc_id(dataset: str, config: str, split: str, text: str) -> str:
    """The id of a text whose source has none: hex sha256 of dataset, config, split and text, joined by NUL.

    The revision has no part in it: a text keeps its id, and with it its split, when the dataset moves on.
    """
    return hashlib.sha256("\0".join((dataset, config, split, text)).encode("utf-8")).hexdigest()

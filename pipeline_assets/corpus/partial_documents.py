"""Documents that are decoded only in part, which saves time."""

from collections.abc import Mapping
from typing import Any

import msgspec

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.spine.errors import InputError

_meta_decoder = msgspec.json.Decoder(Meta)


def decode_columns(meta: bytes | msgspec.Raw, where: object) -> dict[str, Any]:
    """Return the `columns` of an encoded `Meta`; raise InputError if it is invalid."""
    try:
        return _meta_decoder.decode(meta).columns()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"a document's `meta` is invalid ({error})", where, "rebuild the corpus") from None


class RawDocument(Document, frozen=True, gc=False):
    """Document with undecoded `meta`, whose bytes are unchanged when written back."""

    meta: msgspec.Raw  # type: ignore[assignment]


RAW_DECODER = msgspec.json.Decoder(RawDocument)


def encode_with_text(document: RawDocument, text: str) -> bytes:
    """Replace a document's text; return the document as JSON without a line feed."""
    return msgspec.json.encode(msgspec.structs.replace(document, text=text))


def add_columns(document: RawDocument, columns: Mapping[str, float]) -> RawDocument:
    """Return a document with columns added to `meta.extra`.

    The bytes of all other columns are unchanged.
    """
    meta, added = _meta_decoder.decode(document.meta), msgspec.json.encode(columns).decode()
    extra = added if meta.extra == "{}" else f"{meta.extra[:-1]},{added[1:]}"
    encoded = msgspec.json.encode(msgspec.structs.replace(meta, extra=extra))
    return msgspec.structs.replace(document, meta=msgspec.Raw(encoded))


class DocumentText(msgspec.Struct, frozen=True, gc=False):
    """Document fields that tokenizing needs; decoding skips the other fields."""

    doc_id: str
    text: str
    license_tag: str


class LicensedText(msgspec.Struct, frozen=True, gc=False):
    """Text and licence of a document; decoding skips the other fields."""

    text: str
    license_tag: str

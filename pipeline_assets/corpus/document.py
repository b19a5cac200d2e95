"""Document: the row that every text reader yields and every text stage reads."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

DeriveId = Callable[[str], str]
"""The id of a text whose source has none; picklable."""


class Document(msgspec.Struct, frozen=True):
    """One text and where it came from. Fields are written in this order, so equal documents are equal bytes.

    Attributes:
        text: as it came; only NUL characters are removed.
        source: which corpus.
        domain: what kind of text.
        doc_id: the source's stable id, else `derived_doc_id`; unique in a corpus.
        license_tag: of the source.
        created_at: as the source says it, None where it says nothing.
        meta: the kept source columns, and `source_file`, `source_row`: which row of which hub file this was.
    """

    text: str
    source: str
    domain: str
    doc_id: str
    license_tag: str
    created_at: str | None
    meta: dict[str, Any]


class DocumentText(msgspec.Struct, frozen=True):
    """The fields that tokenising reads; decoding skips the others."""

    doc_id: str
    text: str
    license_tag: str


def derived_doc_id(dataset: str, config: str, split: str, text: str) -> str:
    """The id of a text whose source has none: hex sha256 of dataset, config, split and text, joined by NUL.

    The revision has no part in it: a text keeps its id, and with it its split, when the dataset moves on.
    """
    return hashlib.sha256("\0".join((dataset, config, split, text)).encode("utf-8")).hexdigest()

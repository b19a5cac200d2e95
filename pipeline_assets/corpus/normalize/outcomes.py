"""What becomes of a source's rows: Documents and rejects, into a shard; licences as the table has them."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from pipeline_assets.corpus.document import DeriveId, Document
from pipeline_assets.corpus.document_shards.shard_writer import ShardWriter
from pipeline_assets.corpus.licences import LicenceTable
from pipeline_assets.corpus.spine.rejects import Reject

_BATCH_CHARACTERS, _BATCH_DOCUMENTS = 1 << 20, 1 << 12
_EVIDENCE = "license_evidence"


class Dropped(Protocol):
    """A row that a rule of the reader keeps out."""

    @property
    def reason(self) -> str:
        """The rule's code."""


def write_outcomes(
    outcomes: Iterable[Document | Reject | Dropped], writer: ShardWriter, derive_id: DeriveId, licences: LicenceTable
) -> int:
    """Writes Documents and rejects in their order, and counts what is dropped.

    Returns:
        how many outcomes there were.
    """
    batch: list[Document] = []
    characters = number = 0
    for outcome in outcomes:
        number += 1
        if isinstance(outcome, Reject):
            writer.reject(outcome)
            continue
        if not isinstance(outcome, Document):
            writer.count(f"dropped/{outcome.reason}")
            continue
        document = _as_written(outcome, writer, derive_id, licences)
        if isinstance(document, Reject):
            writer.reject(document)
            continue
        batch.append(document)
        characters += len(document.text)
        if characters > _BATCH_CHARACTERS or len(batch) == _BATCH_DOCUMENTS:
            writer.write(batch)
            batch, characters = [], 0
    writer.write(batch)
    return number


def _as_written(
    document: Document, writer: ShardWriter, derive_id: DeriveId, licences: LicenceTable
) -> Document | Reject:
    changes: dict[str, object] = {}
    if "\0" in document.text:
        text = writer.without_nul(document.text)
        if not text:
            file, row = document.meta["source_file"], document.meta["source_row"]
            return Reject(file, row, "empty_text", "nothing but NUL")
        is_derived = document.doc_id == derive_id(document.text)
        changes |= {"text": text} | ({"doc_id": derive_id(text)} if is_derived else {})
    if document.license_tag not in licences:
        licensed = licences.licensed(document.license_tag, str(document.meta.get(_EVIDENCE, "row")))
        changes |= {"license_tag": licensed.tag, "meta": document.meta | {_EVIDENCE: licensed.evidence}}
    return msgspec.structs.replace(document, **changes) if changes else document


def no_derived_id(text: str) -> str:
    """For sources whose every row has an id."""
    return ""

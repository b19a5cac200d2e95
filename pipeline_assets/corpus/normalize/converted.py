"""Steps that turn the converted rows of any kind of source into an artifact."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pipeline_assets.corpus.converted_shards import ShardWriter, finalize_shards, gather_rejects, read_rejects
from pipeline_assets.corpus.document import DeriveId, Document
from pipeline_assets.corpus.document_sizes import SIZES_NOTE, describe_outsized_document
from pipeline_assets.corpus.licences import LicenceTable
from pipeline_assets.corpus.normalize.forgotten import forget_documents
from pipeline_assets.corpus.normalize.misnamed_columns import reject_fix
from pipeline_assets.corpus.normalize.row_converter import DocumentOrReject
from pipeline_assets.corpus.readers.row_positions import format_numbered_reject
from pipeline_assets.corpus.readers.unreadable import UnreadableFiles
from pipeline_assets.corpus.removals import NO_REMOVALS, Removals
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.ledger import Ledger, check_rejects, dropped_key
from pipeline_assets.spine.rejects import Reject, RejectFormatter
from pipeline_assets.spine.staging import Receipt, StagingDir, total_counts

_MIN_REJECT_LIMIT = 5  # of a local source, see `floor` of `check_rejects`
_BATCH_CHARACTERS, _BATCH_DOCUMENTS = 1 << 20, 1 << 12
_NUL_NOTE = "first_nul"  # of a shard: file and row of the first document with NUL characters


def no_derived_id(text: str) -> str:
    """Return an empty id, for sources whose rows all have ids of their own."""
    return ""


def write_outcomes(
    outcomes: Iterable[DocumentOrReject | str], writer: ShardWriter, derive_id: DeriveId, licences: LicenceTable | None
) -> int:
    """Write Documents and rejects, count dropped rows; return the number of outcomes.

    A string in `outcomes` is the reason code of a dropped row. A licence tag that is not in the table `licences` is
    replaced: by the tag that the table has for this spelling, or by `unknown`. If `licences` is None, tags are kept.
    """
    batch: list[Document] = []
    characters = number = 0
    for outcome in outcomes:
        number += 1
        row = _clean_document(outcome, writer, derive_id, licences) if isinstance(outcome, Document) else outcome
        match row:
            case Document():
                batch.append(row)
                characters += len(row.text)
            case Reject():
                writer.reject(row)
            case str():
                writer.count(dropped_key(row))
        if characters > _BATCH_CHARACTERS or len(batch) == _BATCH_DOCUMENTS:
            writer.write(batch)
            batch, characters = [], 0
    writer.write(batch)
    return number


def _clean_document(
    document: Document, writer: ShardWriter, derive_id: DeriveId, licences: LicenceTable | None
) -> DocumentOrReject:
    """Remove NUL characters and replace unlisted licence tags; reject NUL-only text."""
    changes: dict[str, object] = {}
    if "\0" in document.text:
        text = document.text.replace("\0", "")
        if not text:
            return Reject(document.meta.source_file, document.meta.source_row, "empty_text", "nothing but NUL")
        writer.notes.setdefault(_NUL_NOTE, [document.meta.source_file, document.meta.source_row])
        writer.count("nul_documents")
        writer.count("nul_characters_removed", len(document.text) - len(text))
        is_derived = document.doc_id == derive_id(document.text)
        changes |= {"text": text} | ({"doc_id": derive_id(text)} if is_derived else {})
    if licences is not None and document.license_tag not in licences:
        licensed = licences.find_licence_tag(document.license_tag, document.meta.license_evidence)
        meta = msgspec.structs.replace(document.meta, license_evidence=licensed.evidence)
        changes |= {"license_tag": licensed.tag, "meta": meta}
    return msgspec.structs.replace(document, **changes) if changes else document


@dataclass(frozen=True)
class ConvertedSource:
    """Converted shards of a source, before repeated ids are removed.

    Attributes:
        receipts: Receipts by shard, in manifest order.
        derive_id: Derives an id from the text of a row without an id.
        decisions: Decisions that depend on the rows, such as columns without values; stored in the manifest.
        is_expected_reject: Checks if a reject is normal for the source. Normal rejects do not count against the limit.
        unsharded_counts: Counts of rows that are in no shard.
        reject_formatter: Formats a reject for error messages.
        unreadable_files: Unreadable files. None if the source is not local: then the limit on rejects has no minimum.
    """

    receipts: Mapping[str, Receipt]
    derive_id: DeriveId
    decisions: Mapping[str, Any] = field(default_factory=dict)
    is_expected_reject: Callable[[Reject], bool] = lambda reject: False
    unsharded_counts: Mapping[str, int] = field(default_factory=dict)
    reject_formatter: RejectFormatter = format_numbered_reject
    unreadable_files: UnreadableFiles | None = None


def finish_source(
    staging: StagingDir,
    source: ConvertedSource,
    max_reject_fraction: str,
    settings: RunSettings,
    where: object = None,
    fix: str = "correct the source in the recipe, or remove it",
    removals: Removals = NO_REMOVALS,
) -> BuildResult:
    """Check a source's rejects and Documents, and write its final shards and counts.

    Documents on the list `removals` are dropped. Raise InputError if the unexpected rejects or the lost files exceed
    `max_reject_fraction`. Raise InputError about `where` (by default, the build's target) if more than 1 % of the
    documents had NUL characters, or no document is kept. `fix` is the advice if no row became a document.
    """
    receipts = list(source.receipts.values())
    counts = total_counts([*receipts, Receipt([], source.unsharded_counts)])

    def unexpected_rejects() -> Iterator[Reject]:
        return itertools.filterfalse(source.is_expected_reject, read_rejects(staging, receipts))

    bad, rows, formatter = sum(1 for _ in unexpected_rejects()), counts.get("rows", 0), source.reject_formatter
    floor = 0
    if source.unreadable_files is not None:
        source.unreadable_files.raise_if_above_limit(max_reject_fraction, staging.target)
        floor = _MIN_REJECT_LIMIT
    check_rejects(bad, rows, max_reject_fraction, unexpected_rejects(), staging.target, formatter, reject_fix, floor)
    named = forget_documents(staging, source.receipts, removals, settings) if removals.entries else source.receipts
    finalized = finalize_shards(staging, named, source.derive_id, settings)
    counts = total_counts([*finalized, Receipt([], source.unsharded_counts)])
    places = (receipt.notes[_NUL_NOTE] for receipt in receipts if _NUL_NOTE in receipt.notes)
    first_nul = next((f" (the first: {formatter(Reject(file, row, 'U+0000'))})" for file, row in places), "")
    check_document_counts(counts, where or staging.target, fix, first_nul)
    rejects = gather_rejects(staging, receipts, finalized, settings.zstd_level)
    return BuildResult(
        files=[*(receipt.files[0] for receipt in finalized), rejects],
        counts=manifest_counts(counts),
        decisions=source.decisions,
        provenance=describe_outsized_document(receipt.notes.get(SIZES_NOTE, {}) for receipt in named.values()),
    )


def check_document_counts(counts: Mapping[str, int], where: object, fix: str, first_nul: str = "") -> None:
    """Raise InputError if no documents remain, or if over 1 % of documents had NULs.

    `first_nul` is appended to the message about NULs. `fix` is the advice if no row became a document.
    """
    documents, with_nul = counts.get("documents", 0), counts.get("nul_documents", 0)
    if 100 * with_nul > documents:
        what = f"{with_nul:,} of {documents:,} documents contain NUL characters, more than 1 %{first_nul}"
        remedy = "the text may be corrupt; remove these characters from its files, or choose another commit or source"
        raise InputError(what, where, remedy)
    if not documents and not counts.get("rows"):
        raise InputError("the files contain no rows", where, "choose files with rows, or remove the source")
    if not documents:
        reasons = ", ".join(
            f"{count:,} {reason or fate}" for fate, reason, count in Ledger.from_counts(counts).other_outcomes()
        )
        raise InputError(f"none of the {counts['rows']:,} rows became a document ({reasons})", where, fix)


def manifest_counts(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return a manifest's ledger and counts of documents, bytes, NULs and pages."""
    return {
        "ledger": Ledger.from_counts(counts).to_json(),
        "documents": counts["documents"],
        "text_bytes": counts["bytes"],
        "nul_documents": counts.get("nul_documents", 0),
        "nul_characters_removed": counts.get("nul_characters_removed", 0),
    } | ({"pages": counts["pages"]} if "pages" in counts else {})

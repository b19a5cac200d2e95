"""Rows of any source → Documents: the map of columns, what becomes of each row, and the artifact that they end in.

Every row is a Document, a reject with its reason, or dropped by a rule that is counted.
"""

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pipeline_assets.corpus.converted_shards import (
    ShardWriter,
    check_documents,
    document_counts,
    gather_rejects,
    publish,
    read_rejects,
)
from pipeline_assets.corpus.document import DeriveId, Document, Meta, derived_doc_id, parse_moment
from pipeline_assets.corpus.document_sizes import SIZES, outsized_document
from pipeline_assets.corpus.licences import LicenceTable, Licensed
from pipeline_assets.corpus.readers.column_recipe import ColumnMap, LicensedColumns, SourceLabels, column_fix
from pipeline_assets.corpus.readers.columns import Column, Fault, find_column
from pipeline_assets.corpus.readers.row_positions import format_numbered_reject
from pipeline_assets.corpus.snapshot.recipe import HubRows
from pipeline_assets.spine.artifact import Artifact, Verdict, copy_manifest
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import THE_RECIPE
from pipeline_assets.spine.ledger import Reject, RejectFormatter, check_rejects, dropped_key
from pipeline_assets.spine.manifest import FILE_NAME, StageVersion
from pipeline_assets.spine.stage import Shard, Work
from pipeline_assets.spine.staging import Receipt, StagingDir, total_counts

_NO_SUCH_COLUMN = "no such column; there are "  # and those that there are: the detail of a row without text
_DATES = (str, int, float, datetime.datetime, datetime.date, type(None))
_FITS: dict[str, tuple[type, ...]] = {"id": (str, int), "created_at": _DATES[:-1], "license": (str,)}
NORMALIZE_STAGE = StageVersion("normalize", 3)
WITHOUT_VALUES = "columns_without_values"
_STAGE = "normalize"
_FOUND = "found/"
_BATCH_CHARACTERS, _BATCH_DOCUMENTS = 1 << 20, 1 << 12
Row = Document | Reject
S = TypeVar("S", bound=Shard)


class RowMap:
    """Makes Documents of the rows of a file."""

    def __init__(
        self,
        columns: ColumnMap | LicensedColumns,
        labels: SourceLabels | HubRows,
        file_name: str,
        derive_id: DeriveId,
        licensed: Licensed | None = None,
        found: set[str] | None = None,
    ) -> None:
        """
        Args:
            licensed: the licence of rows that don't say theirs; None is that of the labels.
            found: receives the fields that some row has a value for.
        """
        self._columns = [(field, name) for field, name in columns if name is not None]
        self._is_licensed = isinstance(columns, LicensedColumns)
        self._source, self._domain = labels.source, labels.domain
        self._licensed = licensed or Licensed(labels.license_tag, "recipe")
        self._file_name, self._derive_id = file_name, derive_id
        self._found_fields = set[str]() if found is None else found

    def document(self, row: dict[str, Any], place: int) -> Document | Reject:
        """The row at a place of the file as a Document, which takes its columns over."""
        found = {field: self._found(row, field, name) for field, name in self._columns}
        values = {field: at.value for field, at in found.items() if at is not None}
        if "text" not in values:
            detail = f"{_NO_SUCH_COLUMN}{', '.join(list(row)[:8]) or 'none'}"
            return Reject(self._file_name, place, "no_text", detail)
        text, doc_id, created_at = values["text"], values.get("id"), values.get("created_at")
        if self._is_licensed and type(doc_id) is int:
            doc_id = str(doc_id)
        if fault := self._fault(text, doc_id, created_at):
            return fault.to_reject(self._file_name, place)
        if len(self._found_fields) < len(self._columns):
            self._found_fields.update(field for field, value in values.items() if value not in (None, ""))
        for field, at in found.items():
            if at is not None and field in ("text", "id"):
                at.holder.pop(at.key, None)
        license_tag, evidence = self._licence(found.get("license"))
        return Document(
            text=text,
            source=self._source,
            domain=self._domain,
            doc_id=doc_id or self._derive_id(text),
            license_tag=license_tag,
            created_at=parse_moment(created_at),
            meta=Meta.from_mapping(self._file_name, place, row, evidence),
        )

    def _fault(self, text: object, doc_id: object, created_at: object) -> Fault | None:
        """Why a row with these values can't be a Document; None if it can."""
        if text is None:
            return Fault("no_text", "null")
        if not isinstance(text, str):
            return Fault("wrong_type", f"text is {type(text).__name__}")
        if doc_id is not None and not isinstance(doc_id, str):
            return Fault("wrong_type", f"id is {type(doc_id).__name__}")
        if not text:
            return Fault("empty_text")
        if self._is_licensed and not isinstance(created_at, _DATES):
            return Fault("wrong_type", f"created_at is {type(created_at).__name__}")
        return None

    def _found(self, row: dict[str, Any], field: str, name: str | tuple[str, ...]) -> Column | None:
        """A field's column in a row; of several the first with a value that the field can have."""
        if isinstance(name, str):
            return find_column(row, name)
        columns = (find_column(row, one) for one in name)
        return next((one for one in columns if one is not None and isinstance(one.value, _FITS[field])), None)

    def _licence(self, column: Column | None) -> tuple[str, str]:
        """(tag, what it rests on)."""
        if column is None or column.value is None or column.value == "":
            return self._licensed.tag, self._licensed.evidence
        tag = column.value.strip().lower() if isinstance(column.value, str) else "unknown"
        return tag, f"row: {column.name}"


def local_doc_id(source: str, text: str) -> str:
    """The id of a local text without one: `derived_doc_id` with `local` as dataset, the source's name as config, no
    split. File names have no part in it: a file that is renamed, split or compressed keeps its ids.
    """
    return derived_doc_id("local", source, "", text)


def write_outcomes(
    outcomes: Iterable[Row | str],
    writer: ShardWriter,
    derive_id: DeriveId,
    licences: LicenceTable | None,
) -> int:
    """Writes Documents and rejects in their order, and counts what is dropped.

    Args:
        outcomes: Documents, rejects, and the codes of rules that dropped a row.
        licences: what licence tags become; None leaves them as they are.
    Returns:
        how many outcomes there were.
    """
    batch: list[Document] = []
    characters = number = 0
    for outcome in outcomes:
        number += 1
        written = _as_written(outcome, writer, derive_id, licences) if isinstance(outcome, Document) else outcome
        match written:
            case Document():
                batch.append(written)
                characters += len(written.text)
            case Reject():
                writer.reject(written)
            case str():
                writer.count(dropped_key(written))
        if characters > _BATCH_CHARACTERS or len(batch) == _BATCH_DOCUMENTS:
            writer.write(batch)
            batch, characters = [], 0
    writer.write(batch)
    return number


def _as_written(document: Document, writer: ShardWriter, derive_id: DeriveId, licences: LicenceTable | None) -> Row:
    changes: dict[str, object] = {}
    if "\0" in document.text:
        text = writer.without_nul(document.text)
        if not text:
            return Reject(document.meta.source_file, document.meta.source_row, "empty_text", "nothing but NUL")
        is_derived = document.doc_id == derive_id(document.text)
        changes |= {"text": text} | ({"doc_id": derive_id(text)} if is_derived else {})
    if licences is not None and document.license_tag not in licences:
        licensed = licences.licensed(document.license_tag, document.meta.license_evidence)
        meta = msgspec.structs.replace(document.meta, license_evidence=licensed.evidence)
        changes |= {"license_tag": licensed.tag, "meta": meta}
    return msgspec.structs.replace(document, **changes) if changes else document


def _advice(first: Reject | None) -> str:
    if first is None or not first.detail.startswith(_NO_SUCH_COLUMN):
        return "look at those rows"
    return f"{column_fix('text')}, for files of other columns in a source of their own"


def no_derived_id(text: str) -> str:
    """For sources whose every row has an id."""
    return ""


def count_found(found: Iterable[str], writer: ShardWriter) -> None:
    """Count `found/<field>` for the fields that some row of a shard has a value for."""
    for field in sorted(found):
        writer.count(f"{_FOUND}{field}")


def columns_without_values(columns: LicensedColumns, counts: Mapping[str, int]) -> list[str]:
    """Names of columns that a recipe names and no document has a value for, by the counts of all shards."""
    named = [(field, name) for field, name in columns if field != "text" and isinstance(name, str)]
    return [name for field, name in named if not counts.get(f"{_FOUND}{field}")]


def named_columns_have_values(normalized: Artifact) -> Verdict:
    """Each column that the recipe names for id, date and licence has a value in some document: else its name may be
    misspelt, and every row has a derived id, no date, or the recipe's licence.
    """
    missing = normalized.manifest.identity.decisions.get(WITHOUT_VALUES, [])
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        return Verdict(False, f"no document has a value for {names}: is it misspelt?")
    return Verdict(True, "every column that is named has values")


@dataclass(frozen=True)
class Converted:
    """A source's shards before ids are compared.

    Attributes:
        shards: receipts by shard, in manifest order.
        derive_id: the rule for ids of rows without one.
        decisions: what reading settled.
        is_expected: of a reject, whether it says nothing of the data's quality.
        uncounted: counts of what never reached a shard.
        words: how people are told of a reject.
    """

    shards: Mapping[str, Receipt]
    derive_id: DeriveId
    decisions: Mapping[str, Any]
    is_expected: Callable[[Reject], bool] = lambda reject: False
    uncounted: Mapping[str, int] = dataclasses.field(default_factory=dict)
    words: RejectFormatter = format_numbered_reject


def convert_shards(
    building: StagingDir, work: Work[S], shards: Sequence[S], settings: RunSettings
) -> dict[str, Receipt]:
    """Receipts of a source's shards, by name, in their order."""
    receipts = run_stage(_STAGE, work, shards, building, settings)
    return {shard.name: receipt for shard, receipt in zip(shards, receipts, strict=True)}


def finish_source(
    building: StagingDir,
    converted: Converted,
    max_reject_fraction: str,
    settings: RunSettings,
    where: object = None,
    fix: str = f"look at the rejects, or correct the source in {THE_RECIPE}",
) -> BuildResult:
    """The source's Documents and rejects, and what the manifest says of them.

    Args:
        where, fix: what is named and advised where nothing is left; None is the building's target.
    Raises:
        InputError: too many rejects, NUL characters in more than 1 % of the documents, or no document at all.
    """
    receipts = list(converted.shards.values())
    counts = total_counts([*receipts, Receipt([], converted.uncounted)])

    def bad_rows() -> Iterator[Reject]:
        return itertools.filterfalse(converted.is_expected, read_rejects(building, receipts))

    bad, limit = sum(1 for _ in bad_rows()), max_reject_fraction
    check_rejects(bad, counts.get("rows", 0), limit, bad_rows(), building.target, converted.words, _advice)
    published = publish(building, converted.shards, converted.derive_id, settings)
    counts = total_counts([*published, Receipt([], converted.uncounted)])
    check_documents(counts, where or building.target, fix)
    pages = {"pages": counts["pages"]} if "pages" in counts else {}
    rejects = gather_rejects(building, receipts, published, settings.zstd_level)
    return BuildResult(
        files=[*(receipt.files[0] for receipt in published), rejects],
        counts=document_counts(counts) | pages,
        decisions=converted.decisions,
        provenance=outsized_document(receipt.notes.get(SIZES, {}) for receipt in receipts),
    )


def group_manifest(folder: Path) -> Path:
    """Where the manifest of the group in a folder lies."""
    return folder.with_name(f"{folder.name}.{FILE_NAME}")


def write_group_manifest(artifact: Artifact) -> Path:
    """A copy of the artifact's manifest, to the byte."""
    path = group_manifest(artifact.folder)
    copy_manifest(artifact, path)
    return path

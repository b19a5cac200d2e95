"""Columns that a recipe names and no row has: a misspelt name must not pass for rows that say nothing."""

from collections.abc import Iterable, Iterator, Mapping

from pipeline_assets.corpus.document import DeriveId, Document
from pipeline_assets.corpus.document_shards.shard_writer import ShardWriter
from pipeline_assets.corpus.readers.column_map import LicensedColumns
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.audit import Verdict
from pipeline_assets.corpus.spine.rejects import Reject

WITHOUT_VALUES = "columns_without_values"
_FOUND = "found/"
_EVIDENCE = "license_evidence"
Row = Document | Reject


def noting_columns(
    rows: Iterable[Row], columns: LicensedColumns, derive_id: DeriveId, writer: ShardWriter
) -> Iterator[Row]:
    """The rows; `found/<field>` is counted once for each field that one of them has a value for."""
    waiting = {field for field, name in columns if name is not None and field != "text"}
    for row in rows:
        if waiting and isinstance(row, Document):
            found = {field for field in waiting if _has(row, field, derive_id)}
            waiting -= found
            for field in found:
                writer.count(f"{_FOUND}{field}")
        yield row


def columns_without_values(columns: LicensedColumns, counts: Mapping[str, int]) -> list[str]:
    """Names of columns that no document has a value for.

    Args:
        counts: of all shards.
    """
    named = [(field, name) for field, name in columns if field != "text" and name is not None]
    return [str(name) for field, name in named if not counts.get(f"{_FOUND}{field}")]


def named_columns_have_values(normalized: Artifact) -> Verdict:
    """Each column that the recipe names for id, date and licence has a value in some document: else its name may be
    misspelt, and every row has a derived id, no date, or the recipe's licence.
    """
    missing = normalized.manifest.identity.decisions.get(WITHOUT_VALUES, [])
    if missing:
        return Verdict(
            False, f"no document has a value for {', '.join(f'`{name}`' for name in missing)}: is it misspelt?"
        )
    return Verdict(True, "every column that is named has values")


def _has(document: Document, field: str, derive_id: DeriveId) -> bool:
    match field:
        case "created_at":
            return document.created_at is not None
        case "license":
            return str(document.meta.get(_EVIDENCE, "")).startswith("row")
        case _:
            return document.doc_id != derive_id(document.text)

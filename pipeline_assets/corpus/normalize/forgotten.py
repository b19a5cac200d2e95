"""Removal of documents on the removal list, after the conversion of their source.

Only shards with such a document are rewritten, so converted shards can be reused when the removal list grows.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.formats.jsonl_zst import read_structs
from pipeline_assets.corpus.removals import FORGOTTEN, Removals, RowKeys
from pipeline_assets.spine.engine import RunSettings, limit_workers, run_stage
from pipeline_assets.spine.ledger import dropped_key
from pipeline_assets.spine.stage import Window
from pipeline_assets.spine.staging import Receipt, StagingDir, StagingView
from pipeline_assets.spine.task import Task, run_task


def forget_documents(
    staging: StagingDir, receipts: Mapping[str, Receipt], removals: Removals, settings: RunSettings
) -> dict[str, Receipt]:
    """Drop documents on the removal list; return the receipts of all shards.

    Both `receipts` and the result have a receipt of `ShardWriter` for each shard name, in manifest order.
    """
    kernel = functools.partial(_forget_in_shard, removals=removals, zstd_level=settings.zstd_level)
    files = {name: staging.path(receipt.files[0].path) for name, receipt in receipts.items()}
    tasks = [Task(name, 0, functools.partial(kernel, name, file)) for name, file in files.items()]
    limited = limit_workers(staging, settings, [file.stat().st_size for file in files.values()])
    remaining = dict(zip(files, run_stage("forget", run_task, tasks, staging, limited), strict=True))
    changed = {name: receipt for name, receipt in remaining.items() if receipt.files}
    if settings.kept_work is not None and changed:
        settings.kept_work.discard(changed, stages=("spill",))  # its files have all rows of a site, also removed ones
    return {**receipts, **{name: _merge_receipts(receipts[name], receipt) for name, receipt in changed.items()}}


def _merge_receipts(converted_receipt: Receipt, remaining_receipt: Receipt) -> Receipt:
    """Return `converted_receipt` with the remaining documents' files and counts."""
    files = [*remaining_receipt.files[:2], converted_receipt.files[2]]
    notes = {**converted_receipt.notes, **remaining_receipt.notes}
    counts = {**converted_receipt.counts, "documents": 0, "bytes": 0, **remaining_receipt.counts}
    return replace(converted_receipt, files=files, counts=counts, notes=notes)


def _forget_in_shard(
    name: str, file: Path, window: Window, folder: StagingView, removals: Removals, zstd_level: int
) -> Receipt:
    """Rewrite a shard without its documents on the removal list, if it has any."""

    def documents() -> Iterator[tuple[Document, bool]]:
        for document in read_structs(file, Document):
            yield document, removals.matches(RowKeys(document.doc_id, (document.text,), document.meta.url))

    if not any(is_listed for _, is_listed in documents()):
        return Receipt([], {})
    with ShardWriter(folder, f"{name}.remaining", zstd_level) as writer:
        for document, is_listed in documents():
            writer.write([] if is_listed else [document])
            writer.count(dropped_key(FORGOTTEN), int(is_listed))
    return writer.receipt()

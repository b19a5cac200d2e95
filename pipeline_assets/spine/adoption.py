"""Adoption of an interrupted build's staging directory, after checking its files."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pipeline_assets.spine import durable, receipt_files
from pipeline_assets.spine.files import HASHING_THREADS
from pipeline_assets.spine.metadata_file import MetadataFormat
from pipeline_assets.spine.staging import PLAN_FILE, RECEIPTS_FOLDER, read_receipt, remove_unnamed, staging_folders

_PLAN_FORMAT: MetadataFormat[dict[str, Any]] = MetadataFormat("plan", 256 << 20, "run its recipe again", dict[str, Any])


def adopt_staging_dir(target: Path, plan_bytes: bytes, folder: Path) -> None:
    """Rename the newest staging directory with the plan `plan_bytes` to `folder`.

    Nothing is renamed if `folder` exists, or if no directory has this plan. All other staging directories are removed,
    and so are files in `folder` that no valid receipt names. An earlier builder that still runs can no longer seal.
    """
    for other in reversed(staging_folders(target)):
        if not folder.exists() and _PLAN_FORMAT.has_content(other / PLAN_FILE, plan_bytes):
            durable.rename(other, folder)
        else:
            durable.remove(other)
    if folder.exists():
        remove_unnamed(folder, _drop_invalid_receipts(folder), kept_entries=(PLAN_FILE, RECEIPTS_FOLDER))


def read_plan(folder: Path) -> Mapping[str, Any]:
    """Return the plan of a staging directory; empty if it cannot be read."""
    return _PLAN_FORMAT.read_valid(folder / PLAN_FILE) or {}


def _drop_invalid_receipts(folder: Path) -> set[str]:
    """Remove invalid receipts; return the relative paths that valid receipts name.

    A receipt is invalid if it is damaged, or if a file that it names is missing or changed. If a changed file is in
    `.work`, the receipts of all other stages are removed, too, because their shards may have read it.
    """
    paths = [*(folder / RECEIPTS_FOLDER).rglob("*.json")]
    with ThreadPoolExecutor(HASHING_THREADS) as pool:
        files_by_path = dict(zip(paths, pool.map(lambda path: _files_if_all_intact(folder, path), paths), strict=True))
    invalid = [path for path, files in files_by_path.items() if files is None]
    changed = {path.parent for path in invalid if receipt_files.find_changed_work(folder, path)}
    named: set[str] = set()
    for path, files in files_by_path.items():
        if files is None or changed - {path.parent}:
            durable.remove(path)
        else:
            named |= files
    return named


def _files_if_all_intact(folder: Path, receipt_file: Path) -> set[str] | None:
    receipt = read_receipt(receipt_file)
    if receipt is None or not all(receipt_files.matches_receipt(folder, file) for file in receipt.files):
        return None
    return {file.path for file in receipt.files}

"""Bugs to plant: each function breaks a promise of the program in its own process."""

from collections.abc import Set
from pathlib import Path

from pipeline_assets.build import build_target, garbage
from pipeline_assets.build.target import Target
from pipeline_assets.spine import adoption, artifact, durable, receipt_files
from pipeline_assets.spine.staging import read_receipt


def no_sync_before_rename() -> None:
    """Rename files whose bytes were never synced."""

    def fsync(descriptor: int, path: Path) -> None:
        durable.call_failpoint("fsync", path)

    durable.fsync = fsync


def no_read_back() -> None:
    """Hash no stored file, neither before its rename nor after the seal."""
    durable.DurableFile._read_back = lambda file: None  # type: ignore[method-assign]
    artifact.hash_error = lambda folder, file: None


def trust_receipts() -> None:
    """Resume and seal on the word of receipts, whatever their files hold."""

    def intact_files(folder: Path, receipt_file: Path) -> set[str] | None:
        receipt = read_receipt(receipt_file)
        return None if receipt is None else {file.path for file in receipt.files}

    adoption._files_if_all_intact = intact_files
    receipt_files.find_changed_work = lambda folder, receipt_file: None


def collect_a_live_upstream() -> None:
    """Remove, with garbage, an artifact from which a needed one was derived."""
    find_needed = garbage.Survey._find_needed_artifacts

    def find_fewer(self: garbage.Survey) -> Set[Path]:
        needed = find_needed(self)
        return needed - {min(needed)} if needed else needed

    garbage.Survey._find_needed_artifacts = find_fewer  # type: ignore[method-assign]


def replace_without_exchange() -> None:
    """Remove the earlier artifact before the new one is built."""
    check = build_target.raise_if_occupied

    def clear(target: Target, root: Path, replace: bool) -> None:
        check(target, root, replace)
        if replace and target.state(root)[0] == "stale":
            durable.remove(root / target.folder)

    build_target.raise_if_occupied = clear

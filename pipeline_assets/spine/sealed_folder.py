"""Lookup of the sealed artifact in a folder that a user names, or above a path."""

from pathlib import Path

from pipeline_assets.spine.argument_types import check_arguments
from pipeline_assets.spine.artifact import read_manifest
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.files import require_folder
from pipeline_assets.spine.manifest import MANIFEST_FILE, Manifest


def require_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder that must contain a sealed artifact.

    Raise UsageError if nothing is sealed, or the folder is an exported copy; InputError if the manifest is damaged.
    """
    require_folder(folder, "pass the folder of a finished artifact")
    manifest = read_manifest(folder)
    if manifest is None:
        raise UsageError("nothing is sealed here (no manifest.json)", folder, "pass the folder of a finished artifact")
    has_own_files = not manifest.storage or any((folder / file.path).exists() for file in manifest.storage)
    if not has_own_files and any(path.suffix in (".parquet", ".zst") for path in folder.rglob("*")):
        what = f"these files are an exported copy of {manifest.kind} {manifest.name}"
        raise UsageError(what, folder, f"pass the folder that they were exported from, {manifest.digest}")
    return manifest


def find_artifact_above(path: Path) -> Path | None:
    """Return the nearest parent folder with a manifest; None if no parent has one."""
    return next((parent for parent in path.resolve().parents if (parent / MANIFEST_FILE).is_file()), None)


@check_arguments
def resolve_data_root(root: Path | str, fix: str) -> Path:
    """Return the absolute path of a data root, which need not exist.

    Raise UsageError with the advice `fix` if it is a file, an artifact, or in an artifact.
    """
    folder = Path(root).absolute()
    if folder.is_file():
        raise UsageError("expected a folder, got a file", folder, fix)
    raise_if_artifact(folder, fix)
    return folder


def raise_if_artifact(root: Path, fix: str) -> None:
    """Raise UsageError with the advice `fix` if a data root is an artifact, or in one."""
    if (artifact := find_artifact_above(root / MANIFEST_FILE)) is not None:
        raise UsageError("expected a data root, got an artifact", artifact, fix)

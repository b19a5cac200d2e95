"""Raw pins: the files of a source or model, with names, sizes and hashes.

The files are not copied into the artifact: they remain on a hub at a commit, or in a local folder.
"""

import hashlib
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_assets.corpus.readers import hub_files, source_folder
from pipeline_assets.corpus.readers.hub_listing import HubFile, hub_input
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.progress import Progress

RAW_STAGE = StageVersion("raw", 1)
_SHOWN_FILES = 5


def raise_if_unpinned(dataset: str, revision: str, recipe_name: str, hub: hub_files.HubFiles) -> None:
    """Raise UsageError if a recipe has forty zeros in place of a commit.

    If the hub denies access to the dataset, raise DeniedError, because the UsageError suggests `pin`, which would fail.
    """
    if revision == UNPINNED:
        try:
            replace(hub, tries=1).resolve(dataset)
        except InputError as error:
            if isinstance(error, DeniedError):
                raise
        fix = (
            f"run corpusmill pin {dataset} --recipe {shlex.quote(recipe_name)}, which writes the commit into the recipe"
        )
        raise UsageError("no revision is pinned yet", dataset, fix)


def model_entry_name(model_name: str) -> str:
    """Return the name of a hub model in manifests: `models/NAME`.

    No dataset can have this name, because the hub does not allow `models` as an owner.
    """
    return f"models/{model_name}"


def to_hub_files(entries: Iterable[Mapping[str, Any]]) -> list[HubFile]:
    """Convert manifest entries of hub files (see `hub_input`) to `HubFile` objects."""
    return [HubFile(entry["name"].partition(":")[2], entry["bytes"], entry["digest"]) for entry in entries]


def read_hub_pin(pin: Manifest) -> tuple[str, str, list[HubFile]]:
    """Return the repository name, the commit and the files of a hub pin."""
    return *_repo_and_commit(pin.identity.recipe), to_hub_files(pin.identity.inputs)


def _repo_and_commit(recipe: Mapping[str, Any]) -> tuple[str, str]:
    return str(recipe.get("dataset") or recipe["name"]), str(recipe["revision"])


def fetch_pinned(
    hub: hub_files.HubFiles, pin: Manifest, threads: int, log_every_s: float
) -> list[source_folder.SourceFile]:
    """Fetch all files of a hub pin into the cache; return them in the pin's order."""
    dataset, commit, listed = read_hub_pin(pin)
    total = sum(file.size for file in listed)
    progress = Progress(f"fetch {pin.name}", total, "bytes", log_every_s, initial_quiet_s=1.0)
    files = []

    def fetch(file: HubFile) -> source_folder.SourceFile:
        return source_folder.SourceFile(hub.fetch(dataset, commit, file).path, file.path, file.size)

    for file in hub_files.map_in_order(fetch, listed, threads):
        files.append(file)
        progress.add(file.bytes)
    return files


def pin_hub_files(dataset: str, commit: str, files: Sequence[HubFile], decisions: Mapping[str, Any]) -> BuildResult:
    """Pin whole hub files by the hashes in the hub's listing, without fetching them."""
    counts = {"files": len(files), "bytes": sum(file.size for file in files)}
    return BuildResult([], counts, decisions, external_inputs=[hub_input(dataset, commit, file) for file in files])


def confirm_pin(pin: BuildResult, recipe: Mapping[str, Any], hub: hub_files.HubFiles, threads: int) -> BuildResult:
    """Return `pin`; InputError if an uncached file has a different hash on the hub."""
    repo, commit = _repo_and_commit(recipe)
    files = to_hub_files(pin.external_inputs)
    for _ in hub_files.map_in_order(lambda file: hub.confirm_file(repo, commit, file), files, threads):
        pass
    return pin


def pin_folder_files(
    source: source_folder.InputFolder, root: Path, settings: RunSettings, decisions: Mapping[str, Any] | None = None
) -> BuildResult:
    """Hash and pin a folder's files; RetryableError if they change during hashing."""
    folder = source.resolve_path(root)
    files = folder.files()
    provenance = source_folder.folder_provenance(folder, files, root.absolute())
    size = sum(file.bytes for file in files)
    progress, inputs = Progress(settings.title("hash"), size, "bytes", settings.log_every_s), []
    for file, digest in zip(files, hub_files.map_in_order(_file_digest, files, settings.workers), strict=True):
        inputs.append({"name": file.name, "digest": f"sha256:{digest}", "bytes": file.bytes})
        progress.add(file.bytes)
    files_after = folder.files()
    if files_after != files or source_folder.folder_provenance(folder, files_after, root.absolute()) != provenance:
        fix = "stop writing to the folder, and run again"
        raise RetryableError("files changed while they were hashed", folder.path, fix)
    counts = {"files": len(files), "bytes": size}
    return BuildResult([], counts, decisions or {}, external_inputs=inputs, provenance=provenance)


def preview_inputs(pin: Artifact) -> list[dict[str, str]]:
    """Return the first files of a pin, as a table for the UI."""
    files = pin.manifest.identity.inputs[:_SHOWN_FILES]
    return [{"file": file["name"], "bytes": f"{file['bytes']:,}", "digest": file["digest"]} for file in files]


def _file_digest(file: source_folder.SourceFile) -> str:
    with source_folder.open_source(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]

"""Raw pins: the files of a source or model, with names, sizes and hashes.

The files are not copied into the artifact: they remain on a hub at a commit, or in a local folder.
"""

import functools
import hashlib
import shlex
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from pipeline_assets.build.builders import input_builder
from pipeline_assets.build.checks import FILES_CHECK
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Kind, Planner, Target
from pipeline_assets.corpus.readers import hub_files, source_folder
from pipeline_assets.corpus.readers.hub_listing import HubFile, hub_input
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.source_folder import InputFolder, SourceFile, SourceFolder
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.spine.key_types import UNPINNED
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.progress import Progress

RAW_STAGE = StageVersion("raw", 1)
_SHOWN_FILES = 5


@dataclass(frozen=True)
class HubPin:
    """Files of a hub repository at a commit, either pinned or still to be pinned."""

    hub: hub_files.HubFiles  # hub for repositories of the type of `repo`
    repo: str
    commit: str
    files: Sequence[HubFile]
    decisions: Mapping[str, Any] = field(default_factory=dict)  # decisions for the manifest of the pin

    @classmethod
    def from_manifest(cls, hub: hub_files.HubFiles, pin: Manifest) -> Self:
        return cls(hub, *read_hub_pin(pin))

    def entries(self) -> list[dict[str, Any]]:
        """Return the manifest entries of the files, with the hashes in the hub's listing."""
        # No dataset can have the name of a model: the hub does not allow `models` as an owner.
        name = f"models/{self.repo}" if self.hub.repo_type == "model" else self.repo
        return [hub_input(name, self.commit, file) for file in self.files]

    def fetch(self, file: HubFile) -> SourceFile:
        """Fetch a whole file into the cache."""
        return SourceFile(self.hub.fetch(self.repo, self.commit, file).path, file.path, file.size)

    def fetch_all(self, title: str, settings: RunSettings) -> list[SourceFile]:
        """Fetch all files into the cache; return them in the pin's order."""
        total, files = sum(file.size for file in self.files), []
        progress = Progress(title, total, "bytes", settings.log_every_s, initial_quiet_s=1.0)
        for file in hub_files.map_in_order(self.fetch, self.files, settings.fetch_threads):
            files.append(file)
            progress.add(file.bytes)
        return files


@dataclass(frozen=True)
class ChosenFiles:
    """Files to pin: sorted names, and `decisions` for the manifest of the pin."""

    names: tuple[str, ...]
    decisions: Mapping[str, Any]


@dataclass(frozen=True)
class ChosenFolder(InputFolder):
    """Local folder from which a rule chooses the files to pin."""

    @abstractmethod
    def choose_files(self) -> ChosenFiles:
        """Choose files to pin, or raise InputError; the folder's path must be absolute."""

    def files(self) -> list[SourceFile]:
        return source_folder.list_files(self.path, self.choose_files().names)


HubSearch = Callable[[Target, Run], HubPin]
"""Finds a target's files on a hub, and fetches only files that the choice depends on."""


def pin_kind(
    name: str,
    stage: StageVersion,
    description: str,
    find_on_hub: HubSearch,
    external_inputs: Callable[[Manifest, Path], InputFolder | None],
) -> Kind:
    """Return a `Kind` whose artifacts pin files in a local folder or on a hub.

    `find_on_hub` finds the files on a hub. `external_inputs` returns the folder of a sealed pin, or None for a pin of
    hub files.
    """

    def pin(target: Target, run: Run) -> BuildResult:
        return _pin_files(target, run, find_on_hub)

    def list_files(target: Target, run: Run) -> Listing:
        if isinstance(target.external_inputs, InputFolder):
            return Listing.from_files(target.external_inputs.resolve_path(run.root).files())
        return Listing(tuple(find_on_hub(target, run).entries()))

    functools.update_wrapper(pin, find_on_hub)  # the UI shows the source of `find_on_hub`, which differs by kind
    return Kind(
        name,
        stage,
        input_builder(pin),
        description,
        formats=frozenset({"huggingface", "file"}),
        external_inputs=external_inputs,
        preview=preview_inputs,
        planner=Planner(list_files),
        checks=(FILES_CHECK,),
    )


def _pin_files(target: Target, run: Run, find_on_hub: HubSearch) -> BuildResult:
    """Pin a target's files: hash local files, or use the hashes that the hub states.

    Hub files are not fetched. For a file that is not cached, ask the hub again, and raise InputError if its hash has
    changed since the listing.
    """
    if isinstance(target.external_inputs, InputFolder):
        folder, decisions = target.external_inputs.resolve_path(run.root), dict[str, Any]()
        if isinstance(folder, ChosenFolder):
            chosen = folder.choose_files()
            folder, decisions = SourceFolder(folder.path, chosen.names), {**chosen.decisions}
        return pin_folder_files(folder, run.root, run.settings, decisions)
    pin = find_on_hub(target, run)
    for _ in hub_files.map_in_order(
        lambda file: pin.hub.confirm_file(pin.repo, pin.commit, file), pin.files, run.settings.fetch_threads
    ):
        pass
    counts = {"files": len(pin.files), "bytes": sum(file.size for file in pin.files)}
    return BuildResult([], counts, pin.decisions, external_inputs=pin.entries())


def list_hub_inputs(target: Target, run: Run, searches: Mapping[StageVersion, HubSearch]) -> Listing:
    """List the files of a target's hub pins, with the number of uncached bytes."""
    missing: dict[str, int] | None = None
    for upstream in target.upstream:
        if upstream.stage in searches and upstream.external_inputs is None:
            pin = searches[upstream.stage](upstream, run)
            missing = {**(missing or {}), **(Listing.from_pinned(pin.hub, pin.repo, pin.files).bytes_to_fetch or {})}
    return Listing(bytes_to_fetch=missing)


def raise_if_unpinned(target: Target, hub: hub_files.HubFiles, root: Path) -> None:
    """Raise UsageError if a target's dataset has forty zeros in place of a commit.

    If the hub denies access to the dataset, raise DeniedError, because the UsageError suggests `pin`, which would fail.
    """
    if target.recipe["revision"] != UNPINNED:
        return
    dataset, recipe_name = target.recipe["dataset"], target.name.partition("/")[0]
    try:
        replace(hub, tries=1).resolve(dataset)
    except DeniedError:
        raise
    except InputError:
        pass
    pin = shlex.join(["corpusmill", "pin", dataset, "--recipe", recipe_name, "--data", str(root)])
    raise UsageError("no revision is pinned yet", dataset, f"run {pin}, which writes the commit into the recipe")


def read_hub_pin(pin: Manifest) -> tuple[str, str, list[HubFile]]:
    """Return the repository name, the commit and the files of a sealed hub pin."""
    recipe, entries = pin.identity.recipe, pin.identity.inputs
    files = [HubFile(entry["name"].partition(":")[2], entry["bytes"], entry["digest"]) for entry in entries]
    return str(recipe.get("dataset") or recipe["name"]), str(recipe["revision"]), files


def pin_folder_files(
    source: InputFolder, root: Path, settings: RunSettings, decisions: Mapping[str, Any] | None = None
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


def _file_digest(file: SourceFile) -> str:
    with source_folder.open_source(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]

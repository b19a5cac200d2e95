"""Pins of sources: the files of a folder, or a sample of a hub dataset."""

from dataclasses import replace
from typing import Any

from pipeline_assets.build.pins.raw_pin import pin_folder_files, raise_if_unpinned
from pipeline_assets.build.run import Run
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.normalize.sources import FileSource, HubSource, parse_source, to_source_folder
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.listing import Listing
from pipeline_assets.corpus.readers.source_folder import SourceFolder
from pipeline_assets.corpus.readers.stackexchange.archive import is_archive, require_py7zr
from pipeline_assets.corpus.snapshot.listing import list_snapshot, pin_sample
from pipeline_assets.corpus.snapshot.recipe import SnapshotRecipe
from pipeline_assets.corpus.stores import object_source
from pipeline_assets.corpus.stores.download import missing_objects
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.staging import StagingView


def pinned_content(source: HubSource | FileSource, shard_text_bytes: int) -> tuple[dict[str, Any], SourceFolder | None]:
    """Return a source's pinned recipe values, and its folder (None for a hub source)."""
    if isinstance(source, HubSource):
        return source.output_content(shard_text_bytes), None
    folder = to_source_folder(source)
    exclude = {"exclude": list(folder.exclude)} if folder.exclude else {}
    return {"kind": source.kind, "files": list(folder.patterns), **exclude}, folder


def pin_inputs(target: Target, run: Run) -> BuildResult:
    """Pin a source: the files of a folder, or a sample of a hub dataset."""
    if not isinstance(target.external_inputs, SourceFolder):
        return pin_sample(*_hub_and_recipe(target, run), run.settings)
    folder, versions = target.external_inputs.resolve_path(run.root), dict[str, Any]()
    if (url := object_source.source_url(folder.path)) is not None:
        versions = object_source.fetch_source(url, folder, run.settings)
        # Another process may copy further objects, whose versions this process does not know.
        folder = SourceFolder(folder.path, (*versions[object_source.VERSIONS_KEY],))
    if target.recipe.get("kind") == "stackexchange":
        for file in folder.files():
            if is_archive(file.path):
                require_py7zr(file.path)  # fail before an hour of hashing, not after
    content = pin_folder_files(folder, run.root, run.settings)
    if url is not None:
        object_source.check_copies(folder.path, content.external_inputs)
    return replace(content, provenance={**content.provenance, **versions})


def restore_source_folder(target: Target, pin: Manifest, run: Run) -> SourceFolder:
    """Return a pinned source's folder; first copy missing objects from their store."""
    assert isinstance(target.external_inputs, SourceFolder)
    folder = target.external_inputs.resolve_path(run.root)
    object_source.restore_source(folder.path, pin, run.settings)
    return folder


def list_inputs(target: Target, run: Run) -> Listing:
    """List the files of a folder, or the files that a sample of a hub dataset reads."""
    if not isinstance(target.external_inputs, SourceFolder):
        return list_snapshot(*_hub_and_recipe(target, run), run.settings)
    folder = target.external_inputs.resolve_path(run.root)
    if (url := object_source.source_url(folder.path)) is None:
        return Listing.from_files(folder.files())
    objects = object_source.list_objects(url, folder)
    missing = {f"{url}/{stored.name}": stored.bytes for stored in missing_objects(objects, StagingView(folder.path))}
    return Listing(tuple({"name": stored.name, "bytes": stored.bytes} for stored in objects), missing)


def list_missing_inputs(target: Target, run: Run) -> Listing:
    """List the files of a target's current pins that are no longer cached.

    The target's build fetches these files again. A pin that will be built lists its own files.
    """
    missing = dict[str, int]()
    for pin in target.upstream:
        if pin.kind.planner.list_files is not list_inputs or not pin.matches_recipe(run.root):
            continue
        if isinstance(pin.external_inputs, SourceFolder):
            folder = pin.external_inputs.resolve_path(run.root).path
            manifest = open_artifact(run.root / pin.folder).manifest
            missing[str(folder)] = object_source.count_missing_bytes(folder, manifest)
        else:
            missing |= list_inputs(pin, run).bytes_to_fetch or {}
    return Listing(bytes_to_fetch={name: count for name, count in missing.items() if count} or None)


def _hub_and_recipe(target: Target, run: Run) -> tuple[HubFiles, SnapshotRecipe]:
    source, shard_text_bytes = parse_source(target.recipe)
    assert isinstance(source, HubSource)
    hub = run.require_hub("this source")
    raise_if_unpinned(target, hub, run.root)
    return hub, source.snapshot_recipe(shard_text_bytes)

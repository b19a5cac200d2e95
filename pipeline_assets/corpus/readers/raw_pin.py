"""Raw pins: which files a source or a model has, each by name, size and hash, of a hub at a commit or of a folder here.

No byte is copied. What reads a part of a file of a hub says in `row_groups` which.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.source_folder import SourceFile, SourceFolder, as_provenance, open_source
from pipeline_assets.corpus.spine.engine import RunSettings
from pipeline_assets.corpus.spine.errors import RetryableError, UsageError
from pipeline_assets.corpus.spine.manifest import Manifest, StageVersion
from pipeline_assets.corpus.spine.recipe import UNPINNED
from pipeline_assets.corpus.spine.target import BuildResult
from pipeline_assets.corpus.spine.usage import Progress

RAW_STAGE = StageVersion("raw", 1)
F = TypeVar("F")
T = TypeVar("T")


def refuse_unpinned(dataset: str, revision: str, recipe: str) -> None:
    """
    Raises:
        UsageError: the recipe has forty zeros in the place of a commit.
    """
    if revision == UNPINNED:
        fix = f"run corpusmill pin {dataset} --recipe {recipe}, which writes the commit there"
        raise UsageError("no revision is pinned yet", dataset, fix)


def hub_entry(dataset: str, commit: str, file: HubFile) -> dict[str, Any]:
    """A file of a hub dataset at a commit, as a manifest lists it; of a model, `dataset` is what `as_model` says."""
    return {"name": f"{dataset}@{commit}:{file.path}", "digest": file.digest, "bytes": file.size}


def as_model(name: str) -> str:
    """How manifests call a model of a hub; no dataset is called so: `models` is a page of hubs, so nobody's name."""
    return f"models/{name}"


def listed_files(entries: Iterable[Mapping[str, Any]]) -> list[HubFile]:
    """Files of a hub, of entries as `hub_entry` makes them."""
    return [HubFile(entry["name"].partition(":")[2], entry["bytes"], entry["digest"]) for entry in entries]


def pinned_files(pin: Manifest) -> tuple[str, str, list[HubFile]]:
    """Dataset or model, commit and files of a pin of a hub, in order."""
    recipe = pin.identity.recipe
    name = recipe["dataset"] if "dataset" in recipe else recipe["name"]
    return str(name), str(recipe["revision"]), listed_files(pin.identity.inputs)


def fetch_pinned(hub: HubFiles, pin: Manifest, threads: int, log_every_s: float) -> list[SourceFile]:
    """The files that a pin lists, whole, in the cache, each checked against its hash."""
    dataset, commit, listed = pinned_files(pin)
    progress = Progress(f"fetch {pin.name}", sum(file.size for file in listed), "bytes", log_every_s, quiet_s=1.0)
    files = []

    def fetch(file: HubFile) -> SourceFile:
        return SourceFile(hub.fetch(dataset, commit, file).local, file.path, file.size)

    for file in in_order(fetch, listed, threads):
        files.append(file)
        progress.add(file.bytes)
    return files


def pin_of_hub(dataset: str, commit: str, files: Sequence[HubFile], decisions: Mapping[str, Any]) -> BuildResult:
    """Files of a hub dataset, whole, as the listing at the commit has them; nothing is fetched."""
    counts = {"files": len(files), "bytes": sum(file.size for file in files)}
    return BuildResult([], counts, decisions, outside=[hub_entry(dataset, commit, file) for file in files])


def pin_of_folder(
    source: SourceFolder, root: Path, settings: RunSettings, decisions: Mapping[str, Any] | None = None
) -> BuildResult:
    """The files of a folder, hashed.

    Args:
        root: data root, below which the folder may lie.
    Raises:
        UsageError: no such folder, or a pattern that matches no file.
        InputError: a file can't be read, or changes meanwhile.
    """
    folder = source.below(root)
    files = folder.files()
    provenance = as_provenance(folder, files, root.absolute())
    size = sum(file.bytes for file in files)
    progress, inputs = Progress(settings.title("hash"), size, "bytes", settings.log_every_s), []
    for file, digest in zip(files, in_order(_digest, files, settings.workers), strict=True):
        inputs.append({"name": file.name, "digest": f"sha256:{digest}", "bytes": file.bytes})
        progress.add(file.bytes)
    again = folder.files()
    if again != files or as_provenance(folder, again, root.absolute()) != provenance:
        raise RetryableError("files changed while they were hashed", folder.path, "let nothing write there, run again")
    counts = {"files": len(files), "bytes": size}
    return BuildResult([], counts, decisions or {}, outside=inputs, provenance=provenance)


def in_order(work: Callable[[F], T], items: Iterable[F], threads: int) -> Iterator[T]:
    """What is made of each item, in their order, several at a time; what hasn't begun when one fails never begins."""
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _digest(file: SourceFile) -> str:
    with open_source(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]

"""Raw pins: which files a source or a model has, each by name, size and hash, of a hub at a commit or of a folder here.

No byte is copied. What reads a part of a file of a hub says in `row_groups` which. And what the cache and folders of
this machine still hold of files that manifests name, as hash tasks: there files are only read, and nothing is fetched.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pipeline_assets.corpus.readers import hub_files, source_folder
from pipeline_assets.corpus.readers.hub_listing import HubFile, hub_entry, is_digest, read_listing
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import DeniedError, InputError, RetryableError, UsageError
from pipeline_assets.spine.files import read_error_text
from pipeline_assets.spine.lineage import Finding
from pipeline_assets.spine.manifest import Manifest, StageVersion
from pipeline_assets.spine.progress import Progress
from pipeline_assets.spine.rehash import Algorithm, HashTask
from pipeline_assets.spine.section import UNPINNED

RAW_STAGE = StageVersion("raw", 1)
_SHOWN_FILES = 5


def refuse_unpinned(dataset: str, revision: str, recipe: str, hub: hub_files.HubFiles) -> None:
    """
    Raises:
        UsageError: the recipe has forty zeros in the place of a commit.
        DeniedError: the same, and nobody may read the dataset with this token: then no commit can be pinned.
    """
    if revision == UNPINNED:
        try:
            replace(hub, tries=1).resolve(dataset)
        except InputError as error:
            if isinstance(error, DeniedError):
                raise
        fix = f"run corpusmill pin {dataset} --recipe {recipe}, which writes the commit there"
        raise UsageError("no revision is pinned yet", dataset, fix)


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


def fetch_pinned(
    hub: hub_files.HubFiles, pin: Manifest, threads: int, log_every_s: float
) -> list[source_folder.SourceFile]:
    """The files that a pin lists, whole, in the cache, each checked against its hash."""
    dataset, commit, listed = pinned_files(pin)
    progress = Progress(f"fetch {pin.name}", sum(file.size for file in listed), "bytes", log_every_s, quiet_s=1.0)
    files = []

    def fetch(file: HubFile) -> source_folder.SourceFile:
        return source_folder.SourceFile(hub.fetch(dataset, commit, file).local, file.path, file.size)

    for file in hub_files.in_order(fetch, listed, threads):
        files.append(file)
        progress.add(file.bytes)
    return files


def pin_of_hub(dataset: str, commit: str, files: Sequence[HubFile], decisions: Mapping[str, Any]) -> BuildResult:
    """Files of a hub dataset, whole, as the listing at the commit has them; nothing is fetched."""
    counts = {"files": len(files), "bytes": sum(file.size for file in files)}
    return BuildResult([], counts, decisions, external_inputs=[hub_entry(dataset, commit, file) for file in files])


def pin_of_folder(
    source: source_folder.InputFolder, root: Path, settings: RunSettings, decisions: Mapping[str, Any] | None = None
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
    provenance = source_folder.to_provenance(folder, files, root.absolute())
    size = sum(file.bytes for file in files)
    progress, inputs = Progress(settings.title("hash"), size, "bytes", settings.log_every_s), []
    for file, digest in zip(files, hub_files.in_order(_digest, files, settings.workers), strict=True):
        inputs.append({"name": file.name, "digest": f"sha256:{digest}", "bytes": file.bytes})
        progress.add(file.bytes)
    again = folder.files()
    if again != files or source_folder.to_provenance(folder, again, root.absolute()) != provenance:
        raise RetryableError("files changed while they were hashed", folder.path, "let nothing write there, run again")
    counts = {"files": len(files), "bytes": size}
    return BuildResult([], counts, decisions or {}, external_inputs=inputs, provenance=provenance)


def preview_inputs(raw: Artifact) -> list[dict[str, str]]:
    """The first files of a raw source."""
    files = raw.manifest.identity.inputs[:_SHOWN_FILES]
    return [{"file": file["name"], "bytes": f"{file['bytes']:,}", "digest": file["digest"]} for file in files]


def _digest(file: source_folder.SourceFile) -> str:
    with source_folder.open_source(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]


Entry = Mapping[str, Any]
"""A file that an artifact was made from, as its manifest lists it."""
_HUB_FILE = re.compile(
    r"(?:models/(?P<model>(?:\w[\w.-]*/)?\w[\w.-]*)|(?P<dataset>[\w.-]+/[\w.-]+))@(?P<commit>[0-9a-f]{40}):(?P<path>.+)"
)
_SPAN = re.compile(r"(?P<start>\d+)-(?P<stop>\d+)\.(?P<sha256>[0-9a-f]{64})")
FIX = "delete it; it is fetched again when it is needed"
CHANGED = "it is not the file that was read: give that back, or build again"


@dataclass
class FilesCheck:
    """Comparison of files on this machine with the manifests that list them.

    Attributes:
        listed: number of files that manifests list, each counted once.
        unavailable: files that were read and are not on this machine, or not all that was read of them.
        tasks: hash tasks of the files and parts of files that exist with their listed size.
        findings: what names, sizes and listings alone contradict.
    """

    listed: int = 0
    unavailable: list[str] = field(default_factory=list)
    tasks: list[HashTask] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class HubCacheCheck(FilesCheck):
    """Comparison of the hub cache with manifests.

    A manifest that names row groups read those files alone of all that it lists; any other read every file whole.

    Attributes:
        whole: files read that are here from first to last byte: checked against the hash that the hub lists.
        in_part: files read of which all row groups are here: checked against the hash that they were fetched with,
            since the hub has none of a part.
        not_looked_for: inputs that are no hub files.
    """

    whole: list[str] = field(default_factory=list)
    in_part: list[str] = field(default_factory=list)
    not_looked_for: list[str] = field(default_factory=list)


def check_hub_cache(cache: Path, outside: Mapping[str, Sequence[Entry]]) -> HubCacheCheck:
    """Compare the hub cache with manifests, by names, sizes and listings.

    Args:
        outside: external inputs of artifacts, by digest of the artifact.
    """
    held = HubCacheCheck()
    seen: set[str] = set()
    for artifact, entries in outside.items():
        listings: dict[Path, list[tuple[str, Entry]]] = {}
        reads_in_part = any("row_groups" in entry for entry in entries)
        for entry in entries:
            match = _HUB_FILE.fullmatch(entry["name"])
            if match is None or not is_digest(entry["digest"]):
                held.not_looked_for.append(entry["name"])
                continue
            hub = hub_files.HubFiles(cache, repo_type="dataset" if match["dataset"] else "model")
            name = match["dataset"] or match["model"]
            listings.setdefault(hub.listing_path(name, match["commit"]), []).append((match["path"], entry))
            if entry["name"] not in seen:
                seen.add(entry["name"])
                was_read = "row_groups" in entry or not reads_in_part
                _look_for(entry, hub.bytes_folder(name, entry["digest"]), artifact, was_read, held)
        for path, listed in listings.items():
            held.findings += (Finding(path, f"{what}; {FIX}", artifact) for what in _contradictions(path, listed))
    return held


def _look_for(entry: Entry, folder: Path, artifact: str, was_read: bool, held: HubCacheCheck) -> None:
    held.listed += 1
    spans: list[hub_files.Span] = []
    for path in folder.glob("*-*.*"):
        if (match := _SPAN.fullmatch(path.name)) is not None:
            span, size = hub_files.Span(int(match["start"]), int(match["stop"]), path), path.stat().st_size
            if size == span.stop - span.start:
                spans.append(span)
            else:
                what = f"has {size:,} bytes, fetched with {span.stop - span.start:,}; {FIX}"
                held.findings.append(Finding(path, what, artifact))
    tiles: list[hub_files.Span] = []  # in order, without those that begin inside an earlier or longer one
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        if not tiles or span.start >= tiles[-1].stop:
            tiles.append(span)
    is_whole = _covers(tiles, 0, entry["bytes"])
    if is_whole and tiles:
        algorithm, _, expected = entry["digest"].partition(":")
        paths, said = tuple(span.local for span in tiles), "the hub lists"
        task = HashTask(
            entry["digest"], entry["name"], paths, entry["bytes"], cast(Algorithm, algorithm), expected, said
        )
        held.tasks.append(task)
    for span in spans:
        if not is_whole or span not in tiles:
            name, sha256 = f"{entry['name']} bytes {span.start}-{span.stop}", span.local.suffix[1:]
            size = span.stop - span.start
            held.tasks.append(HashTask(entry["digest"], name, (span.local,), size, "sha256", sha256, "fetched with"))
    if was_read:
        groups = entry.get("row_groups")
        is_here = groups is not None and all(_covers(tiles, group["start"], group["stop"]) for group in groups)
        (held.whole if is_whole else held.in_part if is_here else held.unavailable).append(entry["name"])


def _covers(spans: Sequence[hub_files.Span], start: int, stop: int) -> bool:
    """Check whether spans, in order, cover [start, stop)."""
    for span in spans:
        if span.start <= start < span.stop:
            start = span.stop
    return start >= stop


def _contradictions(path: Path, listed: Sequence[tuple[str, Entry]]) -> Iterator[str]:
    """Yield the differences of a cached listing, if it exists, from a manifest."""
    try:
        cached = {file.path: (file.digest, file.size) for file in read_listing(path)}
    except FileNotFoundError:
        return
    except InputError as error:
        yield f"the listing can't be read ({error.what})"
        return
    for name, entry in listed:
        digest, size = cached.get(name, ("nothing", 0))
        if (digest, size) != (entry["digest"], entry["bytes"]):
            yield f"lists {name} as {digest} of {size} bytes, the manifest as {entry['digest']} of {entry['bytes']}"


@dataclass
class SourceFolderCheck(FilesCheck):
    """Comparison of source folders with manifests. Once files are read, their other hashes are findings too.

    Attributes:
        missing: the folders that do not exist on this machine.
    """

    missing: list[Path] = field(default_factory=list)


def check_source_folders(
    manifests: Iterable[Manifest], outside: Mapping[str, Sequence[Entry]], root: Path
) -> tuple[SourceFolderCheck, dict[str, Sequence[Entry]]]:
    """Compare the files of source folders with manifests, by name and size.

    Args:
        manifests: manifests of the artifacts of a chain.
        outside: external inputs of artifacts, by digest of the artifact.
        root: the data root of the chain.
    Returns:
        The comparison, and the rest of `outside`, which was not read from folders.
    """
    held, rest = SourceFolderCheck(), dict(outside)
    seen: set[tuple[Path, str]] = set()
    for manifest in manifests:
        folder = source_folder.folder_path(manifest, root)
        if folder is None or manifest.digest not in rest:
            continue
        is_here = folder.is_dir()
        if not is_here and folder not in held.missing:
            held.missing.append(folder)
        for entry in rest.pop(manifest.digest):
            path, digest, size = folder / entry["name"], entry["digest"], entry["bytes"]
            if (path, digest) in seen:
                continue
            seen.add((path, digest))
            held.listed += 1
            if not is_here:
                held.unavailable.append(str(path))
            elif (what := _not_as_listed(path, size)) is not None:
                held.findings.append(Finding(path, f"{what}; {CHANGED}", digest))
            else:
                sha256 = digest.removeprefix("sha256:")
                held.tasks.append(HashTask(digest, str(path), (path,), size, "sha256", sha256, "the manifest lists"))
    return held, rest


def _not_as_listed(path: Path, size: int) -> str | None:
    """Return why a file contradicts its listed size; None if it matches."""
    try:
        found = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return "the file is gone"
    except OSError as error:
        return read_error_text(error)
    return None if found == size else f"has {found:,} bytes, the manifest lists {size:,}"

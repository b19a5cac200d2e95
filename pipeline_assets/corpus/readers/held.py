"""What the hub cache and folders of this machine hold of the files that manifests name, as hash tasks.

Files are only read, and nothing is fetched.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pipeline_assets.corpus.readers.hub_files import HubFiles, Span
from pipeline_assets.corpus.readers.hub_listing import is_digest, read_listing
from pipeline_assets.corpus.readers.source_folder import folder_path
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.files import unreadable
from pipeline_assets.corpus.spine.lineage import Finding
from pipeline_assets.corpus.spine.manifest import Manifest
from pipeline_assets.corpus.spine.rehash import Algorithm, HashTask

Entry = Mapping[str, Any]
"""A file that an artifact was made from, as its manifest lists it."""
_HUB_FILE = re.compile(
    r"(?:models/(?P<model>(?:\w[\w.-]*/)?\w[\w.-]*)|(?P<dataset>[\w.-]+/[\w.-]+))@(?P<commit>[0-9a-f]{40}):(?P<path>.+)"
)
_SPAN = re.compile(r"(?P<start>\d+)-(?P<stop>\d+)\.(?P<sha256>[0-9a-f]{64})")
CURE = "delete it; it is fetched again when it is needed"
CHANGED = "it is not the file that was read: give that back, or build again"


@dataclass
class HeldOfHub:
    """How the cache stands to the hub files of a chain.

    Attributes:
        listed: files that manifests list. A manifest that names row groups read those files alone of all that it
            lists; any other read every file whole.
        whole: files read that are here from first to last byte: held against the hash that the hub lists.
        in_part: files read of which all row groups are here: held against the hash that they were fetched with, since
            the hub has none of a part.
        not_here: files read of which something that was read isn't.
        not_looked_for: inputs that are no hub files.
        tasks: what the bytes that are here should hash to.
        findings: what the names, sizes and listings alone contradict.
    """

    listed: int = 0
    whole: list[str] = field(default_factory=list)
    in_part: list[str] = field(default_factory=list)
    not_here: list[str] = field(default_factory=list)
    not_looked_for: list[str] = field(default_factory=list)
    tasks: list[HashTask] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def held_of_hub(cache: Path, outside: Mapping[str, Sequence[Entry]]) -> HeldOfHub:
    """
    Args:
        outside: the files that artifacts were made from, by digest of the artifact.
    """
    held = HeldOfHub()
    seen: set[str] = set()
    for artifact, entries in outside.items():
        listings: dict[Path, list[tuple[str, Entry]]] = {}
        reads_in_part = any("row_groups" in entry for entry in entries)
        for entry in entries:
            match = _hub_file(entry)
            if match is None:
                held.not_looked_for.append(entry["name"])
                continue
            hub, name = _repo_of(cache, match)
            listings.setdefault(hub.listing_path(name, match["commit"]), []).append((match["path"], entry))
            if entry["name"] not in seen:
                seen.add(entry["name"])
                was_read = "row_groups" in entry or not reads_in_part
                _look_for(entry, hub.bytes_folder(name, entry["digest"]), artifact, was_read, held)
        for path, listed in listings.items():
            held.findings += _listing_findings(path, listed, artifact)
    return held


def _hub_file(entry: Entry) -> re.Match[str] | None:
    match = _HUB_FILE.fullmatch(entry["name"])
    return match if match is not None and is_digest(entry["digest"]) else None


def _repo_of(cache: Path, match: re.Match[str]) -> tuple[HubFiles, str]:
    """The cache that the bytes of a hub file are kept in, and the name of its dataset or model."""
    model: str | None = match["model"]
    return (HubFiles(cache), match["dataset"]) if model is None else (HubFiles(cache).of_models(), model)


def _look_for(entry: Entry, folder: Path, artifact: str, was_read: bool, held: HeldOfHub) -> None:
    held.listed += 1
    spans: list[Span] = []
    for span in _spans_in(folder):
        size = span.local.stat().st_size
        if size == span.stop - span.start:
            spans.append(span)
        else:
            what = f"has {size:,} bytes, fetched with {span.stop - span.start:,}; {CURE}"
            held.findings.append(Finding(span.local, what, artifact))
    tiles = _apart(spans)
    is_whole = covers(tiles, 0, entry["bytes"])
    if is_whole and tiles:
        held.tasks.append(_task_of_file(entry, tiles))
    held.tasks += [_task_of_span(entry, span) for span in spans if not is_whole or span not in tiles]
    if was_read:
        groups = entry.get("row_groups")
        is_here = groups is not None and all(covers(tiles, group["start"], group["stop"]) for group in groups)
        (held.whole if is_whole else held.in_part if is_here else held.not_here).append(entry["name"])


def spans_of(cache: Path, entry: Entry) -> list[Span]:
    """The bytes of a hub file that the cache holds: in order, no byte in two spans."""
    match = _hub_file(entry)
    if match is None:
        return []
    hub, name = _repo_of(cache, match)
    folder = hub.bytes_folder(name, entry["digest"])
    return _apart([span for span in _spans_in(folder) if span.local.stat().st_size == span.stop - span.start])


def covers(spans: Sequence[Span], start: int, stop: int) -> bool:
    """Whether spans, in order, hold all of [start, stop)."""
    for span in spans:
        if span.start <= start < span.stop:
            start = span.stop
    return start >= stop


def _spans_in(folder: Path) -> Iterator[Span]:
    for path in folder.glob("*-*.*"):
        match = _SPAN.fullmatch(path.name)
        if match is not None:
            yield Span(int(match["start"]), int(match["stop"]), path)


def _apart(spans: Sequence[Span]) -> list[Span]:
    """Spans in order without those that begin inside one before them; of two with one start, the longer."""
    apart: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        if not apart or span.start >= apart[-1].stop:
            apart.append(span)
    return apart


def _task_of_file(entry: Entry, tiles: Sequence[Span]) -> HashTask:
    algorithm, _, expected = entry["digest"].partition(":")
    paths = tuple(span.local for span in tiles)
    said = "the hub lists"
    return HashTask(entry["digest"], entry["name"], paths, entry["bytes"], cast(Algorithm, algorithm), expected, said)


def _task_of_span(entry: Entry, span: Span) -> HashTask:
    name = f"{entry['name']} bytes {span.start}-{span.stop}"
    sha256 = span.local.suffix[1:]
    return HashTask(entry["digest"], name, (span.local,), span.stop - span.start, "sha256", sha256, "fetched with")


def _listing_findings(path: Path, listed: Sequence[tuple[str, Entry]], artifact: str) -> Iterator[Finding]:
    """Where the cached listing of a commit says something else than the manifest; a listing that isn't here is fine."""
    try:
        cached = {file.path: (file.digest, file.size) for file in read_listing(path)}
    except FileNotFoundError:
        return
    except InputError as error:
        yield Finding(path, f"the listing can't be read ({error.what}); {CURE}", artifact)
        return
    for name, entry in listed:
        digest, size = cached.get(name, ("nothing", 0))
        if (digest, size) != (entry["digest"], entry["bytes"]):
            what = f"lists {name} as {digest} of {size} bytes, the manifest as {entry['digest']} of {entry['bytes']}"
            yield Finding(path, f"{what}; {CURE}", artifact)


@dataclass
class HeldOfFolders:
    """How the files of source folders stand to the manifests that name them.

    Attributes:
        listed: files that manifests name, each once.
        not_here: those whose folder is gone, or was never on this machine; nothing is said of them.
        gone: these folders.
        tasks: what the files that are here in their sizes should hash to.
        findings: what is no more as it was: files that are gone from a folder that is here, or have another size; those
            of another hash are added when they are read.
    """

    listed: int = 0
    not_here: list[str] = field(default_factory=list)
    gone: list[Path] = field(default_factory=list)
    tasks: list[HashTask] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def held_of_folders(
    manifests: Iterable[Manifest], outside: Mapping[str, Sequence[Entry]], root: Path
) -> tuple[HeldOfFolders, dict[str, Sequence[Entry]]]:
    """
    Args:
        manifests: of the artifacts of a chain.
        outside: the files that artifacts were made from, by digest of the artifact.
        root: the data root of the chain.
    Returns:
        what the folders hold; and of `outside` the rest, which was read from elsewhere.
    """
    held, rest = HeldOfFolders(), dict(outside)
    seen: set[tuple[Path, str]] = set()
    for manifest in manifests:
        folder = folder_path(manifest, root)
        if folder is None or manifest.digest not in rest:
            continue
        is_here = folder.is_dir()
        if not is_here and folder not in held.gone:
            held.gone.append(folder)
        for entry in rest.pop(manifest.digest):
            path, digest, size = folder / entry["name"], entry["digest"], entry["bytes"]
            if (path, digest) in seen:
                continue
            seen.add((path, digest))
            held.listed += 1
            if not is_here:
                held.not_here.append(str(path))
            elif (what := _not_as_listed(path, size)) is not None:
                held.findings.append(Finding(path, f"{what}; {CHANGED}", digest))
            else:
                sha256 = digest.removeprefix("sha256:")
                held.tasks.append(HashTask(digest, str(path), (path,), size, "sha256", sha256, "the manifest lists"))
    return held, rest


def _not_as_listed(path: Path, size: int) -> str | None:
    """What is wrong with a file by its name and size; None if nothing is."""
    try:
        found = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return "the file is gone"
    except OSError as error:
        return unreadable(error)
    return None if found == size else f"has {found:,} bytes, the manifest lists {size:,}"

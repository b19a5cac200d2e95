"""Comparison of local input files with the manifests that list them.

This module compares names and sizes, and fetches no file. To compare contents, callers run the returned hash tasks.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pipeline_assets.corpus.readers import hub_cache, hub_files, source_folder
from pipeline_assets.corpus.readers.hub_listing import is_digest, read_listing
from pipeline_assets.corpus.stores.object_source import VERSIONS_KEY
from pipeline_assets.spine.disk_errors import read_error_text
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Finding
from pipeline_assets.spine.manifest import Manifest
from pipeline_assets.spine.rehash import Algorithm, HashTask

InputEntry = Mapping[str, Any]
"""Manifest entry of an input file."""
_HUB_FILE = re.compile(
    r"(?:models/(?P<model>(?:\w[\w.-]*/)?\w[\w.-]*)|(?P<dataset>[\w.-]+/[\w.-]+))@(?P<commit>[0-9a-f]{40}):(?P<path>.+)"
)
_SPAN = re.compile(r"(?P<start>\d+)-(?P<stop>\d+)\.(?P<sha256>[0-9a-f]{64})")
CACHE_FIX = "delete it; it is fetched again when needed"
CHANGED_FIX = "the file changed after the build: restore it, or build again"


@dataclass
class FilesCheck:
    """Comparison of files on this machine with the manifests that list them."""

    listed_count: int = 0  # a file in several manifests counts once
    unavailable: list[str] = field(default_factory=list)  # names of read files that are missing here, at least in part
    tasks: list[HashTask] = field(default_factory=list)  # for files, and parts of files, of the expected size
    findings: list[Finding] = field(default_factory=list)  # contradictions of a manifest with a file or cached listing


@dataclass
class HubCacheCheck(FilesCheck):
    """Comparison of the hub cache with manifests.

    Tasks compare a whole file with the hash in the hub's listing, and a part with the hash from when it was fetched.
    """

    whole_files: list[str] = field(default_factory=list)  # names of completely cached files
    partial_files: list[str] = field(default_factory=list)  # names of files cached only in the parts that builds read
    unsearched_names: list[str] = field(default_factory=list)  # of inputs that are not hub files or have no hash


def check_hub_cache(cache: Path, external_inputs: Mapping[str, Sequence[InputEntry]]) -> HubCacheCheck:
    """Compare the hub cache with `external_inputs`, input entries keyed by digest."""
    check = HubCacheCheck()
    seen: set[str] = set()
    for artifact, entries in external_inputs.items():
        listings: dict[Path, list[tuple[str, InputEntry]]] = {}
        # a manifest with row groups lists all files, but only those with row groups were read
        reads_in_part = any("row_groups" in entry for entry in entries)
        for entry in entries:
            match = _HUB_FILE.fullmatch(entry["name"])
            if match is None or not is_digest(entry["digest"]):
                check.unsearched_names.append(entry["name"])
                continue
            hub = hub_files.HubFiles(cache, repo_type="dataset" if match["dataset"] else "model")
            name = match["dataset"] or match["model"]
            listings.setdefault(hub.listing_path(name, match["commit"]), []).append((match["path"], entry))
            if entry["name"] not in seen:
                seen.add(entry["name"])
                was_read = "row_groups" in entry or not reads_in_part
                _check_spans(entry, hub.spans_folder(name, entry["digest"]), artifact, was_read, check)
        for path, listed in listings.items():
            problems = _listing_contradictions(path, listed)
            check.findings += (Finding(path, f"{what}; {CACHE_FIX}", artifact) for what in problems)
    return check


def _check_spans(entry: InputEntry, folder: Path, artifact_digest: str, was_read: bool, check: HubCacheCheck) -> None:
    """Add a file's hash tasks to `check`, and a finding for each span of wrong size.

    If a build read the file (`was_read`), also add its name to `whole_files`, `partial_files` or `unavailable`.
    """
    check.listed_count += 1
    spans: list[hub_cache.Span] = []
    for path in folder.glob("*-*.*"):
        if (match := _SPAN.fullmatch(path.name)) is not None:
            span, size = hub_cache.Span(int(match["start"]), int(match["stop"]), path), path.stat().st_size
            if size == span.stop - span.start:
                spans.append(span)
            else:
                what = f"has {size:,} bytes, fetched with {span.stop - span.start:,}; {CACHE_FIX}"
                check.findings.append(Finding(path, what, artifact_digest))
    # Cached spans may overlap. Tiles are disjoint, so that hashing them in order hashes no byte twice: sorted by start,
    # and the longest first at equal starts, a span becomes a tile if it begins after the last tile's end.
    tiles: list[hub_cache.Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        if not tiles or span.start >= tiles[-1].stop:
            tiles.append(span)
    is_whole = _covers(tiles, 0, entry["bytes"])
    if is_whole and tiles:
        algorithm, _, expected = entry["digest"].partition(":")
        paths, source = tuple(span.path for span in tiles), "the hub lists"
        kind = cast(Algorithm, algorithm)
        check.tasks.append(HashTask(entry["digest"], entry["name"], paths, entry["bytes"], kind, expected, source))
    for span in spans:
        if not is_whole or span not in tiles:  # not covered by the hash of the whole file
            name, sha256 = f"{entry['name']} bytes {span.start}-{span.stop}", span.path.suffix[1:]
            size = span.stop - span.start
            check.tasks.append(HashTask(entry["digest"], name, (span.path,), size, "sha256", sha256, "fetched with"))
    if was_read:
        groups = entry.get("row_groups")
        has_groups = groups is not None and all(_covers(tiles, group["start"], group["stop"]) for group in groups)
        names = check.whole_files if is_whole else check.partial_files if has_groups else check.unavailable
        names.append(entry["name"])


def _covers(spans: Sequence[hub_cache.Span], start: int, stop: int) -> bool:
    """Check whether spans, sorted by start, cover the bytes [start, stop)."""
    for span in spans:
        if span.start <= start < span.stop:
            start = span.stop  # everything before is covered
    return start >= stop


def _listing_contradictions(path: Path, listed_entries: Sequence[tuple[str, InputEntry]]) -> Iterator[str]:
    """Yield contradictions between a cached hub listing and manifest entries."""
    try:
        cached = {file.path: f"{file.digest} of {file.size} bytes" for file in read_listing(path)}
    except FileNotFoundError:
        return
    except InputError as error:
        yield f"the listing cannot be read ({error.what})"
        return
    for name, entry in listed_entries:
        stated, listed = f"{entry['digest']} of {entry['bytes']} bytes", cached.get(name, "missing")
        if listed != stated:
            yield f"{name} is {listed} in the listing, the manifest lists {stated}"


@dataclass
class SourceFolderCheck(FilesCheck):
    """Comparison of source folders with manifests; lists missing folders, too."""

    missing_folders: list[Path] = field(default_factory=list)


def check_source_folders(
    manifests: Iterable[Manifest], external_inputs: Mapping[str, Sequence[InputEntry]], root: Path
) -> tuple[SourceFolderCheck, dict[str, Sequence[InputEntry]]]:
    """Compare source folders with `external_inputs`, input entries keyed by digest.

    Return the check, and the entries of artifacts without a source folder, which were not compared.
    """
    check, rest = SourceFolderCheck(), dict(external_inputs)
    seen: set[tuple[Path, str]] = set()
    for manifest in manifests:
        folder = source_folder.input_folder_path(manifest, root)
        if folder is None or manifest.digest not in rest:
            continue
        exists, is_fetched_again = folder.is_dir(), VERSIONS_KEY in manifest.provenance
        if not exists and folder not in check.missing_folders:
            check.missing_folders.append(folder)
        for entry in rest.pop(manifest.digest):
            path, digest, size = folder / entry["name"], entry["digest"], entry["bytes"]
            if (path, digest) in seen:
                continue
            seen.add((path, digest))
            check.listed_count += 1
            if not exists or (is_fetched_again and not os.path.lexists(path)):
                check.unavailable.append(str(path))
            elif (what := _file_problem(path, size)) is not None:
                check.findings.append(Finding(path, f"{what}; {CHANGED_FIX}", digest))
            else:
                sha256 = digest.removeprefix("sha256:")
                check.tasks.append(HashTask(digest, str(path), (path,), size, "sha256", sha256, "the manifest lists"))
    return check, rest


def _file_problem(path: Path, listed_bytes: int) -> str | None:
    """Return how a file contradicts its listed size; None if it matches."""
    try:
        actual_size = path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return "file not found"
    except OSError as error:
        return read_error_text(error)
    return None if actual_size == listed_bytes else f"has {actual_size:,} bytes, the manifest lists {listed_bytes:,}"

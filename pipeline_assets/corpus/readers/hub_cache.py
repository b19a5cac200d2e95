"""Cached spans (byte ranges) of hub files.

Each hub file has a folder, named after the file's hash. Its spans are named `<start>-<stop>.<sha256 of the span>`, and
its unfinished downloads `<start>-<stop>.<boot id>.part`.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import RetryableError
from pipeline_assets.spine.files import file_sha256, read_blocks

logger = logging.getLogger("corpusmill")
_PARTIAL_SUFFIX = ".part"


@dataclass(frozen=True)
class Span:
    """Bytes [start, stop) of a hub file, stored in a local file."""

    start: int
    stop: int
    path: Path


def check_file_hash(file: HubFile, spans: Sequence[Span], where: str) -> None:
    """Check a whole file's hash; if wrong, delete the spans and raise RetryableError."""
    kind, _, expected = file.digest.partition(":")
    digest = hashlib.sha256() if kind == "sha256" else hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)
    for span in spans:
        with open(span.path, "rb", buffering=0) as data:
            for block in read_blocks(data):
                digest.update(block)
    if digest.hexdigest() != expected:
        delete_spans(spans)
        what = f"downloaded bytes do not match {file.digest} of the listing"
        raise RetryableError(what, where, "run again; if the error persists, the hub's copy is damaged")


def delete_spans(spans: Iterable[Span]) -> None:
    """Delete cached spans, so that the next attempt fetches them again."""
    for span in spans:
        span.path.unlink(missing_ok=True)


def find_span_file(folder: Path, start: int, stop: int) -> Path | None:
    """Return the cached file of a byte range, None if missing; delete damaged files."""
    for path in folder.glob(f"{start}-{stop}.*"):
        if path.suffix == _PARTIAL_SUFFIX:
            continue
        if file_sha256(path) == path.suffix[1:]:
            with suppress(PermissionError):  # the file of another user, who alone can remove it
                os.utime(path)  # `gc` keeps files that were used in the last day
            return path
        logger.warning("%s: cached bytes are damaged; fetching them again", path)
        path.unlink()
    return None


def cached_folders(cache: Path) -> Iterator[tuple[str, Path]]:
    """Yield the digest and the folder of each cached hub file, in the order of paths."""
    for folder in sorted(cache.glob("**/bytes/*-*")):
        yield ":".join(folder.name.rsplit("-", 1)), folder


def prepare_partial_path(folder: Path, start: int, stop: int) -> Path:
    """Return the path of a range's partial file; delete partials of earlier boots."""
    partial = folder / _partial_name(start, stop)
    for other in folder.glob(f"{start}-{stop}.*{_PARTIAL_SUFFIX}"):
        if other == partial:
            durable.remove_abandoned(folder)
            durable.take_over(partial)  # it may belong to another user of a shared cache
        else:
            durable.remove(other)
    return partial


def _partial_name(start: int, stop: int) -> str:
    return f"{start}-{stop}.{durable.boot_id()}{_PARTIAL_SUFFIX}"


def count_missing_bytes(folder: Path, start: int, stop: int) -> int:
    """Count the bytes of [start, stop) that the cache lacks.

    Only spans with exactly these bounds count as cached, and a partial download only if it began since the last boot.
    Damaged bytes count as cached, too, because damage is found only when they are used.
    """
    missing, partial = stop - start, _partial_name(start, stop)
    for path in folder.glob(f"{start}-{stop}.*"):
        size = path.stat().st_size
        if path.name == partial or (path.suffix != _PARTIAL_SUFFIX and size == stop - start):
            missing = min(missing, stop - start - size)
    return max(0, missing)

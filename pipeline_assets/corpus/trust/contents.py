"""Contents worked out again: what files say, held against the hashes that the digest of their artifact covers.

A manifest's `storage` is in no digest: whoever edits a compressed file and its line there leaves a manifest that fits.
Only reading what the file says shows it. Of a file that is stored as it is, the two hashes are one.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from pipeline_assets.corpus.formats.parquet import content_sha256
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.manifest import FileContent, Manifest
from pipeline_assets.corpus.spine.rehash import HashTask, Journal, Key, state_of
from pipeline_assets.corpus.spine.usage import Progress


@dataclass(frozen=True)
class ContentResult:
    """What came of a file's content: a complaint, or None where it is the one that the digest names."""

    task: HashTask
    complaint: str | None


def contents_of(tasks: Sequence[HashTask], manifests: Sequence[Manifest]) -> list[tuple[HashTask, FileContent]]:
    """The tasks of files whose content has a hash of its own, with it. Labels and raw files have none."""
    named = {(manifest.digest, file.path): file for manifest in manifests for file in manifest.identity.files}
    found = [(task, named.get((task.owner, task.name))) for task in tasks]
    return [(task, content) for task, content in found if content is not None and not content.is_raw]


def read_contents(
    contents: Sequence[tuple[HashTask, FileContent]], journal: Journal, threads: int, progress: Progress
) -> Iterator[ContentResult]:
    """A result for each, in their order; what an interrupted process found right is not read again."""
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for result in pool.map(lambda item: _read(item[0], item[1], journal), contents):
            progress.add(result.task.bytes, {})
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _read(task: HashTask, content: FileContent, journal: Journal) -> ContentResult:
    [path] = task.paths
    try:
        key: Key = ["content", content.content_sha256, state_of(path)]
        if journal.fact(key) is not None:
            return ContentResult(task, None)
        actual = content_sha256(path)
        if actual != content.content_sha256:
            return ContentResult(task, f"its content has {actual}, the digest names {content.content_sha256}")
        if key == ["content", content.content_sha256, state_of(path)]:
            journal.note(key, {"content": actual})
    except InputError as error:
        return ContentResult(task, error.what)
    except (pa.ArrowException, OSError) as error:
        return ContentResult(task, f"its content can't be read ({' '.join(str(error).split())})")
    return ContentResult(task, None)

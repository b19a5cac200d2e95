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
from pipeline_assets.corpus.spine.journal import Journal, Key, state_of
from pipeline_assets.corpus.spine.manifest import FileContent, Manifest
from pipeline_assets.corpus.spine.progress import Progress
from pipeline_assets.corpus.spine.rehash import Claim


@dataclass(frozen=True)
class ContentReading:
    """What came of a file's content: a complaint, or None where it is the one that the digest names."""

    claim: Claim
    complaint: str | None


def contents_of(claims: Sequence[Claim], manifests: Sequence[Manifest]) -> list[tuple[Claim, FileContent]]:
    """The claims on files whose content has a hash of its own, with it. Labels and raw files have none."""
    named = {(manifest.digest, file.path): file for manifest in manifests for file in manifest.identity.files}
    found = [(claim, named.get((claim.owner, claim.name))) for claim in claims]
    return [(claim, content) for claim, content in found if content is not None and not content.is_raw]


def read_contents(
    contents: Sequence[tuple[Claim, FileContent]], journal: Journal, threads: int, progress: Progress
) -> Iterator[ContentReading]:
    """A reading of each, in their order; what an interrupted process found right is not read again."""
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for reading in pool.map(lambda item: _read(item[0], item[1], journal), contents):
            progress.add(reading.claim.bytes, {})
            yield reading
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _read(claim: Claim, content: FileContent, journal: Journal) -> ContentReading:
    [path] = claim.paths
    try:
        key: Key = ["content", content.content_sha256, state_of(path)]
        if journal.fact(key) is not None:
            return ContentReading(claim, None)
        actual = content_sha256(path)
        if actual != content.content_sha256:
            return ContentReading(claim, f"its content has {actual}, the digest names {content.content_sha256}")
        if key == ["content", content.content_sha256, state_of(path)]:
            journal.note(key, {"content": actual})
    except InputError as error:
        return ContentReading(claim, error.what)
    except (pa.ArrowException, OSError) as error:
        return ContentReading(claim, f"its content can't be read ({' '.join(str(error).split())})")
    return ContentReading(claim, None)

"""Verification of file hashes in threads, since hashing releases the GIL."""

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_assets.spine.disk_errors import read_error_text
from pipeline_assets.spine.files import read_blocks
from pipeline_assets.spine.progress import Progress

Algorithm = Literal["sha256", "git-sha1"]
_TICK_BYTES = 16 << 20


@dataclass(frozen=True)
class HashTask:
    """Bytes to hash, and the expected hash.

    Attributes:
        owner_digest: Digest of the artifact that has the file; for an external input file, the file's own digest.
        name: Name of the file in messages and reports.
        paths: Files with the bytes: one file, or its pieces in order.
        origin_phrase: Text before the expected hash in error messages, such as `sealed with`.
    """

    owner_digest: str
    name: str
    paths: tuple[Path, ...]
    bytes: int
    algorithm: Algorithm
    expected_hash: str
    origin_phrase: str


def rehash(tasks: Sequence[HashTask], threads: int, progress: Progress) -> Iterator[tuple[HashTask, str | None]]:
    """Run tasks in threads; yield each with its error, or None if the hash matches.

    Large files start first. `progress` counts bytes. Closing the iterator cancels the remaining tasks.
    """
    largest_first = sorted(tasks, key=lambda task: -task.bytes)
    stop, progress_lock = threading.Event(), threading.Lock()

    def add_bytes(byte_count: int) -> None:
        with progress_lock:
            progress.add(byte_count)

    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for reading in as_completed([pool.submit(_check_hash, task, add_bytes, stop) for task in largest_first]):
            yield reading.result()
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _check_hash(
    task: HashTask, add_bytes: Callable[[int], None], stop_event: threading.Event
) -> tuple[HashTask, str | None]:
    """Hash a task's files; return the task and its error, None if the hash matches."""
    digest = hashlib.sha256() if task.algorithm == "sha256" else hashlib.sha1(usedforsecurity=False)
    if task.algorithm == "git-sha1":  # a git blob's id also covers this header
        digest.update(b"blob %d\0" % task.bytes)
    problem, done, counted = None, 0, 0
    try:
        for block in itertools.chain.from_iterable(map(_read_blocks, task.paths)):
            if stop_event.is_set():
                raise CancelledError
            digest.update(block)
            done += len(block)
            if done - counted >= _TICK_BYTES:
                add_bytes(done - counted)
                counted = done
        if (actual := digest.hexdigest()) != task.expected_hash:
            problem = f"{task.algorithm} is {actual}, {task.origin_phrase} {task.expected_hash}"
    except OSError as error:
        problem = read_error_text(error)
    add_bytes(task.bytes - counted)
    return task, problem


def _read_blocks(path: Path) -> Iterator[memoryview]:
    with open(path, "rb", buffering=0) as file:
        yield from read_blocks(file)

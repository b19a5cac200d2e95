"""Files held against their hashes: read by a few threads, since hashing lets the others run. A file that a former
process found right is not read again; one in whose middle it stopped is read from its beginning.
"""

import hashlib
import queue
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from pipeline_assets.corpus.spine.hashes import unreadable
from pipeline_assets.corpus.spine.journal import Journal, Key, state_of
from pipeline_assets.corpus.spine.progress import Progress

Algorithm = Literal["sha256", "git-sha1"]
_BLOCK_BYTES = 1 << 20
_TICK_BYTES = 16 << 20


@dataclass(frozen=True)
class HashTask:
    """Some bytes and the hash that they should have.

    Attributes:
        owner: digest of the artifact or hub file that names the hash.
        name: the file in its owner.
        paths: where the bytes lie, one file or pieces in order.
        expected: in hex.
        said: how the hash was named: `sealed with`.
    """

    owner: str
    name: str
    paths: tuple[Path, ...]
    bytes: int
    algorithm: Algorithm
    expected: str
    said: str


@dataclass(frozen=True)
class HashResult:
    """The hash of a task's bytes.

    Attributes:
        actual: the hash that the bytes have; None where they can't be read.
        complaint: None where the bytes are as expected.
        bytes_read: by this process.
        found_at: when a former process found the bytes as expected, in seconds since 1970; None where this one did.
    """

    task: HashTask
    actual: str | None
    complaint: str | None
    bytes_read: int = 0
    found_at: int | None = None


class _Stopped(Exception):
    """The reading was called off."""


# From the threads: how many more bytes are done, a result, or what went wrong with the program.
_Answers: TypeAlias = "queue.SimpleQueue[int | HashResult | BaseException]"


def rehash(tasks: Sequence[HashTask], journal: Journal, threads: int, progress: Progress) -> Iterator[HashResult]:
    """A result for each task, those known from the journal first, then as they are done; large files are begun first.

    What was damaged is always read again. Closing the iterator calls the rest off.

    Args:
        progress: counts the bytes of all tasks as they are read or known.
    """
    fresh = []
    for task in tasks:
        known = _known(task, journal)
        if known is None:
            fresh.append(task)
        else:
            progress.add_done_before(task.bytes)
            yield HashResult(task, task.expected, None, 0, known)
    fresh.sort(key=lambda task: -task.bytes)
    answers: _Answers = queue.SimpleQueue()
    stop = threading.Event()
    pool = ThreadPoolExecutor(max(threads, 1))
    try:
        for task in fresh:
            pool.submit(_answer, answers, task, journal, stop)
        left = len(fresh)
        while left:
            match answers.get():
                case int(more):
                    progress.add(more, {})
                case HashResult() as result:
                    left -= 1
                    yield result
                case BaseException() as error:
                    raise error
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _known(task: HashTask, journal: Journal) -> int | None:
    """When a former process found the bytes as expected; None where none did, or the files were touched since."""
    try:
        fact = journal.fact(_key(task))
    except OSError:
        return None
    return int(fact["at"]) if fact is not None and fact.get("hash") == task.expected else None


def _key(task: HashTask) -> Key:
    """All that a hash depends on, as far as can be told without reading."""
    return ["whole", task.owner, task.name, task.algorithm, [state_of(path) for path in task.paths]]


def _answer(answers: _Answers, task: HashTask, journal: Journal, stop: threading.Event) -> None:
    try:
        answers.put(_result(answers, task, journal, stop))
    except _Stopped:
        return
    except BaseException as error:
        answers.put(error)


def _result(answers: _Answers, task: HashTask, journal: Journal, stop: threading.Event) -> HashResult:
    digest = hashlib.sha256() if task.algorithm == "sha256" else hashlib.sha1(usedforsecurity=False)
    if task.algorithm == "git-sha1":
        digest.update(b"blob %d\0" % task.bytes)
    done = told = 0
    try:
        key = _key(task)
        for block in _blocks(task.paths):
            if stop.is_set():
                raise _Stopped
            digest.update(block)
            done += len(block)
            if done - told >= _TICK_BYTES:
                answers.put(done - told)
                told = done
        actual = digest.hexdigest()
        if actual == task.expected and _key(task) == key:
            journal.note(key, {"hash": actual})
    except OSError as error:
        answers.put(task.bytes - told)
        return HashResult(task, None, unreadable(error), done)
    answers.put(task.bytes - told)
    is_right = actual == task.expected
    return HashResult(
        task, actual, None if is_right else f"{task.algorithm} is {actual}, {task.said} {task.expected}", done
    )


def _blocks(paths: Sequence[Path]) -> Iterator[memoryview]:
    """The bytes of files, one after the other; each block is overwritten by the next."""
    block = memoryview(bytearray(_BLOCK_BYTES))
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(block):
                yield block[:count]

"""Files held against their hashes by threads: each found right or wrong, none twice, whatever stopped the last process.

Between two processes nothing counts but the journal: what was found outlives the process that found it, however that
ends. A file that was changed behind the back of size, time and inode shows whether it was read again.
"""

import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from crash_points import killed_at, steps_of

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rehash import HashResult, HashTask, Journal, rehash, state_of
from pipeline_assets.corpus.spine.usage import Progress

MIB = 1 << 20
SIZES = {"a": 10, "b": 3 * MIB + 7, "c": 0, "d": MIB, "e": 5000}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "journal.jsonl"


def numbers(journal: Journal) -> list[int]:
    """The facts 0, 1, 2, … that are there."""
    return [number for number in range(20) if (fact := journal.fact(["n", number])) and fact["square"] == number**2]


def write_numbers(path: Path, *some: int) -> None:
    with Journal(path) as journal:
        for number in some:
            journal.note(["n", number], {"square": number**2})


def test_what_was_noted_is_known_to_the_next_process_unless_it_starts_fresh(path: Path) -> None:
    write_numbers(path, 1, 2)
    write_numbers(path, 5)

    with Journal(path) as journal:
        assert numbers(journal) == [1, 2, 5]
        assert journal.fact(["n", 1])["at"] > 1_700_000_000
        assert journal.fact(["n", 7]) is None
    for is_fresh in (True, False):
        with Journal(path, is_fresh) as journal:
            assert numbers(journal) == []


def test_notes_are_durable_again_and_again_before_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline_assets.corpus.spine.rehash._SYNC_EVERY_S", 0)

    with Journal(path) as journal:
        steps = steps_of(lambda: [journal.note(["n", number], {"square": number**2}) for number in (1, 2)])

    assert steps == [("append", path), ("fsync", path)] * 2


def test_the_latest_fact_counts(path: Path) -> None:
    with Journal(path) as journal:
        journal.note(["part"], {"read": 1})
        journal.note(["part"], {"read": 2})

    assert Journal(path).fact(["part"])["read"] == 2


def test_a_reading_that_ended_leaves_nothing(path: Path) -> None:
    with Journal(path) as journal:
        journal.note(["n", 1], {"square": 1})
        journal.forget()

    assert list(path.parent.iterdir()) == []


def test_without_a_file_facts_are_known_to_this_process_alone() -> None:
    with Journal(None) as journal:
        journal.note(["n", 1], {"square": 1})
        journal.forget()

        assert numbers(journal) == [1]
    assert numbers(Journal(None)) == []


def test_of_a_file_cut_anywhere_the_whole_lines_are_known_and_more_can_be_noted(path: Path) -> None:
    write_numbers(path, 1, 2, 3)
    whole = path.read_bytes()

    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        write_numbers(path, 9)
        with Journal(path) as journal:
            known = numbers(journal)
        assert known == [*[1, 2, 3][: len(known) - 1], 9]
    assert known == [1, 2, 3, 9]


@pytest.mark.parametrize("line", ["{", "[]", "null", "7", '{"key": 1}', '{"key": "a", "fact": 3}', "\0\0\0"])
def test_a_line_that_says_nothing_is_passed_over(path: Path, line: str) -> None:
    write_numbers(path, 1)
    with open(path, "a") as file:
        file.write(line + "\n")
    write_numbers(path, 2)

    assert numbers(Journal(path)) == [1, 2]


def test_facts_of_another_version_are_none(path: Path) -> None:
    write_numbers(path, 1)
    said = b'{"schema": "corpusmill/journal/1"}'
    header = said + hashlib.sha256(said).hexdigest()[:32].encode()
    path.write_bytes(header + b"\n" + path.read_bytes().split(b"\n", 2)[2])

    write_numbers(path, 2)

    assert numbers(Journal(path)) == [2]


def test_a_line_of_which_a_bit_flipped_says_nothing(path: Path) -> None:
    """The state of a hash, taken up with a flipped bit, would have the library write where it may not."""
    write_numbers(path, 1)
    whole = path.read_bytes()
    fact = whole.index(b'{"key"')

    for position in range(fact, len(whole) - 1):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1 << position % 8]) + whole[position + 1 :])
        with Journal(path) as journal:
            assert journal.fact(["n", 1]) is None, position


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_what_is_no_journal_is_no_place_for_one(path: Path, make: Callable[[Path], object]) -> None:
    path.parent.mkdir()
    make(path)

    with pytest.raises((OSError, InputError)):
        Journal(path)

    assert not (path.parent / "elsewhere").exists()


def test_a_second_process_does_not_get_it(path: Path) -> None:
    with Journal(path), pytest.raises(BlockingIOError):
        Journal(path)

    Journal(path)


def test_many_threads_note_whole_lines(path: Path) -> None:
    with Journal(path) as journal:
        threads = [
            threading.Thread(target=lambda first=first: [journal.note(["n", n], {"square": n**2}) for n in first])
            for first in (range(10), range(10, 20))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert numbers(Journal(path)) == list(range(20))
    assert all(json.loads(line[:-32]) for line in path.read_text().splitlines() if line)


def test_killed_at_any_step_it_knows_all_that_was_noted_before(path: Path) -> None:
    path.parent.mkdir()
    known = []
    at = 1
    while killed_at(at, lambda: write_numbers(path, 1, 2, 3)):
        known.append(numbers(Journal(path)))
        path.unlink()
        at += 1

    # Before the file, its folder's names and its first line; before each of three notes; before they are durable.
    assert known == [[], [], [], [], [1], [1, 2], [1, 2, 3]]


def test_the_state_of_a_file_changes_with_its_bytes_and_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("one")
    before = state_of(file)
    (tmp_path / "b").write_text("one")

    assert state_of(file) == before
    assert state_of(tmp_path / "b") != before
    (tmp_path / "b").rename(file)
    assert state_of(file) != before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files a to e, of which b is read in four blocks."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, size in SIZES.items():
        (folder / name).write_bytes(content(name, size))
    return folder


def content(name: str, size: int) -> bytes:
    return (name.encode() * size)[:size]


def tasks(folder: Path, names: Sequence[str] = tuple(SIZES)) -> list[HashTask]:
    expected = {name: sha256(content(name, SIZES[name])) for name in names}
    return [
        HashTask("owner", name, (folder / name,), SIZES[name], "sha256", expected[name], "sealed with")
        for name in names
    ]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(wanted: Sequence[HashTask], journal: Journal, threads: int = 1) -> dict[str, HashResult]:
    progress = Progress("verify", sum(task.bytes for task in wanted), "bytes", every_s=1000)
    return {result.task.name: result for result in rehash(wanted, journal, threads, progress)}


def change_unseen(path: Path) -> None:
    """One bit, with size, time and inode as they were."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(bytes([path.read_bytes()[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
def test_every_file_is_read_once_and_as_claimed(folder: Path, threads: int) -> None:
    found = read(tasks(folder), Journal(None), threads)

    assert {name: result.bytes_read for name, result in found.items()} == SIZES
    assert read([], Journal(None), threads) == {}
    assert all(
        result.complaint is None and result.actual == result.task.expected and result.found_at is None
        for result in found.values()
    )


def test_a_file_that_changed_or_cannot_be_read_is_complained_of_and_hides_no_other(folder: Path) -> None:
    change_unseen(folder / "e")
    (folder / "a").unlink()
    (folder / "d").unlink()
    (folder / "d").mkdir()

    found = read(tasks(folder), Journal(None))

    actual = sha256((folder / "e").read_bytes())
    assert {name: result.complaint for name, result in found.items()} == {
        "a": "it can't be read (No such file or directory)",
        "b": None,
        "c": None,
        "d": "it can't be read (Is a directory)",
        "e": f"sha256 is {actual}, sealed with {sha256(content('e', 5000))}",
    }
    assert (found["d"].actual, found["e"].actual) == (None, actual)


def test_pieces_are_held_against_the_hash_of_the_whole(folder: Path) -> None:
    paths = tuple(folder / name for name in "cab")
    whole = b"".join(path.read_bytes() for path in paths)
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(whole) + whole).hexdigest()

    found = read(
        [
            HashTask("x", "sha256", paths, len(whole), "sha256", sha256(whole), "listed as"),
            HashTask("x", "git", paths, len(whole), "git-sha1", git_sha1, "listed as"),
            HashTask("x", "wrong", paths, len(whole), "git-sha1", "0" * 40, "listed as"),
        ],
        Journal(None),
    )

    assert (found["sha256"].complaint, found["git"].complaint) == (None, None)
    assert found["wrong"].complaint == f"git-sha1 is {git_sha1}, listed as {'0' * 40}"


def test_what_a_former_process_found_right_is_not_read_again(folder: Path, path: Path) -> None:
    with Journal(path) as journal:
        read(tasks(folder, "ab"), journal)
    change_unseen(folder / "a")

    with Journal(path) as journal:
        found = read(tasks(folder), journal)

    assert {name: result.bytes_read for name, result in found.items()} == SIZES | {"a": 0, "b": 0}
    assert [name for name, result in found.items() if result.found_at] == ["a", "b"]
    assert all(result.complaint is None for result in found.values())


def test_what_it_found_wrong_is_read_again(folder: Path, path: Path) -> None:
    right = (folder / "e").read_bytes()
    change_unseen(folder / "e")
    with Journal(path) as journal:
        assert read(tasks(folder), journal)["e"].complaint is not None
    (folder / "e").write_bytes(right)

    with Journal(path) as journal:
        found = read(tasks(folder), journal)

    assert (found["e"].complaint, found["e"].bytes_read) == (None, 5000)


def touch(file: Path) -> None:
    os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns + 1))


def put_a_copy_in_its_place(file: Path) -> None:
    shutil.copy2(file, file.with_name("copy"))
    file.with_name("copy").rename(file)


def shorten(file: Path) -> None:
    before = file.stat()
    file.write_bytes(b"e" * 4999)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("change", [touch, put_a_copy_in_its_place, shorten], ids=["time", "inode", "size"])
def test_a_file_that_was_touched_since_is_read_again(
    folder: Path, path: Path, change: Callable[[Path], object]
) -> None:
    with Journal(path) as journal:
        read(tasks(folder), journal)
    change(folder / "e")

    with Journal(path) as journal:
        found = read(tasks(folder), journal)

    assert [name for name, result in found.items() if result.bytes_read] == ["e"]


def test_a_claim_of_another_hash_is_not_settled_by_what_is_known(folder: Path, path: Path) -> None:
    with Journal(path) as journal:
        read(tasks(folder, "e"), journal)
        other = HashTask("owner", "e", (folder / "e",), 5000, "sha256", "0" * 64, "sealed with")

        assert read([other], journal)["e"].complaint is not None


def test_killed_at_any_step_the_next_process_reads_only_what_is_missing(folder: Path, path: Path) -> None:
    # One thread reads the largest first: b, d, e, a, c.
    known = []
    at = 1

    def verify() -> None:
        with Journal(path) as journal:
            read(tasks(folder), journal)

    while killed_at(at, verify):
        with Journal(path) as journal:
            found = read(tasks(folder), journal)
        before = {name for name, result in found.items() if result.found_at}
        assert all(result.complaint is None for result in found.values())
        assert all(result.bytes_read == (0 if name in before else SIZES[name]) for name, result in found.items())
        known.append(before)
        path.unlink()
        at += 1

    # The first steps make the file and its first line, the last makes the notes durable.
    assert known == [set(), set(), set(), set(), {"b"}, {"b", "d"}, {"b", "d", "e"}, {*"abde"}, {*"abcde"}]


def test_calling_it_off_stops_the_threads_in_the_middle_of_a_file(folder: Path, path: Path) -> None:
    with Journal(path) as journal:
        progress = Progress("verify", sum(SIZES.values()), "bytes", every_s=1000)
        results = rehash(tasks(folder, "abd"), journal, 1, progress)
        first = next(results)
        results.close()  # type: ignore[attr-defined]

    assert first.task.name == "b"
    with Journal(path) as journal:
        found = read(tasks(folder, "abd"), journal)
    assert found["b"].bytes_read == 0


def test_progress_counts_what_is_read_and_what_was_known(folder: Path, path: Path) -> None:
    with Journal(path) as journal:
        read(tasks(folder, "b"), journal)
    (folder / "d").unlink()
    total = sum(SIZES.values())
    progress = Progress("verify", total, "bytes", every_s=1000)

    with Journal(path) as journal:
        list(rehash(tasks(folder), journal, 2, progress))

    assert progress.line().startswith(f"verify: {total / 1e6:.1f} of {total / 1e6:.1f} MB, ")
    assert "left" not in progress.line()


def test_a_full_disk_under_the_notes_stops_no_reading(
    folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(step: durable.Step, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal(path) as journal:
        monkeypatch.setattr(durable, "failpoint", full)
        found = read(tasks(folder), journal)
        monkeypatch.undo()

    assert all(result.complaint is None for result in found.values())
    assert caplog.messages == [f"{path}: progress is no longer kept (No space left on device)"]

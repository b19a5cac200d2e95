"""Files held against their hashes by threads: each found right or wrong, none twice, whatever stopped the last process.

Between two processes nothing counts but the journal, so a file that was changed behind the back of size, time and inode
shows whether it was read again.
"""

import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from crash_points import killed_at

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.journal import Journal
from pipeline_assets.corpus.spine.pausable_sha256 import load_openssl
from pipeline_assets.corpus.spine.progress import Progress
from pipeline_assets.corpus.spine.rehash import Claim, Reading, rehash

MIB = 1 << 20
SIZES = {"a": 10, "b": 3 * MIB + 7, "c": 0, "d": MIB, "e": 5000}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files a to e, of which b is read in four blocks."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name, size in SIZES.items():
        (folder / name).write_bytes(content(name, size))
    return folder


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def content(name: str, size: int) -> bytes:
    return (name.encode() * size)[:size]


def claims(folder: Path, names: Sequence[str] = tuple(SIZES)) -> list[Claim]:
    return [
        Claim("owner", name, (folder / name,), SIZES[name], "sha256", sha256(content(name, SIZES[name])), "sealed with")
        for name in names
    ]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(wanted: Sequence[Claim], journal: Journal, threads: int = 1, pause_bytes: int = MIB) -> dict[str, Reading]:
    progress = Progress("verify", sum(claim.bytes for claim in wanted), "bytes", every_s=1000)
    return {reading.claim.name: reading for reading in rehash(wanted, journal, threads, progress, pause_bytes)}


def change_unseen(path: Path) -> None:
    """One bit, with size, time and inode as they were."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.write(bytes([path.read_bytes()[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("threads", [0, 1, 2, 7])
def test_every_file_is_read_once_and_as_claimed(folder: Path, threads: int) -> None:
    found = read(claims(folder), Journal(None), threads)

    assert {name: reading.bytes_read for name, reading in found.items()} == SIZES
    assert all(
        reading.complaint is None and reading.actual == reading.claim.expected and reading.bytes_before == 0
        for reading in found.values()
    )


def test_nothing_to_read_gives_nothing() -> None:
    assert read([], Journal(None)) == {}


def test_a_changed_bit_is_shown_with_both_hashes_and_hides_no_other(folder: Path) -> None:
    change_unseen(folder / "b")
    change_unseen(folder / "e")

    found = read(claims(folder), Journal(None))

    actual = sha256((folder / "e").read_bytes())
    assert found["e"].complaint == f"sha256 is {actual}, sealed with {sha256(content('e', 5000))}"
    assert sorted(name for name, reading in found.items() if reading.complaint) == ["b", "e"]


def test_a_file_that_cannot_be_read_is_complained_of_and_hides_no_other(folder: Path) -> None:
    (folder / "a").unlink()
    (folder / "d").unlink()
    (folder / "d").mkdir()

    found = read(claims(folder), Journal(None))

    assert found["a"].complaint == "it can't be read (No such file or directory)"
    assert (found["d"].complaint, found["d"].actual) == ("it can't be read (Is a directory)", None)
    assert found["b"].complaint is None


def test_pieces_are_held_against_the_hash_of_the_whole(folder: Path) -> None:
    paths = tuple(folder / name for name in "cab")
    whole = b"".join(path.read_bytes() for path in paths)
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(whole) + whole).hexdigest()

    found = read(
        [
            Claim("x", "sha256", paths, len(whole), "sha256", sha256(whole), "listed as"),
            Claim("x", "git", paths, len(whole), "git-sha1", git_sha1, "listed as"),
            Claim("x", "wrong", paths, len(whole), "git-sha1", "0" * 40, "listed as"),
        ],
        Journal(None),
    )

    assert (found["sha256"].complaint, found["git"].complaint) == (None, None)
    assert found["wrong"].complaint == f"git-sha1 is {git_sha1}, listed as {'0' * 40}"


def test_what_a_former_process_found_right_is_not_read_again(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        read(claims(folder, "ab"), journal)
    change_unseen(folder / "a")

    with Journal(notes) as journal:
        found = read(claims(folder), journal)

    assert {name: reading.bytes_read for name, reading in found.items()} == SIZES | {"a": 0, "b": 0}
    assert {name: reading.bytes_before for name, reading in found.items() if reading.found_at} == {
        "a": SIZES["a"],
        "b": SIZES["b"],
    }
    assert all(reading.complaint is None for reading in found.values())


def test_what_it_found_wrong_is_read_again(folder: Path, notes: Path) -> None:
    right = (folder / "e").read_bytes()
    change_unseen(folder / "e")
    with Journal(notes) as journal:
        assert read(claims(folder), journal)["e"].complaint is not None
    (folder / "e").write_bytes(right)

    with Journal(notes) as journal:
        found = read(claims(folder), journal)

    assert (found["e"].complaint, found["e"].bytes_read) == (None, 5000)


@pytest.mark.parametrize("change", ["time", "inode", "size"])
def test_a_file_that_was_touched_since_is_read_again(folder: Path, notes: Path, change: str) -> None:
    with Journal(notes) as journal:
        read(claims(folder), journal)
    file = folder / "e"
    before = file.stat()
    if change == "time":
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    elif change == "inode":
        (folder / "copy").write_bytes(file.read_bytes())
        (folder / "copy").rename(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        file.write_bytes(b"e" * 4999)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))

    with Journal(notes) as journal:
        found = read(claims(folder), journal)

    assert [name for name, reading in found.items() if reading.bytes_read] == ["e"]


def test_a_claim_of_another_hash_is_not_settled_by_what_is_known(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        read(claims(folder, "e"), journal)
        other = Claim("owner", "e", (folder / "e",), 5000, "sha256", "0" * 64, "sealed with")

        assert read([other], journal)["e"].complaint is not None


def test_killed_at_any_step_the_next_process_reads_only_what_is_missing(folder: Path, notes: Path) -> None:
    # One thread reads the largest first: b in four blocks, three of them followed by a note, then d, e, a, c.
    known = []
    at = 1

    def verify() -> None:
        with Journal(notes) as journal:
            read(claims(folder), journal)

    while killed_at(at, verify):
        with Journal(notes) as journal:
            found = read(claims(folder), journal)
        before = {name: reading.bytes_before for name, reading in found.items() if reading.bytes_before}
        assert all(reading.complaint is None for reading in found.values())
        assert all(reading.bytes_before + reading.bytes_read == SIZES[name] for name, reading in found.items())
        known.append(before)
        notes.unlink()
        at += 1

    pauses = [{"b": n * MIB} for n in (1, 2, 3)] if load_openssl() else [{}, {}, {}]
    done = [{"b": SIZES["b"]}]
    for name in "dea":
        done.append(done[-1] | {name: SIZES[name]})
    # The first steps make the file and its first line, the last makes the notes durable, after the empty c.
    assert known == [{}, {}, {}, {}, *pauses, *done, done[-1]]


def test_a_large_file_is_taken_up_in_its_middle_and_a_bit_behind_it_is_found(folder: Path, notes: Path) -> None:
    if load_openssl() is None:
        pytest.skip("this Python's hashlib has no OpenSSL whose functions can be called")
    assert killed_at(6, lambda: read(claims(folder, "b"), Journal(notes)))
    stat = (folder / "b").stat()
    with open(folder / "b", "r+b") as file:
        file.seek(3 * MIB)
        file.write(b"B")
    os.utime(folder / "b", ns=(stat.st_atime_ns, stat.st_mtime_ns))

    with Journal(notes) as journal:
        found = read(claims(folder, "b"), journal)["b"]

    assert found.complaint is not None
    # What didn't come out right is read once more from its beginning, in case the note was wrong.
    assert (found.bytes_read, found.bytes_before) == (MIB + 7 + SIZES["b"], 0)


def test_a_wrong_note_of_the_middle_does_not_make_a_right_file_wrong(folder: Path, notes: Path) -> None:
    assert killed_at(6, lambda: read(claims(folder, "b"), Journal(notes)))
    notes.write_text(notes.read_text().replace(f'"read": {2 * MIB}', f'"read": {2 * MIB + 1}'))

    with Journal(notes) as journal:
        assert read(claims(folder, "b"), journal)["b"].complaint is None


def test_calling_it_off_stops_the_threads_in_the_middle_of_a_file(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        progress = Progress("verify", sum(SIZES.values()), "bytes", every_s=1000)
        readings = rehash(claims(folder, "abd"), journal, 1, progress, MIB)
        first = next(readings)
        readings.close()  # type: ignore[attr-defined]

    assert first.claim.name == "b"
    with Journal(notes) as journal:
        found = read(claims(folder, "abd"), journal)
    assert sum(reading.bytes_before + reading.bytes_read for reading in found.values()) == 10 + SIZES["b"] + MIB


def test_progress_counts_what_is_read_and_what_was_known(folder: Path, notes: Path) -> None:
    with Journal(notes) as journal:
        read(claims(folder, "b"), journal)
    (folder / "d").unlink()
    total = sum(SIZES.values())
    progress = Progress("verify", total, "bytes", every_s=1000)

    with Journal(notes) as journal:
        list(rehash(claims(folder), journal, 2, progress))

    assert progress.line().startswith(f"verify: {total / 1e6:.1f} of {total / 1e6:.1f} MB, ")
    assert "left" not in progress.line()


def test_a_full_disk_under_the_notes_stops_no_reading(
    folder: Path, notes: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(step: durable.Step, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Journal(notes) as journal:
        monkeypatch.setattr(durable, "failpoint", full)
        found = read(claims(folder), journal)
        monkeypatch.undo()

    assert all(reading.complaint is None for reading in found.values())
    assert caplog.messages == [f"{notes}: progress is no longer kept (No space left on device)"]

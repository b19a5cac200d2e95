"""A journal: what was found outlives the process that found it, however that ends."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_points import killed_at

from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.rehash import Journal, state_of


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


def test_what_was_noted_is_known_to_the_next_process(path: Path) -> None:
    write_numbers(path, 1, 2)
    write_numbers(path, 5)

    with Journal(path) as journal:
        assert numbers(journal) == [1, 2, 5]
        assert journal.fact(["n", 1])["at"] > 1_700_000_000
        assert journal.fact(["n", 7]) is None


def test_the_latest_fact_counts(path: Path) -> None:
    with Journal(path) as journal:
        journal.note(["part"], {"read": 1})
        journal.note(["part"], {"read": 2})

    assert Journal(path).fact(["part"])["read"] == 2


def test_a_fresh_one_knows_nothing(path: Path) -> None:
    write_numbers(path, 1)

    with Journal(path, fresh=True) as journal:
        assert numbers(journal) == []
    with Journal(path) as journal:
        assert numbers(journal) == []


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

"""Packed sets that are replaced while they are opened: old set, new set, or error."""

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from interrupted import interrupted
from packed_sets import read_letter, seal_set

from pipeline_assets.corpus.formats import memmap
from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.spine import durable, folder_exchange, replacement
from pipeline_assets.spine.errors import InputError

TESTS = Path(__file__).parents[2]
PROJECT = TESTS.parent
READERS = (memmap, replacement)
pytestmark = pytest.mark.usefixtures("without_fsync")
UNPICKLED_IN_A_WORKER = """
import multiprocessing, sys
from pathlib import Path
from interrupted import interrupted
from packed_sets import SET, read_letter, seal_set
from pipeline_assets.corpus.formats.memmap import open_packed

if __name__ == "__main__":
    root = Path(sys.argv[1])
    packed = open_packed(seal_set(root, "a"))
    workers = [multiprocessing.get_context("spawn").Process(target=read_letter, args=(packed,)) for _ in range(2)]
    workers[0].start()
    workers[0].join()
    seal_set(root, "b")
    workers[1].start()
    workers[1].join()
    print(workers[0].exitcode, workers[1].exitcode, read_letter(packed))
"""


def open_letter(folder: Path) -> str:
    """Return the letter of the set in a folder, or the line of the error."""
    try:
        return read_letter(open_packed(folder))
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.proof)])
def test_a_set_that_is_replaced_before_any_line_of_its_opening_is_never_mixed(share: int, tmp_path: Path) -> None:
    folder = seal_set(tmp_path, "a")
    answer, lines = interrupted(lambda: open_letter(folder), READERS, {})
    answers = [answer]

    for line in random.Random(5).sample(range(1, lines + 1), lines // share):
        seal_set(tmp_path, "a")
        answers.append(interrupted(lambda: open_letter(folder), READERS, {line: lambda: seal_set(tmp_path, "b")})[0])

    replaced = f"{folder}: the folder was replaced while it was read; open the set again"
    assert set(answers) == {"a", "b", replaced}
    assert answers.count(replaced) > lines // (4 * share)


@pytest.mark.parametrize("share", [200, pytest.param(1, marks=pytest.mark.proof)])
def test_sets_that_are_swapped_and_swapped_back_are_never_mixed(share: int, tmp_path: Path) -> None:
    folder, other = seal_set(tmp_path, "a"), seal_set(tmp_path / "other", "b")
    answer, lines = interrupted(lambda: open_letter(folder), READERS, {})
    answers = {answer}

    def swap() -> None:
        aside = folder.with_name("aside")
        for source, target in ((folder, aside), (other, folder), (aside, other)):
            source.rename(target)

    pairs = list(itertools.combinations(range(1, lines + 1), 2))
    for pair in random.Random(5).sample(pairs, len(pairs) // share):
        answers.add(interrupted(lambda: open_letter(folder), READERS, dict.fromkeys(pair, swap))[0])

    assert answers <= {"a", "b", f"{folder}: the folder was replaced while it was read; open the set again"}


def test_folder_is_old_missing_or_new_during_a_replacement_without_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_exchange, "exchange", lambda first, second: False)  # as on systems without such a call
    folder = seal_set(tmp_path, "a")
    answers = set()

    def open_before(step: durable.Operation, path: Path) -> None:
        if step in ("rename", "unlink"):
            answers.add(open_letter(folder))

    monkeypatch.setattr(durable, "failpoint", open_before)
    seal_set(tmp_path, "b")
    monkeypatch.setattr(durable, "failpoint", None)
    answers.add(open_letter(folder))

    fix = "choose the folder of a packed set (stage_a/packed), such as data/stage_a/NAME/packed/NAME"
    assert answers == {"a", f"{folder}: folder not found; {fix}", "b"}


def test_worker_that_opens_a_replaced_set_fails(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNPICKLED_IN_A_WORKER)
    paths = os.pathsep.join(map(str, (PROJECT, TESTS / "builders", TESTS / "harness")))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, tmp_path / "train.py", tmp_path]

    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    assert result.stdout == "0 1 a\n", result.stderr
    folder = tmp_path / "stage_a" / "packed" / "letters"
    assert result.stderr.splitlines()[-1].endswith(
        f"{folder}: the folder was replaced since the set was opened; open the set again"
    )

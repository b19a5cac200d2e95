"""A build that is killed before any of its steps on the disk, and what a reader sees: old or new, never a mix.

Whether every kill, and every kill of a recovery, is survived is held by tests/crashes/test_crash_matrix.py. Here: what
is kept, in which order things appear, and that one may also change one's mind.
"""

import itertools
from functools import partial
from pathlib import Path

import pytest
from crash_points import killed_at
from word_artifact import build_words, words_in
from word_building import is_whole

from pipeline_assets.corpus.spine import durable
from pipeline_assets.corpus.spine.artifact import open_artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.sealing import building_folders

IN_ENGLISH = ["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"]
IN_FRENCH = ["UN", "DEUX", "TROIS", "QUATRE", "CINQ", "SIX"]


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of builds that don't each ask git for the commit."""
    monkeypatch.setenv("PATH", "")


def finished_shards(target: Path) -> dict[str, tuple[int, int]]:
    """Files with a receipt in the building folder, or sealed, with their inodes and times."""
    folders = [*building_folders(target), target]
    receipts = {path.stem for folder in folders for path in folder.glob(".receipts/write/*.json")}
    is_sealed = any((folder / "manifest.json").exists() for folder in folders)
    parts = [path for folder in folders for path in folder.glob("parts/*.txt")]
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in parts if is_sealed or path.stem in receipts
    }


@pytest.mark.slow
def test_what_was_finished_when_a_build_was_killed_is_not_done_again(tmp_path: Path) -> None:
    for step in itertools.count(1):
        root = tmp_path / f"{step}"
        if killed_at(step, partial(build_words, root, "english")) is None:
            break
        finished = finished_shards(root / "words")

        build_words(root, "english")

        assert finished_shards(root / "words").items() >= finished.items()

    assert step > 80
    assert len(finished) == 3


@pytest.mark.slow
def test_after_a_killed_replacement_the_old_one_can_be_asked_for_again(tmp_path: Path, system: str) -> None:
    for step in itertools.count(1):
        root = tmp_path / f"{step}"
        build_words(root, "english")
        if killed_at(step, partial(build_words, root, "french")) is None:
            break

        build_words(root, "english")

        assert words_in(root / "words") == IN_ENGLISH
        assert is_whole(root / "words")
        assert [path for path in building_folders(root / "words") if (path / "manifest.json").exists()] == []


def test_at_every_step_of_a_replacement_a_reader_sees_the_old_whole_or_the_new_whole(tmp_path: Path) -> None:
    build_words(tmp_path, "english")
    seen = []

    def read(kind: str, path: Path) -> None:
        assert is_whole(tmp_path / "words")
        seen.append(words_in(tmp_path / "words"))

    durable.failpoint = read
    try:
        build_words(tmp_path, "french")
    finally:
        durable.failpoint = None

    assert seen == sorted(seen, key=[IN_ENGLISH, IN_FRENCH].index)
    assert {seen[0][0], seen[-1][0]} == {"ONE", "UN"}


def test_where_folders_cannot_be_exchanged_a_reader_may_also_see_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "exchange", lambda first, second: False)
    build_words(tmp_path, "english")
    seen = []

    def read(kind: str, path: Path) -> None:
        try:
            folder = open_artifact(tmp_path / "words").folder
        except InputError as error:
            seen.append(error.what)
        else:
            assert is_whole(folder)
            seen.append(words_in(folder)[0])

    durable.failpoint = read
    try:
        build_words(tmp_path, "french")
    finally:
        durable.failpoint = None

    order = ["ONE", "nothing is sealed here (no manifest.json)", "UN"]
    assert seen == sorted(seen, key=order.index)
    assert set(seen) == set(order)

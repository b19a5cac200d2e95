"""A build that is killed before any of its steps on the disk, and what it leaves, whose names no artifact can have.

Whether every kill, and every kill of a recovery, is survived is held by tests/crashes/test_crash_matrix.py. Here: what
is kept, in which order things appear, what a reader sees, and that one may also change one's mind.
"""

import itertools
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from crash_points import killed_at
from word_artifact import build_words, refuse_five, target_of, words_in
from word_building import PLAN, build, is_whole, names_beside

from pipeline_assets.build.inventory import artifact_statuses, find_orphans
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.staging import staging_folders

IN_ENGLISH = ["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"]
IN_FRENCH = ["UN", "DEUX", "TROIS", "QUATRE", "CINQ", "SIX"]
LOOKALIKES = ("words.building.2", "words.building.²", "words.old.3")


@pytest.fixture(autouse=True)
def _without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of builds that don't each ask git for the commit."""
    monkeypatch.setenv("PATH", "")


def finished_shards(target: Path) -> dict[str, tuple[int, int]]:
    """Files with a receipt in the building folder, or sealed, with their inodes and times."""
    folders = [*staging_folders(target), target]
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
        assert [path for path in staging_folders(root / "words") if (path / "manifest.json").exists()] == []


def test_at_every_step_of_a_replacement_a_reader_sees_the_old_whole_or_the_new_whole(
    tmp_path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or, where folders can't be exchanged, a clear error between the two."""
    build_words(tmp_path, "english")
    between = ["nothing is sealed here (no manifest.json)"] if system == "no exchange" else []
    seen: list[list[str] | str] = []

    def read(kind: str, path: Path) -> None:
        try:
            folder = open_artifact(tmp_path / "words").folder
        except InputError as error:
            seen.append(error.what)
        else:
            assert is_whole(folder)
            seen.append(words_in(folder))

    monkeypatch.setattr(durable, "failpoint", read)
    build_words(tmp_path, "french")

    order = [IN_ENGLISH, *between, IN_FRENCH]
    assert seen == sorted(seen, key=order.index)
    assert all(one in seen for one in order)


def build_lookalikes(root: Path) -> None:
    """Artifacts whose names are those of an artifact `words` and what leftovers might be called."""
    for name in LOOKALIKES:
        shutil.copytree(build_words(root / "elsewhere", "english").folder, root / name)


def sources_in(folder: Path) -> None:
    """Files that nothing sealed, in folders of such names."""
    for name in LOOKALIKES:
        (folder / name).mkdir(parents=True)
        (folder / name / "notes.txt").write_text(name)


def test_artifacts_and_sources_named_like_leftovers_outlive_kills_of_replacements(tmp_path: Path, system: str) -> None:
    build_lookalikes(tmp_path / "built")
    build_words(tmp_path / "built", "english")

    for step in itertools.count(1, 5):
        root = Path(shutil.copytree(tmp_path / "built", tmp_path / f"{step}"))
        if killed_at(step, partial(build_words, root, "french")) is None:
            break
        build_words(root, "french")

        assert words_in(root / "words") == IN_FRENCH
        assert all(is_whole(root / name) for name in LOOKALIKES)
        assert names_beside(root / "words") == [".words.lock", "elsewhere", "words", *LOOKALIKES]

    assert step > 80


def test_sources_named_like_a_leftover_are_never_touched(target: Path, system: str) -> None:
    sources_in(target.parent)

    build(target)
    build(target, {"second": "plan"})

    assert [(target.parent / name / "notes.txt").read_text() for name in LOOKALIKES] == list(LOOKALIKES)
    assert names_beside(target) == [".words.lock", "words", *LOOKALIKES]


def test_an_artifact_named_like_a_leftover_is_an_artifact_to_those_that_look(tmp_path: Path) -> None:
    area = tmp_path / "corpora"
    build_lookalikes(area)
    build_words(area, "english")
    shutil.rmtree(area / "elsewhere")
    asked = replace(target_of("english"), folder=Path("corpora", "words"))

    [held] = artifact_statuses(tmp_path, [asked])

    assert (held.condition, held.partial_build) == ("current", None)
    assert [other.folder.name for other in find_orphans(Lineage(tmp_path), [asked])] == list(LOOKALIKES)
    assert [folder.name for folder in Lineage(tmp_path).manifests] == ["words", *LOOKALIKES]


def test_what_lies_under_a_leftovers_name_and_is_no_folder_of_ours_is_left_alone(target: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".plan.json").write_text("{}")
    target.with_name(".words.building.1").symlink_to(elsewhere)
    target.with_name(".words.building.2").write_text("a file")

    with open_staging_dir(target, PLAN) as building:
        assert building.folder.name == ".words.building.3"

    build(target)
    assert is_whole(target)
    assert [path.name for path in elsewhere.iterdir()] == [".plan.json"]


def test_an_interrupted_build_of_an_artifact_named_like_a_leftover_is_told_as_its_own(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        build_words(tmp_path / "corpora", "english", refuse_five)
    left = tmp_path / "corpora" / ".words.building.1"
    left.rename(left.with_name(".words.old.3.building.1"))

    own, other = (replace(target_of("english"), folder=Path("corpora", name)) for name in ("words.old.3", "words"))
    [held, free] = artifact_statuses(tmp_path, [own, other])

    assert (held.condition, free.condition) == ("interrupted", "missing")

"""Leftovers of builds that are killed before any of their steps on the disk.

tests/crashes/test_crash_matrix.py covers recovery after every kill. These tests cover the finished shards that are
kept, the states that a reader sees, the return to the replaced version, and the names of leftovers.
"""

import itertools
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from crash_points import kill_at
from word_artifact import build_words, refuse_five, target_in, words_in
from word_building import PLAN, build, is_whole, list_siblings

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
    """Hide git, which hundreds of builds would otherwise run for the commit."""
    monkeypatch.setenv("PATH", "")


def finished_shards(target: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of each part that is sealed or has a receipt."""
    folders = [*staging_folders(target), target]
    receipts = {path.stem for folder in folders for path in folder.glob(".receipts/write/*.json")}
    is_sealed = any((folder / "manifest.json").exists() for folder in folders)
    parts = [path for folder in folders for path in folder.glob("parts/*.txt")]
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in parts if is_sealed or path.stem in receipts
    }


@pytest.mark.slow
def test_finished_shards_of_a_killed_build_are_not_rebuilt(tmp_path: Path) -> None:
    for step in itertools.count(1):
        root = tmp_path / f"{step}"
        if kill_at(step, partial(build_words, root, "english")) is None:
            break
        finished = finished_shards(root / "words")

        build_words(root, "english")

        assert finished_shards(root / "words").items() >= finished.items()

    assert step > 80
    assert len(finished) == 3


@pytest.mark.slow
def test_old_version_can_be_built_again_after_a_killed_replacement(tmp_path: Path, system: str) -> None:
    for step in itertools.count(1):
        root = tmp_path / f"{step}"
        build_words(root, "english")
        if kill_at(step, partial(build_words, root, "french")) is None:
            break

        build_words(root, "english")

        assert words_in(root / "words") == IN_ENGLISH
        assert is_whole(root / "words")
        assert [path for path in staging_folders(root / "words") if (path / "manifest.json").exists()] == []

    assert step > 20


def test_reader_sees_the_old_or_the_new_version_at_every_step(
    tmp_path: Path, system: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an exchange of folders, the reader gets an error between the two."""
    build_words(tmp_path, "english")
    between = ["nothing is sealed here (no manifest.json)"] if system == "no exchange" else []
    states: list[list[str] | str] = []

    def read(kind: str, path: Path) -> None:
        try:
            folder = open_artifact(tmp_path / "words").folder
        except InputError as error:
            states.append(error.what)
        else:
            assert is_whole(folder)
            states.append(words_in(folder))

    monkeypatch.setattr(durable, "failpoint", read)
    build_words(tmp_path, "french")

    order = [IN_ENGLISH, *between, IN_FRENCH]
    assert states == sorted(states, key=order.index)
    assert all(version in states for version in order)


def build_lookalikes(root: Path) -> None:
    """Build artifacts whose names resemble those of leftovers of an artifact `words`."""
    for name in LOOKALIKES:
        shutil.copytree(build_words(root / "elsewhere", "english").folder, root / name)


def write_lookalike_sources(folder: Path) -> None:
    """Write unsealed files into folders whose names resemble leftovers."""
    for name in LOOKALIKES:
        (folder / name).mkdir(parents=True)
        (folder / name / "notes.txt").write_text(name)


def test_artifacts_named_like_leftovers_survive_killed_replacements(tmp_path: Path, system: str) -> None:
    build_lookalikes(tmp_path / "built")
    build_words(tmp_path / "built", "english")

    for step in itertools.count(1, 5):
        root = Path(shutil.copytree(tmp_path / "built", tmp_path / f"{step}"))
        if kill_at(step, partial(build_words, root, "french")) is None:
            break
        build_words(root, "french")

        assert words_in(root / "words") == IN_FRENCH
        assert all(is_whole(root / name) for name in LOOKALIKES)
        assert list_siblings(root / "words") == [".words.lock", "elsewhere", "words", *LOOKALIKES]

    assert step > 80


def test_sources_named_like_a_leftover_are_never_touched(target: Path, system: str) -> None:
    write_lookalike_sources(target.parent)

    build(target)
    build(target, {"second": "plan"})

    assert [(target.parent / name / "notes.txt").read_text() for name in LOOKALIKES] == list(LOOKALIKES)
    assert list_siblings(target) == [".words.lock", "words", *LOOKALIKES]


def test_artifact_named_like_a_leftover_is_listed_as_an_artifact(tmp_path: Path) -> None:
    area = tmp_path / "corpora"
    build_lookalikes(area)
    build_words(area, "english")
    shutil.rmtree(area / "elsewhere")
    target = replace(target_in("english"), folder=Path("corpora", "words"))

    [status] = artifact_statuses(tmp_path, [target])

    assert (status.display_state, status.partial_build) == ("current", None)
    assert [other.folder.name for other in find_orphans(Lineage(tmp_path), [target])] == list(LOOKALIKES)
    assert [folder.name for folder in Lineage(tmp_path).manifests] == ["words", *LOOKALIKES]


def test_link_or_file_named_like_a_leftover_is_kept(target: Path, tmp_path: Path) -> None:
    linked_folder = tmp_path / "elsewhere"
    linked_folder.mkdir()
    (linked_folder / ".plan.json").write_text("{}")
    target.with_name(".words.building.1").symlink_to(linked_folder)
    target.with_name(".words.building.2").write_text("a file")

    with open_staging_dir(target, PLAN) as building:
        assert building.folder.name == ".words.building.3"

    build(target)
    assert is_whole(target)
    assert [path.name for path in linked_folder.iterdir()] == [".plan.json"]


def test_interrupted_build_is_listed_for_its_own_artifact(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        build_words(tmp_path / "corpora", "english", refuse_five)
    leftover = tmp_path / "corpora" / ".words.building.1"
    leftover.rename(leftover.with_name(".words.old.3.building.1"))

    own, other = (replace(target_in("english"), folder=Path("corpora", name)) for name in ("words.old.3", "words"))
    [status, unbuilt] = artifact_statuses(tmp_path, [own, other])

    assert (status.display_state, unbuilt.display_state) == ("interrupted", "missing")

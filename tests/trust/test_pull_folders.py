"""Folders for `pull`: existing files are replaced only on demand, never damaged."""

import shutil
from pathlib import Path

import pytest
from forgery import flip, overwrite
from healing_set import HealingSet, verify
from pushed_set import HOUR_S, fetch, other_set, ref_name, send

from pipeline_assets.build.garbage import Survey
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.pull import find_ref, pull_all

pytest.importorskip("obstore", reason="obstore is not installed")


def test_an_artifact_that_differs_is_replaced_only_on_demand(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path, tmp_path: Path
) -> None:
    """Digest, file size or content may differ; only `replace` reads content."""
    other, name = other_set(built, tmp_path), ref_name(split, built.root)
    send(other.root / name, other, store, upstream=False)
    fetch(store, name, pull_root, upstream=False)
    sealed = open_artifact(pull_root / name).manifest.digest
    digest = send(split, built, store).ref.artifacts[0].digest

    with pytest.raises(UsageError, match=f"the folder has another artifact, {sealed}; use --replace to pull {digest}"):
        fetch(store, name, pull_root, upstream=False)
    fetch(store, name, pull_root, upstream=False, replace=True)
    assert open_artifact(pull_root / name).manifest.digest == digest

    path = pull_root / name / open_artifact(split).manifest.storage[0].path
    overwrite(path, b"short")
    with pytest.raises(UsageError, match="the artifact is damaged; use --replace"):
        fetch(store, name, pull_root, upstream=False)
    fetch(store, name, pull_root, upstream=False, replace=True)
    assert verify(pull_root / name).verdict == "intact"

    flip(path)
    assert fetch(store, name, pull_root, upstream=False) == (1, 0)
    assert fetch(store, name, pull_root, upstream=False, replace=True)[1] > 0
    assert verify(pull_root / name).verdict == "intact"


def test_a_refused_pull_changes_no_file(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path, tmp_path: Path
) -> None:
    """Members of the requested artifact would be pulled first, into another artifact."""
    snapshot, dataset = built.folder("snapshot"), built.folder("dataset")
    send(snapshot, built, store)
    send(dataset, built, store)
    snapshot_ref, ref = (find_ref(store, ref_name(folder, built.root), None) for folder in (snapshot, dataset))
    pull_all(store, snapshot_ref, pull_root, None, False, HOUR_S)
    before = sorted(pull_root.parent.rglob("*"))

    for replace in (False, True):
        with pytest.raises(UsageError, match=r"the folder has files that are not part of the artifact, .*folder$"):
            pull_all(store, ref, pull_root, pull_root.parent / "root", replace, HOUR_S)

        assert sorted(pull_root.parent.rglob("*")) == before
        assert verify(pull_root).verdict.startswith("intact")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (".words.building.3", "the name of an artifact must not begin with a dot; choose another folder"),
        ("link", "expected a folder, got a broken link; choose another folder, or remove the link"),
    ],
)
def test_a_folder_that_would_be_taken_for_leftovers_or_cannot_be_replaced_is_refused_before_a_pull(
    built: HealingSet, split: Path, store: ObjectStore, tmp_path: Path, name: str, what: str
) -> None:
    """`gc` would remove the first one as the leftover of a build."""
    send(split, built, store, upstream=False)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    before = sorted(tmp_path.iterdir())

    with pytest.raises(UsageError, match=what):
        pull_all(store, find_ref(store, ref_name(split, built.root), None), tmp_path / name, None, True, HOUR_S)

    assert sorted(tmp_path.iterdir()) == before


def test_an_artifact_is_not_pulled_into_another_one_nor_around_it(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path
) -> None:
    send(built.folder("dataset"), built, store)
    name = ref_name(built.folder("dataset"), built.root)
    ref = find_ref(store, name, None)
    pull_all(store, ref, pull_root / "a" / "b", None, False, HOUR_S)
    before = sorted(pull_root.rglob("*"))

    for folder in (pull_root / "a" / "b" / "new", pull_root / "a" / "b" / "train" / "new"):
        with pytest.raises(UsageError, match=f"{folder}.*: the folder is inside the artifact {folder.parent}; choose"):
            pull_all(store, ref, folder, None, False, HOUR_S)
    for replace in (False, True):
        with pytest.raises(
            UsageError, match="files that are not part of the artifact, such as b; choose another folder"
        ):
            pull_all(store, ref, pull_root / "a", None, replace, HOUR_S)
    with pytest.raises(UsageError, match="would be in this folder; choose another folder"):
        pull_all(store, ref, pull_root / ref.artifacts[-1].folder, pull_root, False, HOUR_S)

    assert sorted(pull_root.rglob("*")) == before
    assert verify(pull_root / "a" / "b").verdict == "intact"


def test_a_member_is_pulled_into_its_own_artifact_only(built: HealingSet, store: ObjectStore, pull_root: Path) -> None:
    train, dataset = built.folder("train"), built.folder("dataset")
    send(dataset, built, store, upstream=False)
    send(train, built, store, upstream=False)
    fetch(store, ref_name(dataset, built.root), pull_root, upstream=False)
    shutil.rmtree(pull_root / ref_name(train, built.root))

    fetch(store, ref_name(train, built.root), pull_root, upstream=False)
    assert verify(pull_root / ref_name(dataset, built.root)).verdict == "intact"

    ref = find_ref(store, ref_name(train, built.root), None)
    with pytest.raises(UsageError, match="the folder is inside the artifact"):
        pull_all(store, ref, pull_root / ref_name(built.folder("valid"), built.root), None, True, HOUR_S)
    assert verify(pull_root / ref_name(dataset, built.root)).verdict == "intact"


def test_gc_keeps_artifacts_pulled_with_upstream(built: HealingSet, store: ObjectStore, pull_root: Path) -> None:
    send(built.folder("dataset"), built, store)
    fetch(store, ref_name(built.folder("dataset"), built.root), pull_root)

    survey = Survey(pull_root, SYSTEMS)

    assert survey.garbage == []
    assert {path.relative_to(pull_root) for path in survey.user_folders} == {
        target.folder for target in built.recipe.targets()
    }

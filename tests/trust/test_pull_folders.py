"""Folders into which `pull` writes: what is there is replaced on demand only, and never damaged."""

import shutil
from pathlib import Path

import pytest
from healing_set import HealingSet, verify
from pushed_set import HOUR_S, fetch, name_of, other_set, send

from pipeline_assets.build.garbage import Survey
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.pull import find_ref, pull_all

pytest.importorskip("obstore", reason="obstore is not installed")


def test_another_artifact_is_replaced_only_on_demand(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path, tmp_path: Path
) -> None:
    other, name = other_set(made, tmp_path), name_of(split, made.root)
    send(other.root / name, other, store, upstream=False)
    fetch(store, name, elsewhere, upstream=False)
    sealed = open_artifact(elsewhere / name).manifest.digest
    digest = send(split, made, store).ref.artifacts[0].digest

    with pytest.raises(UsageError, match=f"the folder has another artifact, {sealed}; use --replace to pull {digest}"):
        fetch(store, name, elsewhere, upstream=False)
    fetch(store, name, elsewhere, upstream=False, replace=True)

    assert open_artifact(elsewhere / name).manifest.digest == digest


def test_a_damaged_artifact_is_replaced_only_on_demand(made: HealingSet, store: ObjectStore, elsewhere: Path) -> None:
    train = made.folder("train")
    name = name_of(train, made.root)
    send(train, made, store)
    fetch(store, name, elsewhere, upstream=False)
    path = elsewhere / name / open_artifact(train).manifest.storage[0].path
    path.chmod(0o644)
    path.write_bytes(b"short")

    with pytest.raises(UsageError, match="the artifact is damaged; use --replace"):
        fetch(store, name, elsewhere, upstream=False)
    fetch(store, name, elsewhere, upstream=False, replace=True)

    assert verify(elsewhere / name).verdict == "intact"


def test_a_refused_pull_changes_no_file(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path, tmp_path: Path
) -> None:
    """The folder has another artifact, into which the members of the requested one would be pulled first."""
    snapshot, dataset = made.folder("snapshot"), made.folder("dataset")
    send(snapshot, made, store)
    send(dataset, made, store)
    snapshot_ref, ref = (find_ref(store, name_of(folder, made.root), None) for folder in (snapshot, dataset))
    pull_all(store, snapshot_ref, elsewhere, None, False, HOUR_S)
    before = sorted(elsewhere.parent.rglob("*"))

    for replace in (False, True):
        with pytest.raises(UsageError, match=r"the folder has files that are not part of the artifact, .*folder$"):
            pull_all(store, ref, elsewhere, elsewhere.parent / "root", replace, HOUR_S)

        assert sorted(elsewhere.parent.rglob("*")) == before
        assert verify(elsewhere).verdict.startswith("intact")


def test_an_artifact_is_not_pulled_into_another_one_nor_around_it(
    made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path
) -> None:
    send(made.folder("dataset"), made, store)
    name = name_of(made.folder("dataset"), made.root)
    ref = find_ref(store, name, None)
    pull_all(store, ref, elsewhere / "a" / "b", None, False, HOUR_S)
    before = sorted(elsewhere.rglob("*"))

    for folder in (elsewhere / "a" / "b" / "new", elsewhere / "a" / "b" / "train" / "new"):
        with pytest.raises(UsageError, match=f"{folder}.*: the folder is inside the artifact {folder.parent}; choose"):
            pull_all(store, ref, folder, None, False, HOUR_S)
    for replace in (False, True):
        with pytest.raises(
            UsageError, match="files that are not part of the artifact, such as b; choose another folder"
        ):
            pull_all(store, ref, elsewhere / "a", None, replace, HOUR_S)
    with pytest.raises(UsageError, match="would be in this folder; choose another folder"):
        pull_all(store, ref, elsewhere / ref.artifacts[-1].folder, elsewhere, False, HOUR_S)

    assert sorted(elsewhere.rglob("*")) == before
    assert verify(elsewhere / "a" / "b").verdict == "intact"


def test_a_member_is_pulled_into_its_own_artifact_only(made: HealingSet, store: ObjectStore, elsewhere: Path) -> None:
    train, dataset = made.folder("train"), made.folder("dataset")
    send(dataset, made, store, upstream=False)
    send(train, made, store, upstream=False)
    fetch(store, name_of(dataset, made.root), elsewhere, upstream=False)
    shutil.rmtree(elsewhere / name_of(train, made.root))

    fetch(store, name_of(train, made.root), elsewhere, upstream=False)
    assert verify(elsewhere / name_of(dataset, made.root)).verdict == "intact"

    ref = find_ref(store, name_of(train, made.root), None)
    with pytest.raises(UsageError, match="the folder is inside the artifact"):
        pull_all(store, ref, elsewhere / name_of(made.folder("valid"), made.root), None, True, HOUR_S)
    assert verify(elsewhere / name_of(dataset, made.root)).verdict == "intact"


def test_replace_compares_files_by_content(made: HealingSet, split: Path, store: ObjectStore, elsewhere: Path) -> None:
    name = name_of(split, made.root)
    send(split, made, store, upstream=False)
    fetch(store, name, elsewhere, upstream=False)
    path = elsewhere / name / open_artifact(split).manifest.storage[0].path
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"~")

    assert fetch(store, name, elsewhere, upstream=False) == (1, 0)
    assert fetch(store, name, elsewhere, upstream=False, replace=True)[1] > 0

    assert verify(elsewhere / name).verdict == "intact"


def test_gc_keeps_and_names_what_is_pulled_with_upstream(made: HealingSet, store: ObjectStore, elsewhere: Path) -> None:
    send(made.folder("dataset"), made, store)
    fetch(store, name_of(made.folder("dataset"), made.root), elsewhere)

    survey = Survey(elsewhere, SYSTEMS)

    assert survey.garbage == []
    assert {path.relative_to(elsewhere) for path in survey.named} == {target.folder for target in made.recipe.targets()}

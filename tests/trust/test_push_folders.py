"""Pushes by other paths and without lineage, and builds of pulled artifacts."""

import shutil
from pathlib import Path

import pytest
from healing_set import HealingSet
from marked_rows import build, built_sources, row_text, run_forget, run_in
from pushed_set import fetch, ref_name, send

from pipeline_assets.commands.build import build_recipe
from pipeline_assets.commands.publish import pull, push
from pipeline_assets.corpus.stores.object_store import ObjectStore
from pipeline_assets.spine.artifact import CheckResult, open_artifact, read_check_results, write_check_results
from pipeline_assets.spine.errors import InputError
from pipeline_assets.systems.registry import SYSTEMS
from pipeline_assets.trust.pull import find_ref
from pipeline_assets.trust.rebuild import rebuild

pytest.importorskip("obstore", reason="obstore is not installed")


@pytest.mark.parametrize("typed", [".", "../link"])
def test_the_checks_of_an_artifact_are_pushed_by_any_path(
    built: HealingSet, split: Path, store: ObjectStore, pull_root: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    checks = (CheckResult("files_match", True, True, "8 files"),)
    digest = open_artifact(split).manifest.digest
    write_check_results(split, digest, checks)
    (split.parent / "link").symlink_to(split)
    monkeypatch.chdir(split)

    pushed = send(Path(typed), built, store, upstream=False)

    name = ref_name(split, built.root)
    assert pushed.ref.artifacts[0].folder == name
    fetch(store, name, pull_root, upstream=False)
    assert read_check_results(pull_root / name, digest) == checks


def test_a_push_without_upstream_keeps_the_upstream_artifacts_of_an_earlier_push(
    built: HealingSet, split: Path, store: ObjectStore
) -> None:
    first = send(split, built, store)
    write_check_results(split, first.ref.artifacts[0].digest, ())

    second = send(split, built, store, upstream=False)

    assert (first.artifacts, second.artifacts) == (3, 1)
    ref = find_ref(store, ref_name(split, built.root), None)
    assert ref == second.ref != first.ref
    assert ref.artifacts[1:] == first.ref.artifacts[1:]


def test_a_pull_with_upstream_warns_if_none_was_pushed(
    built: HealingSet, split: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, url = ref_name(split, built.root), (tmp_path / "store").as_uri()
    (tmp_path / "store").mkdir()
    warning = (
        f"warning: {name}: no upstream artifacts were pulled, because none were pushed; "
        "push it with --upstream, then pull again"
    )

    def pulled(*, upstream: bool) -> str:
        pull(url, tmp_path / "data" / name, upstream=upstream)
        return capsys.readouterr().err

    send(split, built, ObjectStore.open(url), upstream=False)
    assert warning not in pulled(upstream=False)
    assert warning in pulled(upstream=True)
    send(split, built, ObjectStore.open(url))
    assert warning not in pulled(upstream=True)


def test_a_pulled_artifact_without_forgotten_rows_is_not_built_with_them_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, recipe = built_sources(tmp_path, "notes", "other")
    (tmp_path / "text").write_text(f"notes {row_text(5)}")
    run_forget(root, text=[tmp_path / "text"], reason="r", apply=True)
    build(recipe, run_in(root, replace=True))
    url, other = (tmp_path / "store").as_uri(), tmp_path / "elsewhere"
    (tmp_path / "store").mkdir()
    names = [f"stage_a/mixed/normalized/{source}" for source in ("notes", "other")]

    for name in names:
        push(root / name, url, upstream=True)
        pull(url, other / name, upstream=True)

    what = "stage_a/normalized mixed/notes was built with entries that the removal list"
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert warnings == [
        f"warning: {what} of {other} lacks; before it is built again here, put its forgotten rows on this list, or "
        "copy the folder `removals` of its data root"
    ]
    with pytest.raises(InputError, match=f"{what} here lacks; rebuild it in the data root in which it was built"):
        rebuild(other / names[0], run_in(other), SYSTEMS.kinds)
    assert not (other / "rebuilds").exists()
    assert rebuild(other / names[1], run_in(other), SYSTEMS.kinds).is_identical
    shutil.copytree(root / "removals", other / "removals")
    assert rebuild(other / names[0], run_in(other), SYSTEMS.kinds).is_identical


def test_a_run_copies_the_manifests_of_artifacts_that_were_restored_without_copies(tmp_path: Path) -> None:
    root, recipe = built_sources(tmp_path, "notes", "other")
    copies = root / "manifests"
    names = {path.name for path in copies.iterdir()}
    shutil.rmtree(copies)
    shutil.rmtree(tmp_path / "in/sources")  # on another machine, the sources may be missing

    build_recipe(recipe, tmp_path / "recipe.yaml", run_in(root))

    assert {path.name for path in copies.iterdir()} == names == {target.copy_name for target in recipe.targets()}

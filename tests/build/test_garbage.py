"""Garbage of a data root: only what neither a recipe nor an artifact needs."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from graph_system import CHAIN, FORK, SYSTEMS, build_graph, write_graph
from removals import assert_whole, collect, sealed_in, states

from pipeline_assets.build import drive, recipe_paths
from pipeline_assets.build.garbage import Survey
from pipeline_assets.build.run import Run
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile, write_listing
from pipeline_assets.spine.areas import AREAS
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.provenance import ProvenanceRecorder

pytestmark = pytest.mark.usefixtures("_only_graphs")


def test_artifacts_of_a_deleted_recipe_are_garbage_downstream_first(tmp_path: Path) -> None:
    for name in ("kept", "old"):
        build_graph(tmp_path, name, CHAIN)
    (tmp_path / "recipes" / "old.yaml").unlink()

    assert collect(tmp_path) == ["graph/old/c", "graph/old/b", "graph/old/a"]

    assert sealed_in(tmp_path) == {"graph/kept/a", "graph/kept/b", "graph/kept/c"}
    assert [path.name for path in (tmp_path / "graph" / "old").iterdir() if path.suffix != ".lock"] == []
    assert collect(tmp_path) == []
    assert_whole(tmp_path)


def test_kept_work_is_removed_with_its_artifact(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", CHAIN, keep_work=True)
    shutil.rmtree(tmp_path / "graph" / "words" / "c")  # by hand

    assert collect(tmp_path) == ["graph/words/.c.kept"]
    assert collect(tmp_path) == []
    (tmp_path / "recipes" / "words.yaml").unlink()
    assert collect(tmp_path) == ["graph/words/b", "graph/words/a"]
    assert [path.name for path in (tmp_path / "graph" / "words").iterdir() if path.is_dir()] == []


def test_inputs_of_a_stale_artifact_are_kept(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", CHAIN)
    write_graph(tmp_path, "words", {"c": ("three", ())})

    assert collect(tmp_path) == []

    shutil.rmtree(tmp_path / "graph" / "words" / "c")
    assert collect(tmp_path) == ["graph/words/b", "graph/words/a"]


def test_an_artifact_that_another_recipe_reads_is_kept_before_and_after_that_build(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", CHAIN).unlink()
    reader = {"d": ("four", ("words/b",))}
    write_graph(tmp_path, "reader", reader)

    assert collect(tmp_path) == ["graph/words/c"]
    build_graph(tmp_path, "reader", reader)
    assert collect(tmp_path) == []
    assert_whole(tmp_path)


def test_artifact_with_an_input_file_of_another_artifact_is_kept(tmp_path: Path) -> None:
    """Such a file is a trained tokenizer, which another recipe names by its path."""
    build_graph(tmp_path, "words", {"a": ("one", ()), "b": ("two", ())}).unlink()
    recipe = {"system": "toy", "name": "loud", "path": "graph/words/a", "mark": "!"}
    (tmp_path / "recipes" / "loud.yaml").write_text(yaml.safe_dump(recipe))
    SYSTEMS.add("toy", "toy_system")
    try:
        assert collect(tmp_path) == ["graph/words/b"]  # before that build, too
        for target in SYSTEMS.read_recipe(tmp_path / "recipes" / "loud.yaml").targets():
            drive.build(target, Run(tmp_path, RunSettings(workers=0)))

        assert collect(tmp_path) == []
        assert_whole(tmp_path)
    finally:
        AREAS.remove("toy")
        del SYSTEMS.pages["toy"]


def test_a_younger_artifact_keeps_its_older_inputs(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", FORK).unlink()
    for name in ("a", "b", "c"):
        os.utime(tmp_path / "graph" / "words" / name / "manifest.json", (0, time.time() - 3 * 86_400))

    assert collect(tmp_path, min_age_s=2 * 86_400) == ["graph/words/c", "graph/words/b"]

    assert sealed_in(tmp_path) == {"graph/words/a", "graph/words/d"}
    assert_whole(tmp_path)


def test_no_artifact_is_garbage_while_a_recipe_or_manifest_is_unreadable(tmp_path: Path) -> None:
    recipe = build_graph(tmp_path, "words", CHAIN)
    recipe.write_text("system: [")

    assert collect(tmp_path) == []
    recipe.unlink()
    manifest = tmp_path / "graph" / "words" / "c" / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")
    assert collect(tmp_path) == []

    assert [error.where for error in Survey(tmp_path, SYSTEMS).errors] == [str(manifest)]


def test_manifest_that_becomes_unreadable_after_the_survey_stops_the_removal(tmp_path: Path) -> None:
    for name in ("kept", "old"):
        build_graph(tmp_path, name, CHAIN)
    (tmp_path / "recipes" / "old.yaml").unlink()
    survey = Survey(tmp_path, SYSTEMS)
    manifest = tmp_path / "graph" / "kept" / "a" / "manifest.json"
    whole = manifest.read_bytes()
    manifest.chmod(0o644)
    manifest.write_text("{")

    with pytest.raises(InputError, match=r"graph/kept/a/manifest\.json: not a valid manifest: invalid JSON"):
        survey.remove(survey.garbage)
    manifest.write_bytes(whole)

    assert sealed_in(tmp_path) == {f"graph/{name}/{node}" for name in ("kept", "old") for node in "abc"}
    assert collect(tmp_path) == ["graph/old/c", "graph/old/b", "graph/old/a"]


@contextlib.contextmanager
def open_build(root: Path, name: str, node: str) -> Iterator[Path]:
    """Open the staging directory of a node, as a running builder does."""
    [target] = [
        target for target in SYSTEMS.read_recipe(root / "recipes" / f"{name}.yaml").targets() if target.name == node
    ]

    with open_staging_dir(root / target.folder, target.plan(root)) as staging:
        yield staging.folder


def test_inputs_and_folder_of_a_running_builder_are_kept_without_a_recipe(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", CHAIN)
    shutil.rmtree(tmp_path / "graph" / "words" / "c")

    cached = tmp_path / "hub_cache" / "some--one" / "bytes" / f"sha256-{'a' * 64}"
    cached.mkdir(parents=True)
    (cached / "0-4.part").write_text("text")
    os.utime(cached / "0-4.part", (0, 0))

    with open_build(tmp_path, "words", "c") as folder:
        (tmp_path / "recipes" / "words.yaml").unlink()
        assert collect(tmp_path) == []
        assert folder.exists() and any(cached.iterdir())
    assert collect(tmp_path, min_age_s=3600) == [str(cached.relative_to(tmp_path))]
    assert not any(cached.iterdir())
    assert collect(tmp_path) == ["graph/words/.c.building.2", "graph/words/b", "graph/words/a"]

    assert sealed_in(tmp_path) == set()


def test_cached_files_of_a_commit_in_a_recipe_are_kept_before_any_build(tmp_path: Path) -> None:
    hub, commit, digests = HubFiles(tmp_path / "hub_cache"), "c" * 40, [f"sha256:{letter * 64}" for letter in "ab"]
    listing, folders = hub.listing_path("some/one", commit), [hub.spans_folder("some/one", name) for name in digests]
    for folder in (listing.parent, *folders):
        folder.mkdir(parents=True)
    write_listing(listing, [HubFile("rows.parquet", 4, digests[0])])
    for folder in folders:
        (folder / "0-4.part").write_text("text")
        os.utime(folder / "0-4.part", (0, 0))
    recipe = write_graph(tmp_path, "words", {"a": (commit, ())})

    assert collect(tmp_path, min_age_s=3600) == [str(folders[1].relative_to(tmp_path))]

    recipe.unlink()
    assert collect(tmp_path, min_age_s=3600) == [str(folders[0].relative_to(tmp_path))]


def test_resumable_build_is_kept_and_a_needless_leftover_is_removed(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", CHAIN)
    shutil.rmtree(tmp_path / "graph" / "words" / "c")
    with open_build(tmp_path, "words", "c") as folder:
        pass
    shutil.copytree(folder, needless := tmp_path / "graph" / "words" / ".a.building.9")
    before = states(tmp_path)

    assert collect(tmp_path) == ["graph/words/.a.building.9"]

    assert folder.exists() and not needless.exists()
    assert states(tmp_path) | {"graph/words/a": ""} == before | {"graph/words/a": ""}


def unmount_recipes(recipe: Path) -> None:
    shutil.rmtree(recipe.parent)
    recipe.parent.symlink_to(recipe.parents[1] / "missing disk")


@pytest.mark.parametrize("break_recipe", [lambda recipe: recipe.write_text("system: ["), unmount_recipes])
def test_unfinished_build_of_an_unreadable_recipe_is_kept(
    break_recipe: Callable[[Path], object], tmp_path: Path
) -> None:
    recipe = build_graph(tmp_path, "words", CHAIN)
    shutil.rmtree(tmp_path / "graph" / "words" / "c")
    with open_build(tmp_path, "words", "c") as folder:
        pass
    break_recipe(recipe)

    assert collect(tmp_path) == []

    assert folder.exists()


@pytest.mark.parametrize("folder", ["a", "a/member"])
def test_artifact_that_another_process_builds_in_whole_or_part_is_kept(tmp_path: Path, folder: str) -> None:
    build_graph(tmp_path, "words", {"a": ("one", ())}).unlink()

    with locked(tmp_path / "graph" / "words" / folder):
        assert collect(tmp_path) == ["graph/words/a"]
        assert sealed_in(tmp_path) == {"graph/words/a"}

    assert collect(tmp_path) == ["graph/words/a"]
    assert sealed_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("typed", "is_kept"),
    [
        ("run {root}/recipes/words.yaml --data d", True),  # no scanned folder may have this recipe
        ("run ./words", True),
        ("run --replace ./words", True),
        ("run words", False),
        ("run words --data '/my disk/d' --partition a/b", False),
        ("nemotron subsets --in-dir d/graph --out-dir d", True),  # these commands write no recipe
        ("nemotron pools --in-dir d/graph --out-dir d", True),
        ("nemotron run-all --in-dir d/graph --out-dir d", False),
        ("stage-a dedup --input d/graph --out-dir d", True),
    ],
)
def test_artifacts_of_a_command_that_named_a_recipe_file_or_an_input_folder_are_kept(
    typed: str, is_kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = {"typed": f"corpusmill {typed.format(root=tmp_path)}", "id": "1"}
    monkeypatch.setattr(ProvenanceRecorder, "command", command)
    build_graph(tmp_path, "words", CHAIN).unlink()

    collect(tmp_path)

    assert len(sealed_in(tmp_path)) == (3 if is_kept else 0)


def link_an_artifact(root: Path, other_disk: Path) -> Path:
    (root / "graph" / "words" / "b").rename(other_disk / "b")
    (root / "graph" / "words" / "b").symlink_to(other_disk / "b")
    return root / "graph" / "words" / "b"


def link_recipes_to_a_missing_disk(root: Path, other_disk: Path) -> Path:
    (root / "recipes").rmdir()
    (root / "recipes").symlink_to(other_disk / "recipes")
    return root / "recipes"


def link_an_area_to_a_missing_disk(root: Path, other_disk: Path) -> Path:
    (root / "corpora").symlink_to(other_disk / "corpora")
    return root / "corpora"


def remove_the_shipped_recipes(root: Path, other_disk: Path) -> Path:
    recipe_paths.PROJECT_RECIPES_FOLDER.rmdir()
    return recipe_paths.PROJECT_RECIPES_FOLDER


@pytest.mark.parametrize(
    "hide",
    [
        link_an_artifact,
        link_recipes_to_a_missing_disk,
        link_an_area_to_a_missing_disk,
        remove_the_shipped_recipes,
    ],
)
def test_no_artifact_is_garbage_if_needs_may_be_hidden(hide: Callable[[Path, Path], Path], tmp_path: Path) -> None:
    root, other_disk = tmp_path / "root", tmp_path / "away"
    other_disk.mkdir()
    build_graph(root, "words", CHAIN).unlink()
    hidden = hide(root, other_disk)

    assert collect(root) == []
    assert [error.where for error in Survey(root, SYSTEMS).errors] == [str(hidden)]


def test_old_copy_of_an_interrupted_replacement_and_its_inputs_are_kept(tmp_path: Path) -> None:
    build_graph(tmp_path, "words", CHAIN).unlink()
    folder = tmp_path / "graph" / "words" / "b"
    old = folder.rename(folder.with_name(".b.old.2"))

    assert collect(tmp_path) == ["graph/words/c"]

    assert old.exists()
    assert sealed_in(tmp_path) == {"graph/words/a"}

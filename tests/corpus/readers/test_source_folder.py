"""The folder of a source: its files, and changes since its manifest."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refusal

from pipeline_assets.corpus.readers.source_folder import (
    SourceFile,
    SourceFolder,
    check_listed_files,
    folder_provenance,
    input_folder,
)
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion


@pytest.fixture
def folder(tmp_path: Path) -> SourceFolder:
    """Create three files; the patterns match two of them."""
    (tmp_path / "notes" / "deep").mkdir(parents=True)
    for name in ("a.jsonl", "deep/b.jsonl", "readme.md"):
        (tmp_path / "notes" / name).write_text(name)
    return SourceFolder(tmp_path / "notes", ("**/*.jsonl",))


def build_manifest(folder: SourceFolder) -> Manifest:
    """Return the manifest of a raw source for the current files."""
    files = folder.files()
    inputs = [{"name": file.name, "digest": "sha256:…", "bytes": file.bytes} for file in files]
    identity = Identity(StageVersion("raw", 1), {"files": list(folder.patterns)}, inputs, None, {}, {}, [])
    return Manifest("stage_a/raw", "notes", identity, [], folder_provenance(folder, files, Path("/data")))


def test_an_unchanged_folder_has_no_changes(folder: SourceFolder, tmp_path: Path) -> None:
    manifest, relative = build_manifest(folder), SourceFolder(Path("notes"), folder.patterns)

    (folder.path / "readme.md").write_text("no pattern matches it")

    assert folder.describe_changes(Path(), manifest) is None
    assert relative.describe_changes(tmp_path, manifest) is None
    assert (relative.resolve_path(tmp_path), folder.resolve_path(tmp_path / "elsewhere")) == (folder, folder)


def remove_all(path: Path) -> None:
    shutil.rmtree(path / "deep")
    (path / "a.jsonl").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: os.utime(path / "a.jsonl", ns=(1, 1)), "files in {} were rewritten"),
        (lambda path: (path / "a.jsonl").write_text("other"), "1 of the files in {} changed; the first is a.jsonl"),
        (lambda path: (path / "a.jsonl").unlink(), "1 of the files in {} changed; the first is a.jsonl (missing)"),
        (lambda path: (path / "c.jsonl").touch(), "1 of the files in {} changed; the first is c.jsonl (new)"),
        (remove_all, "no file matches '**/*.jsonl'"),
    ],
    ids=["touched", "other size", "gone", "one more", "all gone"],
)
def test_a_changed_file_is_reported_and_the_files_are_refused(
    change: Callable[[Path], object], message: str, folder: SourceFolder
) -> None:
    manifest = build_manifest(folder)

    change(folder.path)

    assert folder.describe_changes(Path(), manifest) == message.format(folder.path)
    assert refusal(lambda: check_listed_files(folder, manifest)) == (
        f"{folder.path}: changed since the files were hashed: {message.format(folder.path)}; "
        "restore the files, or stop writing to the folder and run the recipe again"
    )


@pytest.mark.parametrize(("root", "is_stale"), [("", True), ("v1", False), ("v2", False)])
def test_an_equal_listing_of_another_folder_is_a_change_unless_one_is_in_the_data_root(
    root: str, is_stale: bool, tmp_path: Path
) -> None:
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jsonl").write_text(name)
        os.utime(tmp_path / name / "a.jsonl", ns=(1, 1))
    manifest = build_manifest(SourceFolder(tmp_path / "v1", ("*.jsonl",)))

    reason = SourceFolder(tmp_path / "v2", ("*.jsonl",)).describe_changes(tmp_path / root, manifest)

    expected = f"the files were read from {tmp_path}/v1, the recipe has {tmp_path}/v2"
    assert reason == (expected if is_stale else None)
    os.utime(tmp_path / "v2" / "a.jsonl", ns=(2, 2))
    reason = SourceFolder(tmp_path / "v2", ("*.jsonl",)).describe_changes(tmp_path / root, manifest)
    assert reason == (expected if is_stale else f"files in {tmp_path}/v2 were rewritten")


def test_a_missing_folder_has_no_changes_and_cannot_be_read(folder: SourceFolder) -> None:
    manifest = build_manifest(folder)

    folder.path.rename(folder.path.with_name("elsewhere"))

    assert folder.describe_changes(Path(), manifest) is None
    assert refusal(lambda: check_listed_files(folder, manifest)) == (
        f"{folder.path}: the source folder no longer exists; "
        "restore it, create a link to its new path, or correct the source's path"
    )


@pytest.mark.parametrize(("path", "is_stale"), [("v2", True), ("root/v2", True), ("root/~/v1", True), ("v1", False)])
def test_a_missing_folder_is_a_change_if_another_one_was_read(path: str, is_stale: bool, tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "a.jsonl").touch()
    manifest = build_manifest(SourceFolder(tmp_path / "v1", ("*.jsonl",)))

    reason = SourceFolder(tmp_path / path, ("*.jsonl",)).describe_changes(tmp_path / "root", manifest)

    expected = f"the files were read from {tmp_path}/v1, the recipe has {tmp_path / path}"
    assert reason == (expected if is_stale else None)
    (tmp_path / "v1").rename(tmp_path / "root")
    assert SourceFolder(tmp_path / path, ("*.jsonl",)).describe_changes(tmp_path / "root", manifest) is None


def test_a_folder_that_moved_with_its_files_has_not_changed(folder: SourceFolder, tmp_path: Path) -> None:
    manifest = build_manifest(folder)

    moved = SourceFolder(folder.path.rename(tmp_path / "moved"), folder.patterns)

    assert moved.describe_changes(Path(), manifest) is None
    assert check_listed_files(moved, manifest) == [
        SourceFile(tmp_path / "moved" / "a.jsonl", "a.jsonl", 7),
        SourceFile(tmp_path / "moved" / "deep" / "b.jsonl", "deep/b.jsonl", 12),
    ]


def test_the_folder_of_a_manifest_moves_with_its_data_root(folder: SourceFolder, tmp_path: Path) -> None:
    assert input_folder(build_manifest(folder), Path("/elsewhere")) == folder
    provenance = folder_provenance(folder, folder.files(), tmp_path)
    identity = Identity(StageVersion("raw", 1), {"files": list(folder.patterns)}, [], None, {}, {}, [])

    input_path = input_folder(Manifest("stage_a/raw", "notes", identity, [], provenance), Path("/moved"))

    assert input_path == SourceFolder(Path("/moved/notes"), folder.patterns)


@pytest.mark.parametrize(("recipe", "provenance"), [({}, {"folder": "/x"}), ({"files": ["*"]}, {})])
def test_an_incomplete_manifest_has_no_input_folder(recipe: dict[str, object], provenance: dict[str, object]) -> None:
    identity = Identity(StageVersion("raw", 1), recipe, [], None, {}, {}, [])

    assert input_folder(Manifest("stage_a/raw", "pages", identity, [], provenance), Path()) is None

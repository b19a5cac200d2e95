"""States of artifacts in a data root, read without changing a byte."""

import datetime
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from forgery import overwrite
from word_artifact import build_words, refuse_five, target_in

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.inventory import ArtifactSize, artifact_statuses, find_orphans, sealed_at
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import StageVersion


def interrupt_build(root: Path, language: str = "english") -> None:
    """Start a build that fails in its second shard of three."""
    with pytest.raises(InputError):
        build_words(root, language, refuse_five)


def index_target() -> Target:
    """Return the target of an artifact that is derived from `words`."""
    return Target(
        unknown_kind("words/index", StageVersion("index", 1)), "index", Path("index"), {}, (target_in("english"),)
    )


def read_tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_build_that_ended_after_the_year_9999_has_no_time() -> None:
    assert sealed_at({"started_at_utc": "9999-12-31T23:59:59+00:00", "seconds": 60.0}) is None


def test_target_that_was_never_built_is_missing(tmp_path: Path) -> None:
    [status] = artifact_statuses(tmp_path / "nowhere", [target_in("english")])

    assert (status.display_state, status.reason, status.manifest) == ("missing", "not built yet", None)
    assert (status.size, status.sealed_at, status.partial_build) == (ArtifactSize(None, None, None), None, None)


def test_artifact_that_matches_its_recipe_is_current(tmp_path: Path) -> None:
    build_words(tmp_path, "english")

    [status] = artifact_statuses(tmp_path, [target_in("english")])

    age = datetime.datetime.now(datetime.UTC) - status.sealed_at
    assert (status.display_state, status.reason) == ("current", None)
    assert status.size == ArtifactSize(documents=6, tokens=None, bytes=28)
    assert datetime.timedelta(seconds=-2) < age < datetime.timedelta(minutes=1)


def test_artifact_with_an_edited_manifest_is_damaged(tmp_path: Path) -> None:
    manifest = build_words(tmp_path, "english").folder / "manifest.json"
    overwrite(manifest, b"{")

    [status] = artifact_statuses(tmp_path, [target_in("english")])

    assert (status.display_state, status.manifest) == ("damaged", None)
    assert status.reason.startswith(f"{manifest}: not a valid manifest: invalid JSON")


def test_downstream_artifact_of_a_stale_artifact_is_stale(tmp_path: Path) -> None:
    build_words(tmp_path, "english")
    index = index_target()
    build_target(index, tmp_path, lambda building: BuildResult([], {}, {}), False, {})
    french = replace(index, upstream=(target_in("french"),))

    up_to_date = artifact_statuses(tmp_path, [target_in("english"), index])
    changed = artifact_statuses(tmp_path, [target_in("french"), french])

    assert [status.display_state for status in up_to_date] == ["current", "current"]
    assert [status.display_state for status in changed] == ["stale", "stale"]
    assert changed[1].reason == "words/parts words is stale"


class TestPartialBuild:
    """Staging folders, with and without a builder."""

    def test_stopped_build_is_interrupted_and_its_shards_are_counted(self, tmp_path: Path) -> None:
        interrupt_build(tmp_path)

        [status] = artifact_statuses(tmp_path, [target_in("english")])

        age = datetime.datetime.now(datetime.UTC) - status.partial_build.last_write
        assert (status.display_state, status.sealed_state) == ("interrupted", "missing")
        assert status.partial_build.finished_shards == {"write": 1}
        assert (status.partial_build.builder, status.partial_build.is_sealing) == (None, False)
        assert age < datetime.timedelta(minutes=1)

    def test_target_with_a_live_builder_is_building(self, tmp_path: Path) -> None:
        interrupt_build(tmp_path)

        with locked(tmp_path / "words"):
            [status] = artifact_statuses(tmp_path, [target_in("english")])

        builder = status.partial_build.builder
        assert status.display_state == "building"
        assert (builder.pid, builder.host) == (os.getpid(), socket.gethostname())
        assert datetime.datetime.now(datetime.UTC) - builder.since < datetime.timedelta(minutes=1)

    def test_status_has_the_sealed_artifact_and_the_build_that_replaces_it(self, tmp_path: Path) -> None:
        build_words(tmp_path, "french")
        interrupt_build(tmp_path)

        [status] = artifact_statuses(tmp_path, [target_in("english")])

        assert (status.display_state, status.sealed_state) == ("interrupted", "stale")
        assert status.reason == "the recipe changed (`language`: french → english)"
        assert status.size.documents == 6

    @pytest.mark.parametrize("name", [".words.building.1", ".words.old.2"])
    def test_interrupted_seal_differs_from_an_interrupted_build(self, name: str, tmp_path: Path) -> None:
        build_words(tmp_path, "english").folder.rename(tmp_path / name)

        [status] = artifact_statuses(tmp_path, [target_in("english")])

        assert (status.display_state, status.sealed_state, status.partial_build.is_sealing) == (
            "interrupted",
            "missing",
            True,
        )

    def test_staging_folder_without_a_plan_is_not_a_seal(self, tmp_path: Path) -> None:
        (tmp_path / ".words.building.1").mkdir()

        [status] = artifact_statuses(tmp_path, [target_in("english")])

        assert (status.display_state, status.partial_build.is_sealing) == ("interrupted", False)

    def test_leftover_next_to_a_current_artifact_is_not_a_build(self, tmp_path: Path) -> None:
        """No build resumes it, because `run` finds the artifact up to date."""
        folder = build_words(tmp_path, "english").folder
        shutil.copytree(folder, tmp_path / ".words.old.2")

        [status] = artifact_statuses(tmp_path, [target_in("english")])

        assert (status.display_state, status.sealed_state, status.reason) == ("current", "current", None)
        assert status.partial_build.folders == [tmp_path / ".words.old.2"]


class TestOrphans:
    """Artifacts that no target names."""

    def test_sealed_artifact_without_a_target_is_listed_with_its_digest(self, tmp_path: Path) -> None:
        artifact = build_words(tmp_path / "corpora", "english")
        target = replace(target_in("english"), folder=Path("corpora", "words"))

        [orphan] = find_orphans(Lineage(tmp_path), [target_in("english")])

        assert (orphan.folder, orphan.name, orphan.damage) == (tmp_path / "corpora" / "words", "words", None)
        assert orphan.digest == artifact.manifest.digest
        assert orphan.size == ArtifactSize(documents=6, tokens=None, bytes=28)
        assert find_orphans(Lineage(tmp_path), [target]) == []

    def test_artifact_with_an_unreadable_manifest_is_listed_as_damaged(self, tmp_path: Path) -> None:
        manifest = build_words(tmp_path / "corpora", "english").folder / "manifest.json"
        overwrite(manifest, b"{}")

        [orphan] = find_orphans(Lineage(tmp_path), [])

        assert (orphan.name, orphan.digest) == (None, None)
        assert orphan.damage == "not a valid manifest: Object missing required field `schema`"


def test_reading_the_status_changes_nothing(tmp_path: Path) -> None:
    """Neither an interrupted build nor an interrupted seal is recovered or locked."""
    build_words(tmp_path, "french")
    interrupt_build(tmp_path)
    shutil.copytree(tmp_path / "words", tmp_path / ".words.old.9")
    (tmp_path / ".words.lock").unlink()
    before = read_tree(tmp_path)

    artifact_statuses(tmp_path, [target_in("english"), index_target()])
    find_orphans(Lineage(tmp_path), [])

    assert read_tree(tmp_path) == before

"""What lies under a data root: each state with its reason, and not a byte changed by asking."""

import datetime
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from forgery import overwrite
from word_artifact import build_words, refuse_five, target_of

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.inventory import ArtifactSize, artifact_statuses, find_orphans, sealed_at
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.lock import locked
from pipeline_assets.spine.manifest import StageVersion


def interrupted(root: Path, language: str = "english") -> None:
    """A build that stopped at its second shard of three."""
    with pytest.raises(InputError):
        build_words(root, language, refuse_five)


def made_from_words() -> Target:
    """An artifact that is made from `words`."""
    return Target(
        unknown_kind("words/index", StageVersion("index", 1)), "index", Path("index"), {}, (target_of("english"),)
    )


def everything_in(root: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_a_build_that_ended_after_the_last_year_has_no_time() -> None:
    assert sealed_at({"started_at_utc": "9999-12-31T23:59:59+00:00", "seconds": 60.0}) is None


def test_what_was_never_built_is_missing(tmp_path: Path) -> None:
    [held] = artifact_statuses(tmp_path / "nowhere", [target_of("english")])

    assert (held.condition, held.reason, held.manifest) == ("missing", "not built yet", None)
    assert (held.size, held.sealed_at, held.partial_build) == (ArtifactSize(None, None, None), None, None)


def test_what_is_there_as_asked_is_current(tmp_path: Path) -> None:
    build_words(tmp_path, "english")

    [held] = artifact_statuses(tmp_path, [target_of("english")])

    age = datetime.datetime.now(datetime.UTC) - held.sealed_at
    assert (held.condition, held.reason) == ("current", None)
    assert held.size == ArtifactSize(documents=6, tokens=None, bytes=28)
    assert datetime.timedelta(seconds=-2) < age < datetime.timedelta(minutes=1)


def test_an_edited_manifest_is_damage(tmp_path: Path) -> None:
    manifest = build_words(tmp_path, "english").folder / "manifest.json"
    overwrite(manifest, b"{")

    [held] = artifact_statuses(tmp_path, [target_of("english")])

    assert (held.condition, held.manifest) == ("damaged", None)
    assert held.reason.startswith(f"{manifest}: not a valid manifest: invalid JSON")


def test_what_is_made_from_something_stale_is_stale_too(tmp_path: Path) -> None:
    build_words(tmp_path, "english")
    index = made_from_words()
    build_target(index, tmp_path, lambda building: BuildResult([], {}, {}), False, {})
    french = replace(index, upstream=(target_of("french"),))

    as_asked = artifact_statuses(tmp_path, [target_of("english"), index])
    otherwise = artifact_statuses(tmp_path, [target_of("french"), french])

    assert [held.condition for held in as_asked] == ["current", "current"]
    assert [held.condition for held in otherwise] == ["stale", "stale"]
    assert otherwise[1].reason == "words/parts words is stale"


class TestUnfinished:
    """Building folders, with a builder and without."""

    def test_a_build_that_stopped_is_interrupted_and_its_shards_are_counted(self, tmp_path: Path) -> None:
        interrupted(tmp_path)

        [held] = artifact_statuses(tmp_path, [target_of("english")])

        age = datetime.datetime.now(datetime.UTC) - held.partial_build.last_write
        assert (held.condition, held.sealed_state) == ("interrupted", "missing")
        assert held.partial_build.finished_shards == {"write": 1}
        assert (held.partial_build.builder, held.partial_build.is_sealing) == (None, False)
        assert age < datetime.timedelta(minutes=1)

    def test_a_build_with_a_live_builder_is_building(self, tmp_path: Path) -> None:
        interrupted(tmp_path)

        with locked(tmp_path / "words"):
            [held] = artifact_statuses(tmp_path, [target_of("english")])

        builder = held.partial_build.builder
        assert held.condition == "building"
        assert (builder.pid, builder.host) == (os.getpid(), socket.gethostname())
        assert datetime.datetime.now(datetime.UTC) - builder.since < datetime.timedelta(minutes=1)

    def test_what_is_sealed_is_told_beside_the_build_that_will_replace_it(self, tmp_path: Path) -> None:
        build_words(tmp_path, "french")
        interrupted(tmp_path)

        [held] = artifact_statuses(tmp_path, [target_of("english")])

        assert (held.condition, held.sealed_state) == ("interrupted", "stale")
        assert held.reason == "the recipe changed (`language`: french → english)"
        assert held.size.documents == 6

    @pytest.mark.parametrize("name", [".words.building.1", ".words.old.2"])
    def test_a_seal_that_was_cut_short_is_told_from_a_build(self, name: str, tmp_path: Path) -> None:
        build_words(tmp_path, "english").folder.rename(tmp_path / name)

        [held] = artifact_statuses(tmp_path, [target_of("english")])

        assert (held.condition, held.sealed_state, held.partial_build.is_sealing) == ("interrupted", "missing", True)

    def test_a_folder_that_a_crash_left_before_its_plan_is_not_a_seal(self, tmp_path: Path) -> None:
        (tmp_path / ".words.building.1").mkdir()

        [status] = artifact_statuses(tmp_path, [target_of("english")])

        assert (status.condition, status.partial_build.is_sealing) == ("interrupted", False)

    def test_what_a_crash_left_beside_a_current_artifact_is_no_build(self, tmp_path: Path) -> None:
        """No build will go on from it: `run` finds the artifact there as asked."""
        folder = build_words(tmp_path, "english").folder
        shutil.copytree(folder, tmp_path / ".words.old.2")

        [held] = artifact_statuses(tmp_path, [target_of("english")])

        assert (held.condition, held.sealed_state, held.reason) == ("current", "current", None)
        assert held.partial_build.folders == [tmp_path / ".words.old.2"]


class TestUnasked:
    """What no target names."""

    def test_a_sealed_artifact_that_no_target_names_is_told_with_its_digest(self, tmp_path: Path) -> None:
        artifact = build_words(tmp_path / "corpora", "english")
        asked = replace(target_of("english"), folder=Path("corpora", "words"))

        [other] = find_orphans(Lineage(tmp_path), [target_of("english")])

        assert (other.folder, other.name, other.damage) == (tmp_path / "corpora" / "words", "words", None)
        assert other.digest == artifact.manifest.digest
        assert other.size == ArtifactSize(documents=6, tokens=None, bytes=28)
        assert find_orphans(Lineage(tmp_path), [asked]) == []

    def test_one_whose_manifest_cannot_be_read_is_told_as_damaged(self, tmp_path: Path) -> None:
        manifest = build_words(tmp_path / "corpora", "english").folder / "manifest.json"
        overwrite(manifest, b"{}")

        [other] = find_orphans(Lineage(tmp_path), [])

        assert (other.name, other.digest) == (None, None)
        assert other.damage == "not a valid manifest: Object missing required field `schema`"


def test_asking_changes_nothing(tmp_path: Path) -> None:
    """Neither recovery nor a new lock file: not for a build without a builder, nor for a seal that was cut short."""
    build_words(tmp_path, "french")
    interrupted(tmp_path)
    shutil.copytree(tmp_path / "words", tmp_path / ".words.old.9")
    (tmp_path / ".words.lock").unlink()
    before = everything_in(tmp_path)

    artifact_statuses(tmp_path, [target_of("english"), made_from_words()])
    find_orphans(Lineage(tmp_path), [])

    assert everything_in(tmp_path) == before

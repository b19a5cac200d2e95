"""The seal moves exactly the named files of the builder that owns the lock."""

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal
from word_artifact import ENGLISH, Words, write_words
from word_building import PLAN, build, files_in, is_whole, list_siblings, seal, write_shard

from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.opening import open_staging_dir, recover, seal_in_place
from pipeline_assets.spine.stage import Window, Work
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingView, sibling_path
from pipeline_assets.spine.temporary_names import is_temporary

DELETED = (
    "the staging directory was deleted or renamed during the build; nothing was sealed; run the same command again"
)


def test_seal_moves_exactly_the_named_files(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, position).files[0] for position in range(3)]
        building.path("parts/stray.txt").write_text("")
        building.path("stray.tmp").write_text("")

        artifact = seal(building, files)

    assert artifact.folder == target
    assert sorted(files_in(target)) == ["manifest.json", "parts/a.txt", "parts/b.txt", "parts/c.txt"]
    assert list_siblings(target) == [".words.lock", "words"]
    assert is_whole(target)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids="umask {:03o}".format)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def read_modes(folder: Path) -> dict[str, int]:
    """Return the permissions of a folder and of every path in it."""
    return {path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}


SEALED = {".": 0o755, "manifest.json": 0o444, "parts": 0o755} | {f"parts/{name}.txt": 0o444 for name in "abc"}


@pytest.mark.usefixtures("_umask")
def test_sealed_files_are_readable_by_all_and_read_only_with_any_umask(target: Path, system: str) -> None:
    build(target)
    first_modes = read_modes(target)

    build(target, {"second": "plan"})

    assert first_modes == read_modes(target) == SEALED


@pytest.mark.usefixtures("_umask")
def test_recovered_seal_has_the_same_permissions(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(step: durable.Operation, path: Path) -> None:
        if (step, path) == ("rename", target):
            raise KeyboardInterrupt

    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, position).files[0] for position in range(3)]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(durable, "failpoint", stop)
            seal(building, files)
    for path in building.folder.rglob("*"):
        path.chmod(0o777)

    recover(target)

    assert read_modes(target) == SEALED


@pytest.mark.usefixtures("_umask")
def test_group_of_a_shared_folder_can_replace_sealed_artifacts(target: Path) -> None:
    target.parent.chmod(0o2775)

    build(target / "below")

    assert read_modes(target / "below") == SEALED | {".": 0o775, "parts": 0o775}
    assert target.stat().st_mode & 0o7777 == 0o2775


def test_group_member_finishes_the_interrupted_seal_of_another(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its owner may change the mode of a file."""

    def stop(step: durable.Operation, path: Path) -> None:
        if step == "chmod":
            raise KeyboardInterrupt

    def change_own_mode(path: Path, mode: int, change: Callable[[Path, int], None] = os.chmod) -> None:
        if path.stat().st_ino in others:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))
        change(path, mode)

    target.parent.chmod(0o2775)
    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, position).files[0] for position in range(3)]
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(durable, "failpoint", stop)
            seal(building, files)
    others = {path.stat().st_ino for path in building.folder.rglob("*")}
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(os, "chmod", change_own_mode)

    recover(target)

    assert read_modes(target) == SEALED | {".": 0o775, "parts": 0o775}
    assert is_whole(target)
    assert list_siblings(target) == [".words.lock", "words"]


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("ONE\n")], ids=["gone", "shorter"])
def test_file_that_differs_from_the_written_one_is_not_sealed(target: Path, spoil: Callable[[Path], object]) -> None:
    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, 0).files[0]]
        spoil(building.path("parts/a.txt"))

        assert refusal(lambda: seal(building, files)) == (
            f"{building.folder / 'parts/a.txt'}: the file is missing, or no longer has the 8 bytes that were written; "
            "run the command again"
        )
    assert not target.exists()


def test_builder_that_loses_its_lock_during_a_seal_fails(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, position).files[0] for position in range(3)]
        monkeypatch.setattr(durable, "failpoint", lambda step, path: building.lock.path.unlink(missing_ok=True))
        with pytest.raises(InputError, match="this builder lost its lock"):
            seal(building, files)

    assert not target.exists()


@pytest.mark.parametrize("second_plan", [PLAN, {"another": "plan"}])
def test_only_the_newest_builder_can_seal(target: Path, second_plan: Mapping[str, Any]) -> None:
    with open_staging_dir(target, PLAN) as first:
        files = [write_shard(first, position).files[0] for position in range(3)]
        first.lock.path.unlink()
        with open_staging_dir(target, second_plan) as second:
            with pytest.raises(InputError, match="this builder lost its lock"):
                seal(first, files)
            receipts = list(run_stage("write", write_words, ENGLISH, second, RunSettings()))
            seal(second, [receipt.files[0] for receipt in receipts])

    assert open_artifact(target).manifest.provenance == {"builder": 2}
    assert is_whole(target)


def test_replaced_builder_cannot_write(target: Path) -> None:
    with open_staging_dir(target, PLAN) as first:
        first.lock.path.unlink()
        with open_staging_dir(target, PLAN):
            message = refusal(lambda: first.path("parts/a.txt"))

    assert message == f"{first.folder}: {DELETED}"
    assert not first.folder.exists()


def delete_and_open(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Open a requested path after its staging directory was deleted."""
    path = folder.path(f"parts/{shard.name}.txt")
    shutil.rmtree(folder.folder)
    path.open("wb")
    raise AssertionError


def delete_and_request(shard: Words, window: Window, folder: StagingView) -> Receipt:
    """Request a path in a deleted staging directory."""
    shutil.rmtree(folder.folder)
    folder.path(f"parts/{shard.name}.txt")
    raise AssertionError


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("work", [delete_and_open, delete_and_request])
def test_build_names_its_deleted_staging_directory(work: Work[Words], workers: int, target: Path) -> None:
    def build_deleted() -> None:
        with open_staging_dir(target, PLAN) as staging:
            list(run_stage("write", work, ENGLISH[:1], staging, RunSettings(workers)))

    message = refusal(build_deleted, RetryableError)
    build(target)

    assert message == f"{sibling_path(target, 'building', 1)}: {DELETED}"
    assert is_whole(target)


def test_number_rises_above_the_sealed_one_after_the_lock_file_was_deleted(target: Path) -> None:
    build(target)
    build(target, {"second": "plan"})
    target.with_name(".words.lock").unlink()

    artifact = build(target, {"third": "plan"})

    assert artifact.manifest.provenance == {"builder": 3}


def test_folder_without_a_sealed_artifact_is_never_replaced(target: Path) -> None:
    target.mkdir()
    (target / "thesis.tex").write_text("years of work")

    assert refusal(lambda: build(target)) == (
        f"{target}: the path exists and is not a sealed artifact; move it away, then run the same command"
    )
    assert files_in(target) == {"thesis.tex": b"years of work"}


def test_empty_folder_is_replaced(target: Path) -> None:
    target.mkdir()

    build(target)

    assert is_whole(target)


def test_partly_removed_leftover_is_cleaned_up(target: Path) -> None:
    build(target)
    half_removed = target.with_name(".words.building.7")
    (half_removed / "parts").mkdir(parents=True)
    (half_removed / "parts" / "a.txt").write_text("UN\n")

    build(target, {"second": "plan"})

    assert list_siblings(target) == [".words.lock", "words"]


@pytest.mark.usefixtures("_umask")
def test_sealing_in_place_writes_only_the_manifest_and_sets_the_same_permissions(target: Path) -> None:
    member = build(target / "train")
    inputs = [{"name": "train", "digest": member.manifest.digest, "member": "train"}]
    identity = Identity(StageVersion("join", 1), {}, inputs, None, {}, {}, [])
    before = files_in(target)

    artifact = seal_in_place(target, Manifest("words/dataset", "words", identity, [], {"host": "here"}))

    assert files_in(target).keys() - before.keys() == {"manifest.json"}
    modes = read_modes(target)
    assert (modes["."], modes["manifest.json"]) == (0o755, 0o444)
    assert read_modes(target / "train") == SEALED
    assert artifact.manifest.provenance == {"host": "here", "builder": 1}
    assert is_whole(target)


def test_work_files_that_are_still_open_on_nfs_are_moved_out_of_the_artifact(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep_open(step: durable.Operation, path: Path) -> None:
        if step == "unlink" and path.name == "open":
            path.with_name(".nfs00000000004600000001").touch()

    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, position).files[0] for position in range(3)]
        durable.write_durably(building.folder / WORK_FOLDER / "open", b"")
        monkeypatch.setattr(durable, "failpoint", keep_open)
        seal(building, files)

    assert sorted(files_in(target)) == ["manifest.json", "parts/a.txt", "parts/b.txt", "parts/c.txt"]
    [work] = [path for path in target.parent.iterdir() if is_temporary(path.name)]
    assert list(files_in(work)) == [".nfs00000000004600000001"]


def test_artifact_is_restored_after_a_crash_between_the_renames(target: Path) -> None:
    artifact = build(target)
    target.rename(sibling_path(target, "old", 7))

    recover(target)

    assert is_whole(target) and open_artifact(target, artifact.manifest.digest)
    assert list_siblings(target) == [".words.lock", "words"]

"""The seal comes last: it puts exactly the named files in place, of which one that has its lock is sure."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal
from word_artifact import ENGLISH, write_words
from word_building import PLAN, build, files_in, is_whole, names_beside, seal, write_shard

from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.engine import RunSettings, run_stage
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion
from pipeline_assets.spine.opening import open_staging_dir, recover, seal_in_place
from pipeline_assets.spine.staging import leftover_path


def test_the_seal_puts_exactly_the_named_files_in_place(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, position).files[0] for position in range(3)]
        building.path("parts/stray.txt").write_text("")
        building.path("stray.tmp").write_text("")

        artifact = seal(building, files)

    assert artifact.folder == target
    assert sorted(files_in(target)) == ["manifest.json", "parts/a.txt", "parts/b.txt", "parts/c.txt"]
    assert names_beside(target) == [".words.lock", "words"]
    assert is_whole(target)


@pytest.fixture(params=[0o000, 0o022, 0o077], ids="umask {:03o}".format)
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes_in(folder: Path) -> dict[str, int]:
    """Rights of a folder and of all in it."""
    return {path.relative_to(folder).as_posix(): path.stat().st_mode & 0o777 for path in [folder, *folder.rglob("*")]}


SEALED = {".": 0o755, "manifest.json": 0o444, "parts": 0o755} | {f"parts/{name}.txt": 0o444 for name in "abc"}


@pytest.mark.usefixtures("_umask")
def test_what_is_sealed_may_be_read_by_all_and_written_by_nobody_whatever_the_umask(target: Path, system: str) -> None:
    build(target)
    at_first = modes_in(target)

    build(target, {"second": "plan"})

    assert at_first == modes_in(target) == SEALED


@pytest.mark.usefixtures("_umask")
def test_a_seal_that_a_crash_cut_short_ends_with_the_same_rights(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    assert modes_in(target) == SEALED


@pytest.mark.usefixtures("_umask")
def test_sealing_in_place_leaves_the_same_rights(target: Path) -> None:
    target.mkdir()
    build(target / "train")

    identity = Identity(StageVersion("join", 1), {}, [], None, {}, {}, [])
    seal_in_place(target, Manifest("words/dataset", "words", identity, [], {}))

    found = modes_in(target)
    assert (found["."], found["manifest.json"]) == (0o755, 0o444)
    assert modes_in(target / "train") == SEALED


@pytest.mark.usefixtures("_umask")
def test_where_a_group_shares_a_folder_each_of_it_can_replace_what_another_sealed(target: Path) -> None:
    target.parent.chmod(0o2775)

    build(target / "below")

    assert modes_in(target / "below") == SEALED | {".": 0o775, "parts": 0o775}
    assert target.stat().st_mode & 0o7777 == 0o2775


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("ONE\n")], ids=["gone", "shorter"])
def test_a_file_that_is_not_what_was_written_is_not_sealed(target: Path, spoil: Callable[[Path], object]) -> None:
    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, 0).files[0]]
        spoil(building.path("parts/a.txt"))

        assert refusal(lambda: seal(building, files)) == (
            f"{building.folder / 'parts/a.txt'}: the file is missing, or no longer has the 8 bytes that were written; "
            "run the command again"
        )
    assert not target.exists()


def test_a_builder_that_loses_its_lock_in_a_seal_ends(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_staging_dir(target, PLAN) as building:
        files = [write_shard(building, position).files[0] for position in range(3)]
        monkeypatch.setattr(durable, "failpoint", lambda step, path: building.lock.path.unlink(missing_ok=True))
        with pytest.raises(InputError, match="this builder lost its lock"):
            seal(building, files)

    assert not target.exists()


@pytest.mark.parametrize("plan_of_the_second", [PLAN, {"another": "plan"}])
def test_a_builder_that_another_took_over_from_cannot_seal_and_the_other_can(
    target: Path, plan_of_the_second: Mapping[str, Any]
) -> None:
    with open_staging_dir(target, PLAN) as first:
        files = [write_shard(first, position).files[0] for position in range(3)]
        first.lock.path.unlink()
        with open_staging_dir(target, plan_of_the_second) as second:
            with pytest.raises(InputError, match="this builder lost its lock"):
                seal(first, files)
            receipts = list(run_stage("write", write_words, ENGLISH, second, RunSettings()))
            seal(second, [receipt.files[0] for receipt in receipts])

    assert open_artifact(target).manifest.provenance == {"builder": 2}
    assert is_whole(target)


def test_a_builder_that_another_took_over_from_has_nowhere_to_write(target: Path) -> None:
    with open_staging_dir(target, PLAN) as first:
        first.lock.path.unlink()
        with open_staging_dir(target, PLAN):
            told = refusal(lambda: first.path("parts/a.txt"))

    assert (
        told == f"{first.folder}: the staging directory no longer exists; another builder took over; nothing was sealed"
    )
    assert not first.folder.exists()


def test_the_number_rises_above_the_sealed_builders_when_the_lock_file_was_deleted(target: Path) -> None:
    build(target)
    build(target, {"second": "plan"})
    target.with_name(".words.lock").unlink()

    artifact = build(target, {"third": "plan"})

    assert artifact.manifest.provenance == {"builder": 3}


def test_a_folder_that_nothing_was_sealed_in_is_never_replaced(target: Path) -> None:
    target.mkdir()
    (target / "thesis.tex").write_text("years of work")

    assert refusal(lambda: build(target)) == (
        f"{target}: the path exists and is not a sealed artifact; move it away, then run the same command"
    )
    assert files_in(target) == {"thesis.tex": b"years of work"}


def test_an_empty_folder_is_no_obstacle(target: Path) -> None:
    target.mkdir()

    build(target)

    assert is_whole(target)


def test_sealing_in_place_writes_only_the_manifest(target: Path) -> None:
    member = build(target / "train")
    inputs = [{"name": "train", "digest": member.manifest.digest, "member": "train"}]
    identity = Identity(StageVersion("join", 1), {}, inputs, None, {}, {}, [])
    before = files_in(target)

    artifact = seal_in_place(target, Manifest("words/dataset", "words", identity, [], {"host": "here"}))

    assert files_in(target).keys() - before.keys() == {"manifest.json"}
    assert artifact.manifest.provenance == {"host": "here", "builder": 1}
    assert is_whole(target)


def test_a_crash_while_a_replaced_folder_was_removed_is_cleaned_up(target: Path) -> None:
    build(target)
    half_removed = target.with_name(".words.building.7")
    (half_removed / "parts").mkdir(parents=True)
    (half_removed / "parts" / "a.txt").write_text("UN\n")

    build(target, {"second": "plan"})

    assert names_beside(target) == [".words.lock", "words"]


def test_an_artifact_is_back_after_a_crash_between_the_two_renames_of_its_replacement(target: Path) -> None:
    artifact = build(target)
    target.rename(leftover_path(target, "old", 7))

    recover(target)

    assert is_whole(target) and open_artifact(target, artifact.manifest.digest)
    assert names_beside(target) == [".words.lock", "words"]

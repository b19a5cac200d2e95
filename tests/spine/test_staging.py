"""Staging folders keep finished shards after a crash, for the owner of the lock."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from forgery import flip, overwrite
from word_artifact import ENGLISH, Words, build_words, stumble_over_five, words_in, write_words
from word_building import PLAN, build, files_in, list_siblings, write_shard

from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.opening import open_staging_dir
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import OutputFile, Receipt, StagingView, staging_folders, total_counts
from pipeline_assets.spine.temporary_names import temporary_path

# Receipts of a shard


def test_receipt_is_read_as_written_but_not_if_truncated_or_changed() -> None:
    notes = {"first": "ö", "sizes": [1, 2]}
    receipt = Receipt([OutputFile("a.bin", 1, 2, "aa", "bb")], {"documents": 1}, notes, {"/in.zst": "cc"})
    written = receipt.to_bytes()

    assert Receipt.from_bytes(written) == receipt
    assert [end for end in range(len(written)) if Receipt.from_bytes(written[:end]) is not None] == []
    for bit in range(8 * len(written)):
        flipped = bytearray(written)
        flipped[bit // 8] ^= 1 << bit % 8
        assert Receipt.from_bytes(bytes(flipped)) is None


def test_counts_of_receipts_add_up_by_name() -> None:
    receipts = [Receipt([], {"tokens": 5, "documents": 1}), Receipt([], {"documents": 2}), Receipt([], {})]

    totals = total_counts(receipts)

    assert list(totals.items()) == [("documents", 3), ("tokens", 5)]


# Adoption of shards from earlier staging folders


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("parts/a.txt", flip),
        (".work/a.lengths", flip),
        (".receipts/write/a.json", flip),
        (".receipts/write/a.json", lambda path: path.write_bytes(path.with_name("b.json").read_bytes())),
        ("parts/a.txt", replace_by_link),
        ("parts/a.txt", Path.unlink),
        ("parts/a.txt", lambda path: path.write_text("ON")),
    ],
    ids=["bit of a part", "bit of a working file", "bit of the receipt", "another receipt", "link", "missing", "torn"],
)
def test_changed_shard_is_not_adopted_but_removed(target: Path, name: str, spoil: Callable[[Path], object]) -> None:
    with open_staging_dir(target, PLAN) as building:
        write_shard(building, 0)
        kept = write_shard(building, 1)
        spoil(building.path(name))

    with open_staging_dir(target, PLAN) as resumed:
        assert resumed.read_receipt("write", "a") is None
        assert resumed.read_receipt("write", "b") == kept
        assert {"parts/a.txt", ".work/a.lengths"}.isdisjoint(files_in(resumed.folder))


def test_no_shard_of_another_stage_is_adopted_after_a_changed_work_file(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        write_shard(building, 0)
        kept = write_shard(building, 1)
        building.commit("read", "all", Receipt([building.write("all.txt", b"made of a.lengths")], {}))
        flip(building.path(".work/a.lengths"))

    with open_staging_dir(target, PLAN) as resumed:
        assert [resumed.read_receipt("write", name) for name in ("a", "b")] == [None, kept]
        assert resumed.read_receipt("read", "all") is None
        assert "all.txt" not in files_in(resumed.folder)


@pytest.mark.parametrize("is_stumbling", [False, True], ids=["unseen", "seen as an error of the program"])
def test_work_file_changed_during_a_build_is_named_and_a_rerun_succeeds(tmp_path: Path, is_stumbling: bool) -> None:
    def flip_another(shard: Words, window: Window, folder: StagingView) -> Receipt:
        if shard.name == "c":
            flip(folder.path(".work/a.lengths"))
            if is_stumbling:
                raise KeyError("lengths")
        return write_words(shard, window, folder)

    with pytest.raises(RetryableError) as changed:
        build_words(tmp_path, "english", flip_another)
    remaining = os.listdir(tmp_path)
    built = build_words(tmp_path, "english")

    work = tmp_path / ".words.building.1" / ".work" / "a.lengths"
    assert str(changed.value) == f"{work}: the work file changed since it was written; run the same command again"
    assert remaining == [".words.lock"]
    assert words_in(built.folder) == ["ONE", "TWO", "THREE", "FOUR", "FIVE", "SIX"]


def test_program_error_is_raised_if_all_work_files_are_intact(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="five"):
        build_words(tmp_path, "english", stumble_over_five)


def test_receipt_of_a_file_outside_the_folder_is_not_adopted(target: Path, tmp_path: Path) -> None:
    external_file = tmp_path / "outside"
    external_file.write_bytes(b"kept")
    sha256 = hashlib.sha256(b"kept").hexdigest()
    with open_staging_dir(target, PLAN) as building:
        building.commit("write", "a", Receipt([OutputFile("../outside", 1, 4, sha256, sha256)], {"documents": 1}))

    with open_staging_dir(target, PLAN) as resumed:
        assert resumed.read_receipt("write", "a") is None
    assert external_file.read_bytes() == b"kept"


@pytest.mark.parametrize(("flipped", "is_adopted"), [(0, True), (4, False), (7, False), (8, True)])
def test_range_of_a_shared_file_is_adopted_by_its_hash(target: Path, flipped: int, is_adopted: bool) -> None:
    sha256 = hashlib.sha256(b"bbbb").hexdigest()
    with open_staging_dir(target, PLAN) as building:
        building.path("shared").write_bytes(b"aaaabbbbcccc")
        building.commit("rows", "b", Receipt([OutputFile("shared", 1, 4, sha256, sha256, start=4)], {}))
        data = bytearray(b"aaaabbbbcccc")
        data[flipped] ^= 1
        building.path("shared").write_bytes(data)

    with open_staging_dir(target, PLAN) as resumed:
        assert (resumed.read_receipt("rows", "b") is not None) == is_adopted


def test_finished_shards_are_adopted_under_a_higher_number_after_a_crash(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        receipt = write_shard(building, 0)
        inode = building.path("parts/a.txt").stat().st_ino

    with open_staging_dir(target, PLAN) as resumed:
        assert resumed.folder == target.with_name(".words.building.2")
        assert resumed.read_receipt("write", "a") == receipt
        assert resumed.path("parts/a.txt").stat().st_ino == inode
        assert staging_folders(target) == [resumed.folder]


def test_another_plan_adopts_nothing(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        write_shard(building, 0)

    with open_staging_dir(target, {"recipe": {"language": "french"}}) as other:
        assert other.read_receipt("write", "a") is None
        assert list(files_in(other.folder)) == [".plan.json"]
        assert staging_folders(target) == [other.folder]


def test_plan_with_reordered_keys_is_the_same_plan(target: Path) -> None:
    with open_staging_dir(target, {"recipe": "r", "inputs": [{"a": 1, "b": 2}]}) as building:
        write_shard(building, 0)

    with open_staging_dir(target, {"inputs": [{"b": 2, "a": 1}], "recipe": "r"}) as resumed:
        assert resumed.read_receipt("write", "a") is not None


def test_files_without_a_receipt_are_removed(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        write_shard(building, 0)
        write_words(ENGLISH[1], WHOLE_SHARD, building)
        temporary_path(building.path("parts/c.txt")).write_text("torn")
        building.path(".work/probe/x").write_text("")
        temporary_path(building.path(".receipts/write/c.json")).write_text("torn")
        temporary_path(building.path("manifest.json")).write_text("torn")

    with open_staging_dir(target, PLAN) as resumed:
        assert sorted(files_in(resumed.folder)) == [
            ".plan.json",
            ".receipts/write/a.json",
            ".work/a.lengths",
            "parts/a.txt",
        ]


def test_newest_staging_folder_of_the_same_plan_is_adopted(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        write_shard(building, 0)
    for number, plan in ((2, PLAN), (3, {"another": "plan"})):
        folder = target.with_name(f".words.building.{number}")
        (folder / ".receipts").mkdir(parents=True)
        (folder / ".plan.json").write_bytes(json.dumps(plan, sort_keys=True).encode())

    with open_staging_dir(target, PLAN) as resumed:
        assert resumed.folder.name == ".words.building.4"
        assert resumed.read_receipt("write", "a") is None
        assert staging_folders(target) == [resumed.folder]


def test_staging_folders_of_targets_with_a_longer_name_are_kept(target: Path) -> None:
    with open_staging_dir(target.with_name("words.building"), PLAN), open_staging_dir(target, PLAN):
        names = [".words.building.1", ".words.building.building.1"]

        assert [name for name in list_siblings(target) if not name.endswith(".lock")] == names


def test_second_builder_is_refused_and_changes_nothing(target: Path) -> None:
    with open_staging_dir(target, PLAN) as building:
        write_shard(building, 0)
        with (
            pytest.raises(InputError, match=f"process {os.getpid()} on .* is building this"),
            open_staging_dir(target, {}),
        ):
            pass

        assert building.read_receipt("write", "a") is not None
        assert staging_folders(target) == [building.folder]


def test_failure_after_a_lost_lock_is_reported_as_a_lost_lock(target: Path) -> None:
    with pytest.raises(InputError, match="this builder lost its lock"), open_staging_dir(target, PLAN) as first:
        first.lock.path.unlink()
        with open_staging_dir(target, PLAN):
            pass

        (first.folder / "parts.txt").write_text("the folder has another name by now")


@pytest.mark.parametrize("number", ["²", "٣", "1½", "x", ""])
def test_folder_whose_name_has_no_staging_number_is_kept(target: Path, number: str) -> None:
    other = target.with_name(f".words.building.{number}")
    other.mkdir(parents=True)

    with open_staging_dir(target, PLAN) as building:
        assert staging_folders(target) == [building.folder]

    assert other.is_dir()


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_plan_that_is_not_a_plain_file_is_another_plan(target: Path, make: Callable[[Path], object]) -> None:
    with open_staging_dir(target, PLAN) as building:
        write_shard(building, 0)
        (building.folder / ".plan.json").unlink()
        make(building.folder / ".plan.json")

    with open_staging_dir(target, PLAN) as resumed:
        assert resumed.read_receipt("write", "a") is None


def test_sealed_manifest_without_a_builder_has_no_number(target: Path) -> None:
    manifest = build(target).folder / "manifest.json"
    value = json.loads(manifest.read_bytes())
    del value["provenance"]["builder"]
    overwrite(manifest, json.dumps(value).encode())

    with open_staging_dir(target, PLAN) as building:
        assert building.lock.fence == 2

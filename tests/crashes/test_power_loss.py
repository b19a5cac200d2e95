"""The power fails before any step: whatever of what was not synced is lost, the next run ends as an undisturbed one.

`power_loss` says what a disk may hold then. Seeded states of most cases run always, more of each
under `slow`, all of them under `proof`.
"""

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_cases import CASES, INLINE, Case, Sources
from crash_points import steps_of
from crash_proof import Proof
from power_loss import Disk, Tree, followed, write_tree
from word_artifact import build_words, refuse_five

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.temporary_names import is_temporary

ALONE = [case for case in CASES if case.engine is INLINE]
LARGE = {f"stage A: {step}" for step in ("deduplicated", "signatures", "decontaminated", "packed", "report")}
SMALL = [case for case in ALONE if case.name not in LARGE]
SNAPSHOT = next(case for case in ALONE if case.name == "snapshot without links")


# What a disk may hold


def states_of(folder: Path, work: Callable[[], object]) -> dict[str, Tree]:
    """After the work, by what is bad about them."""
    with followed(folder, lambda disk: None) as disk:
        work()
    return disk.after_power_loss("seed")


def test_what_is_there_at_first_and_what_is_synced_is_left(tmp_path: Path) -> None:
    (tmp_path / "before").write_text("before")

    states = states_of(tmp_path, lambda: durable.write_durably(tmp_path / "file", b"synced"))

    assert all(state == {"before": b"before", "file": b"synced"} for state in states.values())


def test_of_a_file_that_is_not_synced_the_name_or_the_bytes_or_both_are_lost(tmp_path: Path) -> None:
    states = states_of(tmp_path, lambda: (tmp_path / "file").write_bytes(b"lost"))

    assert states["nothing unsynced is left"] == {}
    assert states["names are left, their bytes are zero"] == {"file": b"\0\0\0\0"}
    assert states["the last change came first"] == {"file": b"lo"}


def test_a_rename_whose_folder_is_not_synced_is_done_or_undone(tmp_path: Path) -> None:
    durable.write_durably(tmp_path / "new", b"new")
    durable.write_durably(tmp_path / "old", b"old")

    states = states_of(tmp_path, lambda: (tmp_path / "new").rename(tmp_path / "old"))

    assert states["nothing unsynced is left"] == {"new": b"new", "old": b"old"}
    assert states["the last change came first"] == {"old": b"new"}


def test_a_folder_whose_parent_is_not_synced_takes_all_with_it(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "folder").mkdir()
        durable.write_durably(tmp_path / "folder" / "file", b"synced")

    states = states_of(tmp_path, work)

    assert states["nothing unsynced is left"] == {}
    assert states["names are left, their bytes are zero"] == {"folder": {"file": b"synced"}}


def test_a_state_is_written_as_files(tmp_path: Path) -> None:
    write_tree({"folder": {"file": b"bytes"}, "empty": {}}, tmp_path / "disk")

    assert (tmp_path / "disk/folder/file").read_bytes() == b"bytes"
    assert list((tmp_path / "disk/empty").iterdir()) == []


# What is made of it


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_after_seeded_power_losses_it_goes_on_to_the_same_files(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(case.name)
    losses = proof.power_losses(proof.some_start(dice))

    assert [proof.after(loss) for loss in dice.sample(losses, 2)] == [[], []]


def test_after_any_power_loss_during_a_download_it_goes_on_to_the_same_files(sources: Sources, scratch: Path) -> None:
    [case] = [case for case in ALONE if case.name == "fetch"]
    proof = Proof(case, sources, scratch / "case")
    [start] = proof.starts()

    assert [wrong for loss in proof.power_losses(start) if (wrong := proof.after(loss))] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", ALONE, ids=str)
def test_after_more_seeded_power_losses_it_does_too(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(f"more of {case.name}")
    losses = proof.power_losses(proof.some_start(dice))

    assert [proof.after(loss) for loss in dice.sample(losses, min(8, len(losses)))] == [[]] * min(8, len(losses))


@pytest.mark.proof
@pytest.mark.parametrize("case", ALONE, ids=str)
def test_after_any_power_loss_it_goes_on_to_the_same_files(case: Case, sources: Sources, scratch: Path) -> None:
    proof = Proof(case, sources, scratch / "case")

    wrong = {
        loss.badness: found
        for start in proof.starts()
        for loss in proof.power_losses(start)
        if (found := proof.after(loss))
    }

    assert wrong == {}


def sync_only_folders(disk: Disk, descriptor: int, sync: Callable[[Disk, int], None] = Disk.sync) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        sync(disk, descriptor)


LEFT_OUT = {
    "of files": (Disk, "sync", sync_only_folders),
    "of folders": (durable, "fsync_folder", lambda folder: None),
    "of new folders": (durable, "make_folder", lambda folder: folder.mkdir(parents=True, exist_ok=True)),
    "of copies": (durable, "link", lambda source, target: target.write_bytes(source.read_bytes())),
}


@pytest.mark.slow
@pytest.mark.parametrize("left_out", LEFT_OUT)
def test_syncs_left_out_are_found(
    left_out: str, sources: Sources, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*LEFT_OUT[left_out])
    proof = Proof(SNAPSHOT, sources, scratch / "case")

    assert any(proof.after(loss) for loss in proof.power_losses(scratch / "case" / "start"))


def test_a_finished_shard_outlives_the_power(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    with followed(root, lambda disk: None) as disk, pytest.raises(InputError, match="five is not a word"):
        build_words(root, "english", refuse_five)
    write_tree(disk.after_power_loss("seed")["nothing unsynced is left"], tmp_path / "after")

    steps = steps_of(lambda: build_words(tmp_path / "after", "english"))

    written = {path.name.split(".")[1] for kind, path in steps if kind == "write" and is_temporary(path.name)}
    assert written >= {"b", "c"}
    assert not any(path.name.startswith(".a.txt.") for _, path in steps)

"""Power losses before any step: the next run ends as an undisturbed one.

`power_loss` describes the possible states of a disk. Seeded states of small cases run always, more of all cases under
`slow`, all of them under `proof`.
"""

import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from crash_cases import CASES, INLINE, SMALL_NAMES, Case, Sources
from crash_points import list_steps
from crash_proof import Proof
from power_loss import Disk, Tree, followed, write_tree
from word_artifact import build_words, refuse_five

from pipeline_assets.spine import durable
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.temporary_names import is_temporary

ALONE = [case for case in CASES if case.engine is INLINE]
SMALL = [case for case in ALONE if case.name.startswith(SMALL_NAMES)]
SNAPSHOT = next(case for case in ALONE if case.name == "snapshot without links")


# Possible states of a disk


def list_states(folder: Path, work: Callable[[], object]) -> dict[str, Tree]:
    """List the states after a power loss at the end of the work, by their badness."""
    with followed(folder, lambda disk: None) as disk:
        work()
    return disk.after_power_loss("seed")


def test_initial_and_synced_files_survive(tmp_path: Path) -> None:
    (tmp_path / "before").write_text("before")

    states = list_states(tmp_path, lambda: durable.write_durably(tmp_path / "file", b"synced"))

    assert all(state == {"before": b"before", "file": b"synced"} for state in states.values())


def test_an_unsynced_file_may_lose_its_name_or_bytes(tmp_path: Path) -> None:
    states = list_states(tmp_path, lambda: (tmp_path / "file").write_bytes(b"lost"))

    assert states["nothing unsynced is left"] == {}
    assert states["names are left, their bytes are zero"] == {"file": b"\0\0\0\0"}
    assert states["the last change came first"] == {"file": b"lo"}


def test_a_rename_in_an_unsynced_folder_is_done_or_undone(tmp_path: Path) -> None:
    durable.write_durably(tmp_path / "new", b"new")
    durable.write_durably(tmp_path / "old", b"old")

    states = list_states(tmp_path, lambda: (tmp_path / "new").rename(tmp_path / "old"))

    assert states["nothing unsynced is left"] == {"new": b"new", "old": b"old"}
    assert states["the last change came first"] == {"old": b"new"}


def test_a_folder_in_an_unsynced_parent_may_be_lost_with_its_files(tmp_path: Path) -> None:
    def work() -> None:
        (tmp_path / "folder").mkdir()
        durable.write_durably(tmp_path / "folder" / "file", b"synced")

    states = list_states(tmp_path, work)

    assert states["nothing unsynced is left"] == {}
    assert states["names are left, their bytes are zero"] == {"folder": {"file": b"synced"}}


def test_a_state_is_written_as_files(tmp_path: Path) -> None:
    write_tree({"folder": {"file": b"bytes"}, "empty": {}}, tmp_path / "disk")

    assert (tmp_path / "disk/folder/file").read_bytes() == b"bytes"
    assert list((tmp_path / "disk/empty").iterdir()) == []


# Resumed runs


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_runs_resume_to_the_same_files_after_seeded_power_losses(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(case.name)
    losses = proof.power_losses(proof.some_start(dice))

    assert [proof.after(loss) for loss in dice.sample(losses, 2)] == [[], []]


def test_downloads_resume_to_the_same_files_after_any_power_loss(sources: Sources, scratch: Path) -> None:
    [case] = [case for case in ALONE if case.name == "fetch"]
    proof = Proof(case, sources, scratch / "case")
    [start] = proof.starts()

    assert [differences for loss in proof.power_losses(start) if (differences := proof.after(loss))] == []


@pytest.mark.slow
@pytest.mark.parametrize("case", ALONE, ids=str)
def test_runs_resume_equally_after_more_seeded_power_losses(case: Case, sources: Sources, scratch: Path) -> None:
    proof, dice = Proof(case, sources, scratch / "case"), random.Random(f"more of {case.name}")
    losses = proof.power_losses(proof.some_start(dice))

    assert [proof.after(loss) for loss in dice.sample(losses, min(8, len(losses)))] == [[]] * min(8, len(losses))


@pytest.mark.proof
@pytest.mark.parametrize("case", ALONE, ids=str)
def test_runs_resume_to_the_same_files_after_any_power_loss(case: Case, sources: Sources, scratch: Path) -> None:
    proof = Proof(case, sources, scratch / "case")

    wrong = {
        loss.badness: differences
        for start in proof.starts()
        for loss in proof.power_losses(start)
        if (differences := proof.after(loss))
    }

    assert wrong == {}


def sync_only_folders(disk: Disk, descriptor: int, sync: Callable[[Disk, int], None] = Disk.sync) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        sync(disk, descriptor)


OMITTED_SYNCS = {
    "of files": (Disk, "sync", sync_only_folders),
    "of folders": (durable, "fsync_folder", lambda folder: None),
    "of new folders": (durable, "make_folder", lambda folder: folder.mkdir(parents=True, exist_ok=True)),
    "of copies": (durable, "link", lambda source, target: target.write_bytes(source.read_bytes())),
}


@pytest.mark.slow
@pytest.mark.parametrize("omitted", OMITTED_SYNCS)
def test_omitted_syncs_are_detected(
    omitted: str, sources: Sources, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*OMITTED_SYNCS[omitted])
    proof = Proof(SNAPSHOT, sources, scratch / "case")

    assert any(proof.after(loss) for loss in proof.power_losses(scratch / "case" / "start"))


def test_a_finished_shard_survives_a_power_loss(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    with followed(root, lambda disk: None) as disk, pytest.raises(InputError, match="five is not a word"):
        build_words(root, "english", refuse_five)
    write_tree(disk.after_power_loss("seed")["nothing unsynced is left"], tmp_path / "after")

    steps = list_steps(lambda: build_words(tmp_path / "after", "english"))

    written = {path.name.split(".")[1] for kind, path in steps if kind == "write" and is_temporary(path.name)}
    assert written >= {"b", "c"}
    assert not any(path.name.startswith(".a.txt.") for _, path in steps)

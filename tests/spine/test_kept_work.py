"""Kept work: tasks that a build keeps for the next version of its artifact."""

from pathlib import Path

from pipeline_assets.spine.kept_folder import kept_folder
from pipeline_assets.spine.kept_work import KeptWork
from pipeline_assets.spine.staging import WORK_FOLDER, Receipt, StagingDir, StagingView


def test_kept_task_is_reused_with_its_files_and_notes(building: StagingDir, tmp_path: Path) -> None:
    files = [building.write(f"{WORK_FOLDER}/ids/a", b"one two"), building.write("parts/a.txt", b"ONE TWO")]
    building.write(f"{WORK_FOLDER}/pairs/a", b"of no kept task")
    receipt = Receipt(files, {"words": 2}, {"squares": 2**90, "places": [1, None]})
    kept = KeptWork()
    kept.add("write", "a", "digest", receipt)
    kept.write(building)
    (building.folder / WORK_FOLDER).rename(kept_folder(building.target))  # as the seal does
    building.folder.rename(building.target)

    next_build = StagingView(tmp_path / "next")
    next_build.folder.mkdir()
    earlier = KeptWork(building.target)

    assert earlier.reuse("write", "a", "another digest", next_build) is None
    assert earlier.reuse("write", "b", "digest", next_build) is None
    assert earlier.reuse("write", "a", "digest", next_build) == receipt
    assert [next_build.path(file.path).read_bytes() for file in files] == [b"one two", b"ONE TWO"]
    assert not (kept_folder(building.target) / "pairs" / "a").exists()

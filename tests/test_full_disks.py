"""Builds on a disk that is full several times.

One line names the file, and later runs give the same digests.
"""

import shutil
import subprocess
from pathlib import Path

import pytest
from command_results import Corpusmill, only_line
from mounts import mounted

from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.manifest import MANIFEST_FILE

OFFLINE = {"HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_HUB_TRIES": "1"}


def digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): open_artifact(path.parent).manifest.digest
        for path in sorted(folder.rglob(MANIFEST_FILE))
    }


@pytest.mark.slow
def test_stage_2_on_disks_that_grow_ends_with_the_same_digests(corpusmill: Corpusmill, tmp_path: Path) -> None:
    demo = corpusmill("demo", "--data", tmp_path / "demo", "--only", "stage2")
    assert demo.returncode == 0, demo.stderr
    failures = 0
    with mounted(tmp_path / "disk", "size=1000k") as disk:
        for name in ("recipes", "hub_cache"):
            shutil.copytree(tmp_path / "demo" / name, disk / name)
        for size_kib in (1000, 1500, 2000, 3000, 8000):
            subprocess.run(["mount", "-o", f"remount,size={size_kib}k", disk], check=True)
            result = corpusmill("run", "mixture_made", "--data", disk, "--workers", "0", env=OFFLINE)
            if result.returncode == 0:
                break
            failures += 1
            assert result.returncode == 1
            line = only_line(result)
            assert line.startswith(f"{disk}/")
            assert "no space is left on the disk" in line
            assert line.endswith(f"; the data root is {disk}")

        assert result.returncode == 0, result.stderr
        assert failures >= 2
        assert digests(disk / "stage2") == digests(tmp_path / "demo" / "stage2")

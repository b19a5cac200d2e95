"""Exports copy one sealed folder completely or not at all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_assets.build.rows.export import ExportFormat, export
from pipeline_assets.build.rows.row_stores import open_rows
from pipeline_assets.build.rows.text_export import write_txt
from pipeline_assets.spine import durable
from pipeline_assets.spine.artifact import open_artifact
from pipeline_assets.spine.durable import Operation
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError
from pipeline_assets.spine.folder_exchange import exchange
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.spine.temporary_names import temporary_path
from pipeline_assets.systems.registry import SYSTEMS


def find_corpus(root: Path) -> Path:
    return next(path.parent for path in sorted(root.rglob("manifest.json")) if (path.parent / "shards").is_dir())


def test_a_folder_replaced_midway_is_not_copied(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = find_corpus(root)
    other = shutil.copytree(folder, tmp_path / "other")
    target = tmp_path / "exports" / "copy"
    store = open_rows(folder, SYSTEMS.kinds, Lineage(root))

    def replace_once(kind: Operation, path: Path) -> None:
        if kind == "create":
            monkeypatch.setattr(durable, "failpoint", None)
            exchange(other, folder)

    monkeypatch.setattr(durable, "failpoint", replace_once)

    with pytest.raises(RetryableError, match="the folder was replaced while it was read"):
        export(store, "jsonl", target, 3)

    assert os.listdir(target.parent) == []


def test_a_folder_replaced_before_an_export_is_not_copied(root: Path, tmp_path: Path) -> None:
    folder = find_corpus(root)
    other = next(path.parent for path in root.rglob("manifest.json") if path.parent != folder)
    store = open_rows(folder, SYSTEMS.kinds, Lineage(root))
    exchange(other, folder)

    with pytest.raises(
        InputError, match=f"{folder}: digest is sha256:.*; the artifact was replaced; run the same command again"
    ):
        export(store, "jsonl", tmp_path / "copy", 3)

    assert not [path for path in tmp_path.iterdir() if "copy" in path.name]


@pytest.mark.parametrize(("to", "shard"), [("jsonl", "00000.jsonl.zst"), ("hf", "data/train-00000-of-")])
def test_a_copy_has_a_card_and_its_artifacts_manifest(root: Path, tmp_path: Path, to: ExportFormat, shard: str) -> None:
    folder, out = find_corpus(root), tmp_path / "copy"

    export(open_rows(folder, SYSTEMS.kinds, Lineage(root)), to, out, 3)

    names = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert {"README.md", "manifest.json"} < set(names)
    assert any(name.startswith(shard) for name in names)
    assert (out / "manifest.json").read_bytes() == (folder / "manifest.json").read_bytes()


def test_an_export_removes_leftovers_of_a_killed_export(root: Path, tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    out = tmp_path / "exports" / "copy"
    leftover = temporary_path(out)
    leftover = leftover.with_name(leftover.name.replace(f".{os.getpid()}.", f".{killed.pid}."))
    (leftover / "data").mkdir(parents=True)

    export(open_rows(find_corpus(root), SYSTEMS.kinds, Lineage(root)), "jsonl", out, 3)

    assert os.listdir(out.parent) == ["copy"]


def test_a_folder_as_the_output_file_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="output file is a folder; name a file"):
        write_txt(open_artifact(find_corpus(root)), tmp_path)

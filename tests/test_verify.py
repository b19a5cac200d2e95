"""`corpusmill verify`: chains, samples, interruption and source files."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command_results import Corpusmill, Result, refused
from forgery import flip
from stage_a_build import build, notes_recipe, step
from stage_a_sources import write_notes

from pipeline_assets.build.pins.files_check import CHANGED_FIX

PROJECT = Path(__file__).parents[1]
SET = Path("megatron", "healing_text_v1")
TRAIN = SET / "train"
FILTERED = step(Path(), "filtered", "notes")
# A program that stops the command while it reads.
STOPPED = """
import os, signal
from pipeline_assets.trust import verify
verify.read_and_check = lambda found: os.kill(os.getpid(), signal.SIGINT)
from pipeline_assets.cli import main
main()
"""


def test_a_chain_is_verified_up_to_the_hub(corpusmill: Corpusmill, demo_root: Path) -> None:
    result = corpusmill("verify", demo_root / SET, "--upstream")
    report = json.loads(corpusmill("verify", demo_root / SET, "--upstream", "--json").stdout)

    lines = result.stdout.splitlines()
    assert (result.returncode, result.stderr) == (0, "")
    kinds = ("megatron_dataset", "megatron_split", "megatron_split", "healing_text_manifest", "fineweb_edu_snapshot")
    assert [line.split()[:2] for line in lines[:5]] == [["intact", f"healing/{kind}"] for kind in kinds]
    assert lines[5].startswith("hub cache: 4 of 8 input files complete, 4 in part (")
    assert lines[5].endswith(" bytes, all hashed), 0 missing")
    assert lines[6].startswith("intact: 16 of 16 files match their manifests, ")
    assert lines[7] == json.loads((demo_root / SET / "manifest.json").read_text())["digest"]
    assert (report["schema"], report["verdict"]) == ("corpusmill/verification/1", "intact")
    assert (report["files"], report["files_as_sealed"], report["findings"]) == (16, 16, [])
    assert report["program"].keys() == {"corpusmill", "host", "platform", "python", "libraries", "git_sha"}


def test_a_moved_split_has_its_upstream_in_an_explicit_data_root(
    corpusmill: Corpusmill, demo_root: Path, tmp_path: Path
) -> None:
    moved = tmp_path / "train"
    shutil.copytree(demo_root / TRAIN, moved)

    without = corpusmill("verify", moved, "--upstream")
    explicit = corpusmill("verify", moved, "--upstream", "--data", demo_root)

    reason = "the folder is not inside a data root; pass the data root of its inputs with --data"
    assert refused(without) == f"{moved}: {reason}"
    assert explicit.returncode == 0
    assert "intact: 12 of 12 files match their manifests, " in explicit.stdout


def test_any_damage_in_the_chain_is_reported_with_its_path(corpusmill: Corpusmill, demo_root: Path, root: Path) -> None:
    shutil.copytree(demo_root / "hub_cache", root / "hub_cache")
    shard = next(root.glob("corpora/fineweb_edu/*/shards/00002.jsonl.zst"))
    cached = sorted(root.glob("hub_cache/*/bytes/*/*"))[0]
    for path in (shard, cached, root / TRAIN / "manifest.json"):
        flip(path)
    shutil.rmtree(root / "selections" / "healing_text_v1")

    result = corpusmill("verify", root / SET, "--upstream")
    rest = corpusmill("verify", shard.parents[1], "--upstream")

    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{root / TRAIN}/manifest.json: ")
    assert lines[1].startswith(f"{root / SET}: input healing/healing_text_manifest sha256:")
    assert lines[-2].startswith("DAMAGED: ")
    # Only the missing selection names its snapshot.
    assert "fineweb_edu_snapshot" not in result.stdout
    assert (result.returncode, rest.returncode) == (1, 1)
    assert f"{shard}: sha256 is " in rest.stdout
    assert "; delete it; it is fetched again when needed" in rest.stdout


def test_missing_upstream_artifacts_are_incomplete_and_not_damaged(corpusmill: Corpusmill, root: Path) -> None:
    shutil.rmtree(next(root.glob("corpora/fineweb_edu/[!.]*")))

    result = corpusmill("verify", root / SET, "--upstream")

    lines = result.stdout.splitlines()
    assert result.returncode == 1
    assert lines[0].startswith(f"{root}/selections/healing_text_v1: input healing/fineweb_edu_snapshot sha256:")
    areas = "corpora, selections, megatron, stage_a, nemotron, stage2, parallel_text"
    assert lines[0].endswith(f" not found below {areas} of {root}")
    assert [line.split()[0] for line in lines[1:5]] == ["intact"] * 4
    assert lines[-2].startswith("INCOMPLETE: 8 of 8 files match their manifests, ")
    assert lines[-2].endswith("; 1 upstream artifact is missing, with its inputs")


def test_a_sample_reports_its_size(corpusmill: Corpusmill, demo_root: Path) -> None:
    result = corpusmill("verify", demo_root / TRAIN, "--upstream", "--sample", "20%")
    again = corpusmill("verify", demo_root / TRAIN, "--upstream", "--sample", "0.2")
    other = corpusmill("verify", demo_root / TRAIN, "--upstream", "--sample", "20%", "--seed", "spring")

    lines = result.stdout.splitlines()
    assert result.returncode == 0
    assert again.stdout == result.stdout != other.stdout
    [unread_line] = [line for line in lines if line.startswith("not read: ")]
    [unread, total] = re.findall(r"(\d+) of (\d+) files of the artifacts, ", unread_line)[0]
    assert f"): {int(total) - int(unread)} of {total} files match their manifests, " in lines[-2]
    assert re.search(r"; \d+ of \d+ parts of files in the hub cache, [\d,]+ bytes; --json lists them$", unread_line)
    assert lines[-2].startswith("intact of a sample (")
    assert not any(line.startswith("intact:") for line in lines)


def test_ctrl_c_prints_the_command_to_continue(demo_root: Path) -> None:
    args = [str(demo_root / SET), "--upstream", "--sample", "60%", "--seed", "in spring"]

    command = [sys.executable, "-c", STOPPED, "verify", *args]
    result = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True)

    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == (
        f"stopped\nto continue: corpusmill verify {demo_root / SET} --upstream --sample 60% --seed 'in spring'\n"
    )


# Artifacts derived from local files, which are also hashed again if they exist.


def read_summary(result: Result, prefix: str) -> str:
    [line] = [line for line in result.stdout.splitlines() if line.startswith(prefix)]
    return line.removeprefix(prefix)


def test_a_chain_of_hub_and_local_sources_is_verified(corpusmill: Corpusmill, stage_a_root: Path) -> None:
    result = corpusmill("verify", stage_a_root / "stage_a" / "mixed" / "report" / "mixed", "--upstream")

    assert (result.returncode, result.stderr) == (0, "")
    assert read_summary(result, "hub cache: ").startswith("2 of 2 input files complete, 0 in part (")
    sources = [path for path in (stage_a_root / "sources").rglob("*") if path.is_file() and path.parent.name != "quiz"]
    summary = read_summary(result, "source files: ")
    assert summary.startswith(f"{len(sources)} of {len(sources)} input files unchanged (")
    assert summary.endswith(" bytes, all hashed), 0 changed, 0 missing")
    manifests = [json.loads(path.read_text()) for path in (stage_a_root / "stage_a").rglob("manifest.json")]
    files = sum(len(manifest["storage"]) for manifest in manifests)
    assert f"intact: {files} of {files} files match their manifests, " in result.stdout


@pytest.mark.parametrize(
    ("change", "summary"),
    [
        (
            lambda folder: (folder / "1.jsonl").touch(),
            "2 of 2 input files unchanged ({size:,} bytes, all hashed), 0 changed, 0 missing",
        ),
        (
            shutil.rmtree,
            "0 of 2 input files unchanged (0 bytes, all hashed), 0 changed, 2 missing; folder not found: {folder}",
        ),
    ],
    ids=["touched", "gone"],
)
def test_unchanged_and_missing_sources_are_reported_without_failure(
    corpusmill: Corpusmill, notes_root: Path, change: Callable[[Path], object], summary: str
) -> None:
    folder = notes_root / "sources" / "notes"
    size = sum(path.stat().st_size for path in folder.iterdir())
    change(folder)

    result = corpusmill("verify", notes_root / FILTERED, "--upstream")

    assert result.returncode == 0 and "hub cache" not in result.stdout
    assert read_summary(result, "source files: ") == summary.format(size=size, folder=folder)
    assert "\nintact: 13 of 13 files match their manifests, " in result.stdout
    assert "source files" not in corpusmill("verify", notes_root / FILTERED).stdout


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (flip, "sha256 is {sha256}, the manifest lists "),
        (Path.unlink, "file not found"),
        (grow, "has {grown:,} bytes, the manifest lists {size:,}"),
    ],
    ids=["other bytes", "gone", "grown"],
)
def test_a_changed_source_file_is_named_and_its_artifacts_are_intact(
    corpusmill: Corpusmill, notes_root: Path, change: Callable[[Path], object], message: str
) -> None:
    path = notes_root / "sources" / "notes" / "1.jsonl"
    size = path.stat().st_size
    change(path)

    result = corpusmill("verify", notes_root / FILTERED, "--upstream")
    report = json.loads(corpusmill("verify", notes_root / FILTERED, "--upstream", "--json").stdout)

    sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
    lines = result.stdout.splitlines()
    assert (result.returncode, report["verdict"]) == (1, "source changed")
    assert lines[0].startswith(f"{path}: {message.format(sha256=sha256, size=size, grown=size + 1)}")
    assert lines[0].endswith(f"; {CHANGED_FIX}")
    assert [line.split()[0] for line in lines[1:4]] == ["intact"] * 3
    assert read_summary(result, "source files: ").endswith(" bytes, all hashed), 1 changed, 0 missing")
    assert lines[-2].startswith("SOURCE CHANGED: 13 of 13 files match their manifests, ")
    assert (report["sources"]["listed"], report["sources"]["changed"]) == (2, [str(path)])
    states = {file["path"]: file["state"] for file in report["sources"]["files"]}
    assert states[str(path.with_name("0.jsonl"))] == "as_sealed"


def test_damage_outweighs_a_changed_source(corpusmill: Corpusmill, notes_root: Path) -> None:
    flip(notes_root / "sources" / "notes" / "0.jsonl")
    flip(notes_root / FILTERED / "dropped.jsonl.zst")

    result = corpusmill("verify", notes_root / FILTERED, "--upstream")

    assert result.returncode == 1
    assert "\nDAMAGED: 12 of 13 files match their manifests, " in result.stdout


@pytest.mark.slow
def test_a_sample_includes_source_files(corpusmill: Corpusmill, notes_root: Path) -> None:
    args = ("verify", notes_root / FILTERED, "--upstream", "--sample", "60%", "--json")
    flip(notes_root / "sources" / "notes" / "0.jsonl")

    reports = [json.loads(corpusmill(*args, "--seed", seed).stdout) for seed in "abcdefgh"]

    states = {tuple(file["state"] for file in report["sources"]["files"]) for report in reports}
    assert states == {("damaged", "not_read"), ("not_read", "as_sealed")}
    assert {report["verdict"] for report in reports} == {"source changed", "intact of a sample"}


def test_a_local_file_named_like_a_hub_file_is_read_from_its_folder(corpusmill: Corpusmill, tmp_path: Path) -> None:
    folder = tmp_path / "sources" / "notes"
    write_notes(folder)
    (folder / f"maker@{'a' * 40}:0.jsonl").write_bytes((folder / "0.jsonl").read_bytes())
    (folder / "0.jsonl").unlink()
    build(notes_recipe(tmp_path), tmp_path)

    result = corpusmill("verify", tmp_path / FILTERED, "--upstream")

    assert result.returncode == 0
    assert "hub cache" not in result.stdout
    assert read_summary(result, "source files: ").startswith("2 of 2 input files unchanged (")

"""`corpusmill status` on the demo's artifacts and on variants of them."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_results import Corpusmill
from demo_variants import V1, find_snapshot, write_recipe

from pipeline_assets.build.recipe_paths import PROJECT_RECIPES_FOLDER
from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.lock import locked
from pipeline_assets.systems.registry import SYSTEMS


def test_a_current_root_exits_with_0(corpusmill: Corpusmill, demo_root: Path) -> None:
    result = corpusmill("status", "--data", demo_root)

    lines = result.stdout.splitlines()
    assert (result.returncode, result.stderr) == (0, "")
    assert lines[0] == f"healing_text_v1  {demo_root}/recipes/healing_text_v1.yaml"
    assert [line.split()[:4] for line in lines[1:]] == [
        ["current", f"corpora/fineweb_edu/{find_snapshot(demo_root).name}", "882", "documents"],
        ["current", "selections/healing_text_v1", "882", "documents"],
        ["current", "megatron/healing_text_v1/train", "572", "documents"],
        ["current", "megatron/healing_text_v1/valid", "65", "documents"],
        ["current", "megatron/healing_text_v1", "637", "documents"],
    ]
    assert len({line.index(" documents") for line in lines[1:]}) == 1


def test_an_empty_root_lists_recipes_and_missing_artifacts(corpusmill: Corpusmill, tmp_path: Path) -> None:
    result = corpusmill("status", "--data", tmp_path)
    single = corpusmill("status", "healing_text_v1", "--data", tmp_path, "--json")
    report = json.loads(corpusmill("status", "--data", tmp_path, "--json").stdout)

    assert (result.returncode, result.stderr) == (0, "")
    shipped = sorted(path.stem for path in PROJECT_RECIPES_FOLDER.glob("*.yaml"))
    assert result.stdout == (
        f"nothing is built yet of any recipe: {', '.join(shipped)}; `corpusmill status NAME` lists missing artifacts\n"
    )
    assert (report["recipes"], report["untouched"]) == ([], shipped)
    [recipe] = json.loads(single.stdout)["recipes"]
    assert single.returncode == 0
    assert [(row["state"], row["reason"]) for row in recipe["artifacts"]] == [("missing", "not built yet")] * 5
    assert list(tmp_path.iterdir()) == []


def test_a_changed_recipe_makes_its_artifacts_stale_with_the_reason(corpusmill: Corpusmill, root: Path) -> None:
    write_recipe(root, {"snapshot": {"rules": ["int_score >= 4"]}}, "healing_text_v1")

    result = corpusmill("status", "healing_text_v1", "--data", root)

    lines = [line.strip() for line in result.stdout.splitlines()]
    assert result.returncode == 1
    assert [line.split()[0] for line in lines[1::2]] == ["stale"] * 5
    assert lines[2] == "the recipe changed (`rules`: ['int_score >= 3'] → ['int_score >= 4'])"
    assert lines[4] == f"healing/fineweb_edu_snapshot fineweb_edu_{find_snapshot(root).name} is stale"


def test_a_missing_file_is_reported_as_damage(corpusmill: Corpusmill, root: Path) -> None:
    (root / V1 / "valid" / "tokens.bin").unlink()

    result = corpusmill("status", "--data", root)

    assert result.returncode == 1
    repair_command = f"corpusmill run healing_text_v1 --replace --data {root}"
    assert f"\n    {root / V1}/valid/tokens.bin: the file is missing; to repair it: {repair_command}\n" in result.stdout
    assert "  damaged  megatron/healing_text_v1/valid " in result.stdout
    assert "  stale    megatron/healing_text_v1 " in result.stdout


@pytest.mark.slow
def test_the_repair_command_rebuilds_a_snapshot_with_a_damaged_manifest(
    corpusmill: Corpusmill, root: Path, demo_hub: LoopbackHub
) -> None:
    manifest = find_snapshot(root) / "manifest.json"
    manifest.chmod(0o644)
    manifest.write_text("{")

    shown = corpusmill("status", "--data", root)
    report = json.loads(corpusmill("status", "--data", root, "--json").stdout)
    command = report["recipes"][0]["artifacts"][0]["mend"]
    repaired = corpusmill(*shlex.split(command)[1:], env={"HF_ENDPOINT": demo_hub.endpoint})

    assert command == f"corpusmill run healing_text_v1 --replace --data {root}"
    [line] = [line for line in shown.stdout.splitlines() if line.endswith(f"; to repair it: {command}")]
    assert line.startswith(f"    {manifest}: not a valid manifest: ")
    assert repaired.returncode == 0, repaired.stderr
    assert corpusmill("status", "--data", root).returncode == 0


def write_unfinished(folder: Path, shards: int = 0) -> None:
    """Write the staging folder of a stopped build with some finished shards."""
    receipts = folder / ".receipts" / "convert"
    receipts.mkdir(parents=True)
    (folder / ".plan.json").write_text("{}")
    for shard in range(shards):
        (receipts / f"0000{shard}.json").write_text("{}")


@pytest.mark.parametrize(("shards", "finished"), [(1, "1 shard"), (2, "2 shards")])
def test_a_build_without_a_builder_is_interrupted_and_resumable(
    corpusmill: Corpusmill, root: Path, shards: int, finished: str
) -> None:
    snapshot = find_snapshot(root)
    shutil.rmtree(snapshot)
    write_unfinished(snapshot.with_name(f".{snapshot.name}.building.1"), shards)

    result = corpusmill("status", "healing_text_v1", "--data", root)

    lines = result.stdout.splitlines()
    command = f"corpusmill run healing_text_v1 --data {root}"
    assert result.returncode == 1
    assert lines[1].startswith(f"  interrupted  corpora/fineweb_edu/{snapshot.name}")
    assert lines[2].startswith("    stopped ")
    assert lines[2].endswith(f" s ago; finished: {finished} of convert; to continue: {command}")


def test_a_shipped_recipe_is_listed_after_its_first_build(corpusmill: Corpusmill, root: Path) -> None:
    write_unfinished(root / "stage_a" / "stage_a_v1" / "filtered" / ".notes.building.1")

    result = corpusmill("status", "--data", root)

    assert result.returncode == 1
    assert "\nstage_a_v1  " in result.stdout
    assert "\n  interrupted  stage_a/stage_a_v1/filtered/notes" in result.stdout


def test_an_interrupted_build_over_a_stale_artifact_continues_with_replace(corpusmill: Corpusmill, root: Path) -> None:
    path = write_recipe(root, {"megatron": {"valid_fraction": "0.2"}}, "healing_text_v1")
    write_unfinished(root / V1 / ".train.building.2")

    def read_row() -> dict[str, Any]:
        result = corpusmill("status", path, "--data", root, "--json")
        row: dict[str, Any] = json.loads(result.stdout)["recipes"][0]["artifacts"][2]
        return row

    interrupted = read_row()
    with locked(root / V1 / "train"):
        building = read_row()

    assert (interrupted["state"], interrupted["sealed"]) == ("interrupted", "stale")
    assert interrupted["go_on"] == f"corpusmill run {path} --replace --data {root}"
    assert (building["state"], building["sealed"], building["go_on"]) == ("building", "stale", None)
    assert building["unfinished"]["builder"]["pid"] == os.getpid()


def test_a_removed_artifact_is_distinguished_from_one_never_built(corpusmill: Corpusmill, root: Path) -> None:
    shutil.rmtree(root / V1 / "valid")

    shown = corpusmill("status", "healing_text_v1", "--data", root)

    lines = shown.stdout.splitlines()
    number = next(index for index, line in enumerate(lines) if line.split()[:2] == ["missing", f"{V1}/valid"])
    assert lines[number + 1] == "    built earlier, and removed since"


def test_a_leftover_next_to_a_current_artifact_may_be_removed(corpusmill: Corpusmill, root: Path) -> None:
    shutil.copytree(root / V1 / "valid", root / V1 / ".valid.old.1")

    result = corpusmill("status", "--data", root)

    assert result.returncode == 0
    assert "\n    a crash left .valid.old.1 next to it, which is not needed: remove it\n" in result.stdout


def test_artifacts_without_recipe_are_listed_and_damaged_ones_exit_with_1(corpusmill: Corpusmill, root: Path) -> None:
    other = shutil.copytree(root / V1 / "valid", root / "megatron" / "forgotten")
    digest = json.loads((other / "manifest.json").read_text())["digest"]

    shown = corpusmill("status", "--data", root)
    report = corpusmill("status", "--data", root, "--json")
    (other / "tokens.bin").unlink()
    damaged = corpusmill("status", "--data", root)

    [row] = json.loads(report.stdout)["unasked"]
    assert (shown.returncode, report.returncode, damaged.returncode) == (0, 0, 1)
    assert (row["folder"], row["digest"]) == (str(other), digest)
    title, state, name = shown.stdout.splitlines()[-3:]
    assert (title, state.split()[:2]) == ("requested by no recipe", ["sealed", "megatron/forgotten"])
    assert name == f"    healing_text_v1/valid {digest}"
    assert damaged.stdout.splitlines()[-2].split()[:2] == ["damaged", "megatron/forgotten"]
    assert damaged.stdout.endswith("\n    tokens.bin: the file is missing\n")


def test_an_unreadable_recipe_hides_no_other(corpusmill: Corpusmill, root: Path) -> None:
    (root / "recipes" / "broken.yaml").write_text("system: weather\n")

    result = corpusmill("status", "--data", root)

    assert result.returncode == 1
    assert result.stdout.splitlines()[:2] == [
        f"broken  {root}/recipes/broken.yaml",
        f"  cannot be read: {root}/recipes/broken.yaml:1: `system` must be one of {', '.join(SYSTEMS.pages)}, "
        "got 'weather'; correct it",
    ]
    assert result.stdout.count("\n  current ") == 5


def test_status_changes_nothing_even_after_a_crash(corpusmill: Corpusmill, root: Path) -> None:
    """An interrupted seal is left to the next build.

    The old valid split was moved, and the new one is not in place.
    """
    (root / V1 / "valid").rename(root / V1 / ".valid.old.2")

    def read_stats() -> dict[Path, tuple[int, int, int]]:
        stats = {path: path.stat() for path in root.rglob("*")}
        return {path: (stat.st_ino, stat.st_mtime_ns, stat.st_size) for path, stat in stats.items()}

    before = read_stats()

    result = corpusmill("status", "--data", root)

    assert result.returncode == 1
    assert "all shards are finished, the seal was interrupted" in result.stdout
    assert read_stats() == before

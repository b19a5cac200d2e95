"""`corpusmill rebuild` on the demo's artifacts."""

import json
import os
import shlex
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
from command_results import Corpusmill, Started
from demo_variants import V1, find_snapshot, write_recipe
from forgery import flip, forge, reseal
from paused_runs import pause_at, wait_for
from stage_a_build import build, notes_recipe, step

from pipeline_assets.demo.loopback_hub import LoopbackHub
from pipeline_assets.spine.sealed_folder import require_manifest

pytestmark = pytest.mark.slow
INLINE = {"CORPUSMILL_WORKERS": "0"}


def read_digest(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["digest"])


def list_rebuilds(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "rebuilds").iterdir())


def test_a_chain_is_rebuilt_from_the_hub_despite_changed_settings_and_recipe(
    corpusmill: Corpusmill, root: Path, demo_hub: LoopbackHub
) -> None:
    write_recipe(root, {"megatron": {"token_budget": 5}, "snapshot": {"rules": []}}, "healing_text_v1")
    env = {"HF_ENDPOINT": demo_hub.endpoint, "CORPUSMILL_ZSTD_LEVEL": "9"}

    result = corpusmill("rebuild", root / V1, "--upstream", "--workers", 2, "--json", env=env)

    report = json.loads(result.stdout)
    assert (result.returncode, report["identical"], report["kept"]) == (0, True, None)
    assert [(row["artifact"], row["verdict"]) for row in report["artifacts"]] == [
        ("healing/fineweb_edu_snapshot", "identical"),
        ("healing/healing_text_manifest", "identical"),
        ("healing/megatron_split", "identical"),
        ("healing/megatron_split", "identical"),
        ("healing/megatron_dataset", "identical"),
    ]
    assert all(row["sealed"] == row["rebuilt"] == read_digest(Path(row["folder"])) for row in report["artifacts"])
    assert "shards/00000.jsonl.zst" in report["artifacts"][0]["stored_otherwise"]
    assert list_rebuilds(root) == []


def test_output_of_an_identical_rebuild(corpusmill: Corpusmill, root: Path) -> None:
    result = corpusmill("rebuild", V1 / "valid", "--data", ".", cwd=root, env=INLINE)

    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        f"identical   {V1}/valid",
        f"  {read_digest(root / V1 / 'valid')}",
        "  4 files rebuilt, equal to the manifest; the sealed files are intact",
    ]


def test_a_different_file_is_named_with_changed_libraries(corpusmill: Corpusmill, root: Path) -> None:
    train = root / V1 / "train"
    ids = np.fromfile(train / "tokens.bin", np.int32)
    ids[3] = 7
    forge(train, "tokens.bin", ids.tobytes())
    manifest = require_manifest(train)
    libraries = manifest.provenance["libraries"]
    manifest.provenance["libraries"] = {**libraries, "gigatoken": "0.1"}  # type: ignore[index]
    reseal(train, manifest)

    result = corpusmill("rebuild", train, env=INLINE)

    kept = root / "rebuilds" / f"healing_text_v1-train-{read_digest(train)[7:19]}" / "megatron_split"
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert result.returncode == 1
    assert lines[0] == f"DIFFERENT   {train}"
    assert lines[1] == f"sealed   {read_digest(train)}"
    assert lines[3] == "tokens.bin: different content"
    assert f"gigatoken: 0.1 → {libraries['gigatoken']}" in lines
    assert lines[-2:] == [f"kept in {kept}", f"for details: corpusmill diff {train} {kept}"]
    compared = corpusmill(*shlex.split(lines[-1].partition("corpusmill ")[2]))
    assert "1 document in both, with different texts" in compared.stdout


def test_a_damaged_sealed_file_is_reported_and_the_printed_fix_repairs_it(
    corpusmill: Corpusmill, root: Path, demo_hub: LoopbackHub
) -> None:
    valid = root / V1 / "valid"
    digest = read_digest(valid)
    flip(valid / "documents.parquet")

    rebuilt, verified = corpusmill("rebuild", root / V1, env=INLINE), corpusmill("verify", root / V1)
    shutil.rmtree(valid)
    repaired = corpusmill("run", "healing_text_v1", "--data", root, env=INLINE | {"HF_ENDPOINT": demo_hub.endpoint})

    assert rebuilt.returncode == 1
    assert [line.split()[0] for line in rebuilt.stdout.splitlines() if not line.startswith(" ")] == [
        "identical",
        "DAMAGED",
        "identical",
    ]
    assert " documents.parquet: the sealed file is damaged: sha256 is " in rebuilt.stdout
    fix = f"to repair it: remove {valid}, and run its recipe again\n"
    assert fix in rebuilt.stdout
    assert fix in verified.stdout
    assert repaired.returncode == 0, repaired.stderr
    assert read_digest(valid) == digest
    assert corpusmill("verify", root / V1, "--upstream").returncode == 0
    assert corpusmill("status", "--data", root).returncode == 0


def test_a_damaged_input_is_named_and_its_repair_lets_the_same_command_continue(
    corpusmill: Corpusmill, root: Path
) -> None:
    train, shard = root / V1 / "train", find_snapshot(root) / "shards" / "00000.jsonl.zst"
    flip(shard)
    stopped = corpusmill("rebuild", train, env=INLINE)
    flip(shard)

    unfinished = list_rebuilds(root)
    continued = corpusmill("rebuild", train, env=INLINE)

    assert (stopped.returncode, stopped.stdout, f"corpusmill: {shard}: " in stopped.stderr) == (1, "", True)
    assert unfinished[-1:] == [f"healing_text_v1-train-{read_digest(train)[7:19]}.unfinished"]
    assert (continued.returncode, list_rebuilds(root)) == (0, [])


def test_sources_inside_the_data_root_move_with_it(corpusmill: Corpusmill, notes_root: Path) -> None:
    moved = notes_root.rename(notes_root.with_name("moved"))
    normalized = step(moved, "normalized", "notes")

    rebuilt = corpusmill("rebuild", normalized, "--upstream", env=INLINE)
    verified = corpusmill("verify", normalized, "--upstream")

    assert rebuilt.returncode == 0, rebuilt.stderr
    assert rebuilt.stdout.count("identical   ") == 2
    assert "source files: 2 of 2 input files unchanged" in verified.stdout


def test_a_moved_source_is_refused_until_linked(corpusmill: Corpusmill, notes_root: Path, tmp_path: Path) -> None:
    sources = tmp_path / "elsewhere"
    shutil.rmtree(notes_root / "stage_a")
    (notes_root / "sources" / "notes").rename(sources)
    build(notes_recipe(notes_root, "other", path=str(sources)), notes_root)
    moved = sources.rename(tmp_path / "now_here")
    normalized = step(notes_root, "normalized", "notes", "other")

    refused = corpusmill("rebuild", normalized, env=INLINE)
    sources.symlink_to(moved)
    rebuilt = corpusmill("rebuild", normalized, env=INLINE)

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-2:] == [
        f"corpusmill: {sources}: the source folder no longer exists; "
        "restore it, create a link to its new path, or correct the source's path",
        f"to continue: corpusmill rebuild {normalized}",
    ]
    assert rebuilt.returncode == 0, rebuilt.stderr


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_stopped_rebuild_continues_with_the_same_command(
    number: signal.Signals,
    corpusmill: Corpusmill,
    started: Started,
    root: Path,
    demo_hub: LoopbackHub,
    tmp_path: Path,
) -> None:
    args = ["rebuild", str(root / V1 / "valid"), "--upstream", "--data", str(root)]
    env = {"HF_ENDPOINT": demo_hub.endpoint}
    process = started(*args, env={**env, **pause_at("/.receipts/convert/", tmp_path / "first")})
    wait_for(process, root, "rebuilds/*.unfinished/*.building.*/.receipts/convert/*.json")
    os.killpg(process.pid, number)
    _, stderr = process.communicate(timeout=60)

    resumed = corpusmill(*args, env={**env, **INLINE})

    assert process.returncode == 130
    assert "Traceback" not in stderr
    assert stderr.endswith(f"stopped\nto continue: corpusmill {shlex.join(args)}\n")
    assert resumed.returncode == 0, resumed.stderr
    assert "shards were finished earlier" in resumed.stderr
    assert list_rebuilds(root) == []

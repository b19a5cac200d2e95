"""`corpusmill gc` on the demo's data root."""

import json
import os
import shutil
from pathlib import Path

import pytest
from command_results import Corpusmill, only_line
from demo_variants import INLINE, V1, write_recipe

from pipeline_assets.build import drive
from pipeline_assets.build.run import Run
from pipeline_assets.spine.artifact import read_manifest
from pipeline_assets.systems.registry import SYSTEMS

DAY_S = 86_400
SMALL = ["megatron/small", "selections/small"]


@pytest.fixture
def garbage_root(root: Path) -> Path:
    """Return a data root with the artifacts of a deleted recipe."""
    path = write_recipe(root, {"megatron": {"token_budget": 60_000}}, "small")
    for target in SYSTEMS.read_recipe(path).targets():
        drive.build(target, Run(root, INLINE))
    path.unlink()
    return root


def write_cached(root: Path, digest: str, age_days: float) -> Path:
    """Write a cached file of the hub that was used some days ago."""
    path = root / "hub_cache" / "some--one" / "bytes" / digest.replace(":", "-") / f"0-4.{'0' * 64}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"text")
    used_at = path.stat().st_mtime - age_days * DAY_S
    os.utime(path, (used_at, used_at))
    return path


@pytest.mark.slow
def test_unneeded_artifacts_are_listed_and_removed_only_with_apply(corpusmill: Corpusmill, garbage_root: Path) -> None:
    before = corpusmill("status", "healing_text_v1", "--data", garbage_root, "--json").stdout

    listed = corpusmill("gc", "--data", garbage_root)
    nothing = corpusmill("gc", "--data", garbage_root, "--older-than", "30d", "--apply")
    listing = json.loads(corpusmill("gc", "--data", garbage_root, "--json").stdout)
    removed = corpusmill("gc", "--data", garbage_root, "--apply")

    lines = listed.stdout.splitlines()
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[0] for line in lines[:-1]] == SMALL
    assert lines[0].endswith("nothing needs small") and lines[-1].endswith("; to do so, add --apply")
    assert nothing.stdout == "nothing to remove\n"
    assert [entry["folder"] for entry in listing["garbage"]] == [str(garbage_root / folder) for folder in SMALL]
    assert (
        listing["bytes"] == sum(entry["bytes"] for entry in listing["garbage"]) > 200_000
        and listing["bytes_freed"] == 0
    )
    assert removed.stdout.splitlines()[:2] == lines[:2]
    assert removed.stdout.splitlines()[2].startswith("removed 2 of 2, freed ")
    assert not any((garbage_root / folder).exists() for folder in SMALL)
    assert corpusmill("status", "healing_text_v1", "--data", garbage_root, "--json").stdout == before
    assert corpusmill("verify", garbage_root / V1, "--upstream").returncode == 0


@pytest.mark.slow
def test_files_with_another_hard_link_free_no_bytes(corpusmill: Corpusmill, garbage_root: Path) -> None:
    shutil.copytree(garbage_root / "megatron" / "small", garbage_root / "copy", copy_function=os.link)

    listing = json.loads(corpusmill("gc", "--data", garbage_root, "--json").stdout)

    assert listing["garbage"][0]["bytes"] > 200_000
    assert listing["bytes"] < 20_000


def test_cached_files_in_no_manifest_are_removed_a_day_after_use(corpusmill: Corpusmill, root: Path) -> None:
    snapshot = read_manifest(next((root / "corpora" / "fineweb_edu").glob("[!.]*")))
    assert snapshot is not None
    named = write_cached(root, snapshot.identity.inputs[0]["digest"], 9)
    unnamed, recent = write_cached(root, "git-sha1:" + "a" * 40, 9), write_cached(root, "sha256:" + "b" * 64, 0.9)

    listed = corpusmill("gc", "--data", root)
    removed = corpusmill("gc", "--data", root, "--apply")

    assert listed.stdout.splitlines() == [
        "hub_cache  4 bytes  1 file that no artifact and no recipe names",
        "removing these frees 4 bytes; to do so, add --apply",
    ]
    assert removed.stdout.splitlines()[-1] == "removed 1 of 1, freed 4 bytes"
    assert named.exists() and recent.exists() and not unnamed.exists()


@pytest.mark.parametrize("age", ["30", *(pytest.param(age, marks=pytest.mark.slow) for age in ("1.5d", ""))])
def test_an_age_without_unit_is_refused_in_one_line(age: str, corpusmill: Corpusmill, tmp_path: Path) -> None:
    result = corpusmill("gc", "--data", tmp_path, f"--older-than={age}")

    assert result.returncode == 2
    assert (
        only_line(result)
        == f"--older-than: must be up to six digits and `h` or `d`, such as 12h or 30d, got {age!r}; correct it"
    )


@pytest.mark.slow
def test_an_unreadable_recipe_is_named_and_nothing_is_removed(corpusmill: Corpusmill, garbage_root: Path) -> None:
    odd = garbage_root / "recipes" / "odd.yaml"
    odd.write_text("system: [")

    result = corpusmill("gc", "--data", garbage_root, "--apply")

    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"WARNING {odd}:") and lines[0].endswith("; until then only leftovers are removed")
    assert lines[1:] == ["nothing to remove"]


@pytest.mark.slow
def test_artifacts_without_recipe_are_kept_if_a_user_named_them(corpusmill: Corpusmill, garbage_root: Path) -> None:
    notes = garbage_root / "notes.jsonl"
    notes.write_text("".join(json.dumps({"text": f"note number {number}"}) + "\n" for number in range(9)))
    args = ["stage-a", "normalize", "--input", notes, "--out-dir", garbage_root, "--domain", "web", "--source", "notes"]
    assert corpusmill(*args).returncode == 0
    folder = garbage_root / "stage_a" / "deduplicated" / "all"
    source = next(garbage_root.glob("stage_a/**/normalized/notes"))
    assert corpusmill("stage-a", "dedup", "--input", source, "--out-dir", folder).returncode == 0
    for recipe in (garbage_root / "recipes").glob("*.yaml"):
        if recipe.stem not in ("healing_text_v1", "small"):
            recipe.unlink()
    (garbage_root / "megatron" / ".small.checks.json").unlink()  # as if it had been copied

    result = corpusmill("gc", "--data", garbage_root, "--apply")

    kept = {line.split()[1].rstrip(",") for line in result.stdout.splitlines() if line.startswith("kept: ")}
    assert {"stage_a/deduplicated/all", "megatron/small"} <= kept
    assert (folder / "manifest.json").exists() and (source / "manifest.json").exists()
    assert corpusmill("verify", garbage_root / "megatron" / "small", "--upstream").returncode == 0


@pytest.mark.slow
def test_a_folder_is_kept_while_an_artifact_inside_is_needed(corpusmill: Corpusmill, garbage_root: Path) -> None:
    for manifest in garbage_root.rglob("manifest.json"):
        os.utime(manifest, (0, 0))
    os.utime(garbage_root / "megatron" / "small" / "train" / "manifest.json")

    young = corpusmill("gc", "--data", garbage_root, "--older-than", "1d", "--apply")
    os.utime(garbage_root / "megatron" / "small" / "train" / "manifest.json", (0, 0))
    old = corpusmill("gc", "--data", garbage_root, "--older-than", "1d", "--apply")

    # Another recipe's selection has the same content, so that this copy is not needed.
    assert [line.split()[0] for line in young.stdout.splitlines()[:-1]] == ["selections/small"]
    assert [line.split()[0] for line in old.stdout.splitlines()[:-1]] == ["megatron/small"]


@pytest.mark.slow
def test_artifacts_of_another_user_are_kept_and_reported(corpusmill: Corpusmill, garbage_root: Path) -> None:
    """A link instead of the lock file is refused like the lock file of another user."""
    lock = garbage_root / "megatron" / ".small.lock"
    lock.unlink()
    lock.symlink_to("elsewhere")

    result = corpusmill("gc", "--data", garbage_root, "--apply")

    assert result.stdout.splitlines()[-1].endswith("; the rest is in use, or belongs to another user")
    assert corpusmill("verify", garbage_root / "megatron" / "small", "--upstream").returncode == 0

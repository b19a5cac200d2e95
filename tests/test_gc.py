"""`corpusmill gc` as a user types it, on the demo's data root."""

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
def with_small(root: Path) -> Path:
    """Return a data root with the artifacts of a deleted recipe."""
    path = write_recipe(root, {"megatron": {"token_budget": 60_000}}, "small")
    for target in SYSTEMS.read_recipe(path).targets():
        drive.build(target, Run(root, INLINE))
    path.unlink()
    return root


def cached(root: Path, digest: str, age_days: float) -> Path:
    """Write a cached file of the hub that was used some days ago."""
    path = root / "hub_cache" / "some--one" / "bytes" / digest.replace(":", "-") / f"0-4.{'0' * 64}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"text")
    then = path.stat().st_mtime - age_days * DAY_S
    os.utime(path, (then, then))
    return path


@pytest.mark.slow
def test_it_lists_and_only_with_apply_removes_what_nothing_needs(corpusmill: Corpusmill, with_small: Path) -> None:
    before = corpusmill("status", "healing_text_v1", "--data", with_small, "--json").stdout

    listed = corpusmill("gc", "--data", with_small)
    nothing = corpusmill("gc", "--data", with_small, "--older-than", "30d", "--apply")
    listing = json.loads(corpusmill("gc", "--data", with_small, "--json").stdout)
    removed = corpusmill("gc", "--data", with_small, "--apply")

    lines = listed.stdout.splitlines()
    assert (listed.returncode, listed.stderr) == (0, "")
    assert [line.split()[0] for line in lines[:-1]] == SMALL
    assert lines[0].endswith("nothing needs small") and lines[-1].endswith("; to do so, add --apply")
    assert nothing.stdout == "nothing to remove\n"
    assert [entry["folder"] for entry in listing["garbage"]] == [str(with_small / folder) for folder in SMALL]
    assert (
        listing["bytes"] == sum(entry["bytes"] for entry in listing["garbage"]) > 200_000
        and listing["bytes_freed"] == 0
    )
    assert removed.stdout.splitlines()[:2] == lines[:2]
    assert removed.stdout.splitlines()[2].startswith("removed 2 of 2, freed ")
    assert not any((with_small / folder).exists() for folder in SMALL)
    assert corpusmill("status", "healing_text_v1", "--data", with_small, "--json").stdout == before
    assert corpusmill("verify", with_small / V1, "--upstream").returncode == 0


@pytest.mark.slow
def test_files_with_a_hard_link_elsewhere_free_nothing(corpusmill: Corpusmill, with_small: Path) -> None:
    shutil.copytree(with_small / "megatron" / "small", with_small / "copy", copy_function=os.link)

    listing = json.loads(corpusmill("gc", "--data", with_small, "--json").stdout)

    assert listing["garbage"][0]["bytes"] > 200_000
    assert listing["bytes"] < 20_000


def test_cached_files_in_no_manifest_are_removed_a_day_after_their_use(corpusmill: Corpusmill, root: Path) -> None:
    snapshot = read_manifest(next((root / "corpora" / "fineweb_edu").glob("[!.]*")))
    assert snapshot is not None
    named = cached(root, snapshot.identity.inputs[0]["digest"], 9)
    unnamed, recent = cached(root, "git-sha1:" + "a" * 40, 9), cached(root, "sha256:" + "b" * 64, 0.9)

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
    assert only_line(result) == (f"--older-than: must be hours or days, such as 12h or 30d, got {age!r}; correct it")


@pytest.mark.slow
def test_a_recipe_that_cannot_be_read_keeps_everything_and_is_named(corpusmill: Corpusmill, with_small: Path) -> None:
    odd = with_small / "recipes" / "odd.yaml"
    odd.write_text("system: [")

    result = corpusmill("gc", "--data", with_small, "--apply")

    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"WARNING {odd}:") and lines[0].endswith("; until then only leftovers are removed")
    assert lines[1:] == ["nothing to remove"]


@pytest.mark.slow
def test_artifacts_without_recipe_are_kept_if_a_user_named_them(corpusmill: Corpusmill, with_small: Path) -> None:
    notes = with_small / "notes.jsonl"
    notes.write_text("".join(json.dumps({"text": f"note number {number}"}) + "\n" for number in range(9)))
    words = ["stage-a", "normalize", "--input", notes, "--out-dir", with_small, "--domain", "web", "--source", "notes"]
    assert corpusmill(*words).returncode == 0
    folder = with_small / "stage_a" / "deduplicated" / "all"
    source = next(with_small.glob("stage_a/**/normalized/notes"))
    assert corpusmill("stage-a", "dedup", "--input", source, "--out-dir", folder).returncode == 0
    for recipe in (with_small / "recipes").glob("*.yaml"):
        if recipe.stem not in ("healing_text_v1", "small"):
            recipe.unlink()
    (with_small / "megatron" / ".small.checks.json").unlink()  # as if it had been copied

    result = corpusmill("gc", "--data", with_small, "--apply")

    kept = {line.split()[1].rstrip(",") for line in result.stdout.splitlines() if line.startswith("kept: ")}
    assert {"stage_a/deduplicated/all", "megatron/small"} <= kept
    assert (folder / "manifest.json").exists() and (source / "manifest.json").exists()
    assert corpusmill("verify", with_small / "megatron" / "small", "--upstream").returncode == 0


@pytest.mark.slow
def test_a_folder_stays_as_long_as_an_artifact_inside_is_needed(corpusmill: Corpusmill, with_small: Path) -> None:
    for manifest in with_small.rglob("manifest.json"):
        os.utime(manifest, (0, 0))
    os.utime(with_small / "megatron" / "small" / "train" / "manifest.json")

    young = corpusmill("gc", "--data", with_small, "--older-than", "1d", "--apply")
    os.utime(with_small / "megatron" / "small" / "train" / "manifest.json", (0, 0))
    old = corpusmill("gc", "--data", with_small, "--older-than", "1d", "--apply")

    # Another recipe's selection has the same content, so that this copy is not needed.
    assert [line.split()[0] for line in young.stdout.splitlines()[:-1]] == ["selections/small"]
    assert [line.split()[0] for line in old.stdout.splitlines()[:-1]] == ["megatron/small"]


@pytest.mark.slow
def test_artifacts_of_another_user_stay_and_are_named_as_such(corpusmill: Corpusmill, with_small: Path) -> None:
    """A link instead of the lock file is refused like the lock file of another user."""
    lock = with_small / "megatron" / ".small.lock"
    lock.unlink()
    lock.symlink_to("elsewhere")

    result = corpusmill("gc", "--data", with_small, "--apply")

    assert result.stdout.splitlines()[-1].endswith("; the rest is in use, or belongs to another user")
    assert corpusmill("verify", with_small / "megatron" / "small", "--upstream").returncode == 0

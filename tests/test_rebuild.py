"""`corpusmill rebuild` as a user types it, on the demo's artifacts."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from demo_variants import V1, snapshot_of, write_recipe
from forged import forge, overwrite, reseal
from stage_a_root import build, step, write_notes_recipe

from pipeline_assets.corpus.spine.artifact import read_manifest
from pipeline_assets.corpus.spine.manifest import StageVersion
from resources.loopback_hub import LoopbackHub

pytestmark = pytest.mark.slow
Corpusmill = Callable[..., subprocess.CompletedProcess[str]]
INLINE = {"CORPUSMILL_WORKERS": "0"}


def digest_of(folder: Path) -> str:
    return str(json.loads((folder / "manifest.json").read_text())["digest"])


def rebuilds_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "rebuilds").iterdir())


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in result.stderr, result.stderr
    return result.stderr.splitlines()[-1].removeprefix("corpusmill: ")


class TestIdentical:
    """A rebuild that comes out as the manifest says is a yes, and leaves nothing."""

    def test_a_whole_chain_from_the_hub_on_by_other_settings_whatever_the_recipe_file_says_now(
        self, corpusmill: Corpusmill, root: Path, hub: LoopbackHub
    ) -> None:
        write_recipe(root, {"megatron": {"token_budget": 5}, "snapshot": {"rules": []}}, "healing_text_v1")
        env = {"HF_ENDPOINT": hub.endpoint, "CORPUSMILL_ZSTD_LEVEL": "9"}

        result = corpusmill("rebuild", root / V1, "--upstream", "--workers", 2, "--json", env=env)

        found = json.loads(result.stdout)
        assert (result.returncode, found["identical"], found["kept"]) == (0, True, None)
        assert [(one["artifact"], one["verdict"]) for one in found["artifacts"]] == [
            ("healing/fineweb_edu_snapshot", "identical"),
            ("healing/healing_text_manifest", "identical"),
            ("healing/megatron_split", "identical"),
            ("healing/megatron_split", "identical"),
            ("healing/megatron_dataset", "identical"),
        ]
        assert all(one["sealed"] == one["rebuilt"] == digest_of(Path(one["folder"])) for one in found["artifacts"])
        assert "shards/00000.jsonl.zst" in found["artifacts"][0]["stored_otherwise"]
        assert rebuilds_of(root) == []

    def test_the_answer_reads_well(self, corpusmill: Corpusmill, root: Path) -> None:
        result = corpusmill("rebuild", V1 / "valid", "--data", ".", cwd=root, env=INLINE)

        assert result.returncode == 0
        assert result.stdout.splitlines() == [
            f"identical   {V1}/valid",
            f"  {digest_of(root / V1 / 'valid')}",
            "  4 files rebuilt as the manifest says; those sealed are intact",
        ]

    def test_a_copy_is_kept_when_asked_for_and_no_other_command_takes_it_for_an_artifact(
        self, corpusmill: Corpusmill, root: Path
    ) -> None:
        result = corpusmill("rebuild", root / V1, "--keep", env=INLINE)

        kept = root / "rebuilds" / f"healing_text_v1-{digest_of(root / V1)[7:19]}" / "megatron_dataset"
        assert result.returncode == 0
        assert result.stdout.splitlines()[-1] == f"  kept in {kept}"
        assert corpusmill("diff", root / V1, kept).returncode == 0
        status = corpusmill("status", "--data", root)
        assert (status.returncode, status.stdout.count("current"), "no recipe asks" in status.stdout) == (0, 5, False)
        assert corpusmill("verify", root / V1).returncode == 0


class TestNotIdentical:
    """A no says which side is wrong, which files and rows, and what may be the cause."""

    def test_another_token_is_shown_with_what_was_other_then_and_diff_goes_on(
        self, corpusmill: Corpusmill, root: Path
    ) -> None:
        train = root / V1 / "train"
        ids = np.fromfile(train / "tokens.bin", np.int32)
        then, ids[3] = int(ids[3]), 7
        forge(train, "tokens.bin", ids.tobytes())
        manifest = read_manifest(train)
        assert manifest is not None
        libraries = manifest.provenance["libraries"]
        manifest.provenance["libraries"] = {**libraries, "gigatoken": "0.1"}  # type: ignore[index]
        reseal(train, manifest)

        result = corpusmill("rebuild", train, env=INLINE)

        kept = root / "rebuilds" / f"healing_text_v1-train-{digest_of(train)[7:19]}" / "megatron_split"
        before, after = " ".join(map(str, ids[:3])), " ".join(map(str, ids[4:8]))
        lines = [line.strip() for line in result.stdout.splitlines()]
        assert result.returncode == 1
        assert lines[0] == f"DIFFERENT   {train}"
        assert lines[1] == f"sealed   {digest_of(train)}"
        assert lines[3:5] == [
            "tokens.bin: other content; 1 of 549 sequences differ",
            f"sequence 0: token 3: {before} »7« {after} … → {before} »{then}« {after} …",
        ]
        assert f"gigatoken: 0.1 → {libraries['gigatoken']}" in lines
        assert lines[-2:] == [f"kept in {kept}", f"to look closer: corpusmill diff {train} {kept}"]
        explained = corpusmill(*shlex.split(lines[-1].partition("corpusmill ")[2]))
        assert "1 document in both, but with another text" in explained.stdout

    def test_a_damaged_sealed_file_is_the_wrong_one_and_the_copy_is_its_cure(
        self, corpusmill: Corpusmill, root: Path
    ) -> None:
        path = root / V1 / "valid" / "documents.parquet"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        overwrite(path, bytes(data))

        result = corpusmill("rebuild", root / V1, env=INLINE)

        lines = [line.strip() for line in result.stdout.splitlines()]
        assert result.returncode == 1
        assert [line.split()[0] for line in result.stdout.splitlines() if not line.startswith(" ")] == [
            "identical",
            "DAMAGED",
            "identical",
        ]
        assert any(line.startswith("documents.parquet: the sealed file is damaged: sha256 is ") for line in lines)
        assert f"to mend it: corpusmill rebuild {root / V1 / 'valid'} --put-back --data {root}" in lines

    def test_a_copy_takes_the_place_of_what_is_damaged_and_that_is_kept(
        self, corpusmill: Corpusmill, root: Path
    ) -> None:
        path = root / V1 / "valid" / "documents.parquet"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        overwrite(path, bytes(data))
        found = corpusmill("verify", root / V1).stdout.splitlines()
        [command] = [line.removeprefix("to mend it: ") for line in found if line.startswith("to mend it: ")]

        result = corpusmill(*shlex.split(command)[1:], env=INLINE)

        replaced = root / "rebuilds" / f"healing_text_v1-valid-{digest_of(root / V1 / 'valid')[7:19]}.replaced"
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[0] == f"mended      {root / V1 / 'valid'}"
        assert [line.strip() for line in result.stdout.splitlines()][-2:] == [
            "it was damaged; the rebuilt copy, which is what the manifest says, took its place",
            f"what was damaged is kept in {replaced}",
        ]
        assert (replaced / "documents.parquet").read_bytes() == bytes(data)
        assert corpusmill("verify", root / V1, "--upstream").returncode == 0
        assert corpusmill("status", "--data", root).returncode == 0

    def test_a_damaged_input_is_named_and_not_the_rebuild(self, corpusmill: Corpusmill, root: Path) -> None:
        shard = snapshot_of(root) / "shards" / "00000.jsonl.zst"
        overwrite(shard, shard.read_bytes() + b"x")
        size = shard.stat().st_size

        result = corpusmill("rebuild", root / V1 / "valid", env=INLINE)

        assert (result.returncode, result.stdout) == (1, "")
        assert last_line(result) == (
            f"{shard}: has {size:,} bytes, sealed with {size - 1:,}; "
            "run `corpusmill verify` on the folder, then rebuild it"
        )

    def test_without_the_hub_the_line_says_how_to_go_on(self, corpusmill: Corpusmill, root: Path) -> None:
        env = {**INLINE, "HF_ENDPOINT": "http://127.0.0.1:9", "CORPUSMILL_HUB_TRIES": "1"}

        result = corpusmill("rebuild", root / V1 / "valid", "--upstream", env=env)

        assert result.returncode == 1
        assert "can't be reached" in result.stderr.splitlines()[-2]
        assert last_line(result) == f"to go on: corpusmill rebuild {root / V1 / 'valid'} --upstream"


class TestMoved:
    """A data root is built again wherever it lies, with the sources in it; others have to be where they were."""

    def test_sources_below_the_data_root_move_with_it(self, corpusmill: Corpusmill, notes_root: Path) -> None:
        moved = notes_root.rename(notes_root.with_name("moved"))
        normalized = step(moved, "normalized", "notes")

        rebuilt = corpusmill("rebuild", normalized, "--upstream", env=INLINE)
        verified = corpusmill("verify", normalized, "--upstream")

        assert rebuilt.returncode == 0, rebuilt.stderr
        assert rebuilt.stdout.count("identical   ") == 2
        assert "source files: of 2 files read, 2 are here" in verified.stdout

    def test_a_source_elsewhere_that_moved_is_one_line_and_a_link_is_enough(
        self, corpusmill: Corpusmill, notes_root: Path, tmp_path: Path
    ) -> None:
        sources = tmp_path / "elsewhere"
        shutil.rmtree(notes_root / "stage_a")
        (notes_root / "sources" / "notes").rename(sources)
        build(write_notes_recipe(notes_root, "other", path=str(sources)), notes_root)
        moved = sources.rename(tmp_path / "now_here")
        normalized = step(notes_root, "normalized", "notes", "other")

        refused = corpusmill("rebuild", normalized, env=INLINE)
        sources.symlink_to(moved)
        rebuilt = corpusmill("rebuild", normalized, env=INLINE)

        assert refused.returncode == 1
        assert refused.stderr.splitlines()[-2:] == [
            f"corpusmill: {sources}: the folder that its files were read from is gone; "
            "give it back, or leave a link there to where it is now, or correct the source's path",
            f"to go on: corpusmill rebuild {normalized}",
        ]
        assert rebuilt.returncode == 0, rebuilt.stderr


class TestWrongUse:
    """One line, and exit status 2."""

    def test_what_another_version_made(self, corpusmill: Corpusmill, root: Path) -> None:
        manifest = read_manifest(root / V1 / "train")
        assert manifest is not None
        reseal(root / V1 / "train", manifest, stage=StageVersion("megatron_split", 99))

        result = corpusmill("rebuild", root / V1 / "train")

        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert "was made by megatron_split version 99, this program has megatron_split version 1; use " in result.stderr
        assert f"program {manifest.provenance['git_sha']}, python {manifest.provenance['python']}" in result.stderr

    def test_a_folder_that_is_no_artifact_or_in_no_data_root(
        self, corpusmill: Corpusmill, demo_root: Path, tmp_path: Path
    ) -> None:
        unsealed = corpusmill("rebuild", demo_root / "megatron")
        homeless = corpusmill("rebuild", shutil.copytree(demo_root / V1 / "valid", tmp_path / "valid"))

        assert (unsealed.returncode, homeless.returncode) == (2, 2)
        assert last_line(unsealed).startswith(f"{demo_root / 'megatron'}: ")
        assert (
            last_line(homeless) == f"{tmp_path}/valid: it lies in no data root; say with --data where its upstream lies"
        )


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_rebuild_that_was_stopped_is_gone_on_with_by_the_same_command(
    number: signal.Signals,
    corpusmill: Corpusmill,
    started: Callable[..., subprocess.Popen[str]],
    root: Path,
    hub: LoopbackHub,
) -> None:
    words = ["rebuild", str(root / V1 / "valid"), "--upstream", "--data", str(root)]
    env = {"HF_ENDPOINT": hub.endpoint}
    process = started(*words, env=env)
    deadline = time.monotonic() + 60
    while not list(root.glob("rebuilds/*.unfinished/*.building.*/.receipts/convert/*.json")):
        assert time.monotonic() < deadline, "no shard was converted"
        time.sleep(0.005)
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=60)

    went_on = corpusmill(*words, env={**env, **INLINE})

    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.endswith(f"stopped\nto go on: corpusmill {shlex.join(words)}\n")
    assert went_on.returncode == 0, went_on.stderr
    assert "shards were finished before" in went_on.stderr
    assert rebuilds_of(root) == []


def test_help_fits_a_screen_and_ends_with_an_example(corpusmill: Corpusmill) -> None:
    lines = corpusmill("rebuild", "--help").stdout.strip().splitlines()

    assert len(lines) <= 40
    assert lines[-1].strip().startswith("Example: corpusmill rebuild ")

"""One clear line for everything that is wrong: in what is typed, in files, on the network."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from one_line import only_line

from pipeline_assets import demo
from pipeline_assets.corpus.spine.lock import locked
from pipeline_assets.corpus.tokens.o200k_harmony import VOCABULARY, VOCABULARY_SHA256
from resources.loopback_hub import LoopbackHub

Corpusmill = Callable[..., subprocess.CompletedProcess[str]]
RecipeIn = Callable[..., Path]


class TestBadInput:
    """Each a clear line; nothing lost, nothing half written."""

    def test_wrong_tokenizer_hash(self, corpusmill: Corpusmill) -> None:
        result = corpusmill("tokenizer", "check", VOCABULARY, "--expected-sha256", "ab" * 32)

        assert result.returncode == 1
        assert only_line(result) == (
            f"{VOCABULARY}: sha256 is {VOCABULARY_SHA256}, pinned {'ab' * 32}; "
            "restore the file, or pin the hash of the one you mean"
        )

    def test_a_tokenizer_hash_that_is_none(self, corpusmill: Corpusmill) -> None:
        for word in ("446a9538", "ab" * 33, "AB" * 32, f"sha256:{VOCABULARY_SHA256}"):
            result = corpusmill("tokenizer", "check", VOCABULARY, "--expected-sha256", word)

            assert result.returncode == 2
            assert only_line(result) == (
                f"{word}: this is no sha256; give 64 hex digits, or nothing for the shipped one's"
            )

    def test_a_branch_name_instead_of_a_commit(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, tmp_path: Path
    ) -> None:
        path = recipe_in({"snapshot.revision": "main"})

        result = corpusmill("run", path, "--data", tmp_path / "data")

        assert result.returncode == 2
        assert only_line(result) == (
            f"{path}: `snapshot.revision` is 'main': a revision is a commit of 40 hex digits, since a branch moves; "
            "`corpusmill pin` gives the commit; correct the value"
        )
        assert not (tmp_path / "data").exists()

    def test_a_typo_in_a_recipe(self, corpusmill: Corpusmill, recipe_in: RecipeIn, tmp_path: Path) -> None:
        path = recipe_in({"megatron.token_budgett": 5})

        result = corpusmill("run", path, "--data", tmp_path / "data")

        assert result.returncode == 2
        assert only_line(result) == f"{path}: unknown key `megatron.token_budgett`; did you mean `token_budget`?"

    def test_an_unknown_recipe_names_the_nearest(self, corpusmill: Corpusmill, tmp_path: Path) -> None:
        result = corpusmill("run", "healing_text_v2", "--data", tmp_path)

        assert result.returncode == 2
        assert only_line(result).endswith("there is no such recipe; did you mean healing_text_v1?")

    def test_an_unknown_partition_names_those_there_are(self, corpusmill: Corpusmill, demo_root: Path) -> None:
        result = corpusmill("run", "healing_text_v1", "--partition", "test", "--data", demo_root)

        assert result.returncode == 2
        assert only_line(result) == "healing_text_v1: there is no partition 'test'; give one of train, valid"

    def test_an_unknown_dataset(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, hub: LoopbackHub, tmp_path: Path
    ) -> None:
        path = recipe_in({"snapshot.dataset": "nobody/nothing"})

        result = corpusmill("run", path, "--data", tmp_path / "data", env={"HF_ENDPOINT": hub.endpoint})

        assert result.returncode == 2
        assert only_line(result) == (
            f"nobody/nothing on {hub.endpoint}: there is no such dataset, or it is private (HTTP 401); "
            "check its name; if it is private, set HF_TOKEN to a token that may read it"
        )
        assert "to go on" not in result.stderr

    def test_an_unknown_commit(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, hub: LoopbackHub, tmp_path: Path
    ) -> None:
        path = recipe_in({"snapshot.revision": "0" * 40})

        result = corpusmill("run", path, "--data", tmp_path / "data", env={"HF_ENDPOINT": hub.endpoint})

        assert result.returncode == 2
        assert only_line(result) == (
            f"{demo.DATASET} on {hub.endpoint}: it has no revision {'0' * 40}; "
            f"run `corpusmill pin {demo.DATASET}` for its head"
        )
        assert "to go on" not in result.stderr

    def test_a_gated_dataset(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, demo_root: Path, tmp_path: Path
    ) -> None:
        folder = tmp_path / "hub"
        shutil.copytree(demo_root / "hub", folder)
        (folder / "datasets" / demo.DATASET / ".gated").touch()

        with LoopbackHub(folder) as gated:
            result = corpusmill("run", recipe_in(), "--data", tmp_path / "data", env={"HF_ENDPOINT": gated.endpoint})

        assert result.returncode == 1
        assert only_line(result) == (
            f"{demo.DATASET} on {gated.endpoint}: the dataset is gated; "
            "accept its terms on its page, then set HF_TOKEN to your token"
        )
        assert result.stderr.splitlines()[-1].startswith("to go on: corpusmill run ")

    def test_no_network(self, corpusmill: Corpusmill, tmp_path: Path) -> None:
        closed = "http://127.0.0.1:9"

        result = corpusmill(
            "pin", "any/thing", "--data", tmp_path, env={"HF_ENDPOINT": closed, "CORPUSMILL_HUB_TRIES": "1"}
        )

        assert result.returncode == 1
        assert only_line(result).startswith(f"{closed}: any/thing can't be reached (ConnectError: ")
        assert only_line(result).endswith("); check the network and HF_ENDPOINT, then run the same command again")

    def test_two_runs_at_once(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, hub: LoopbackHub, tmp_path: Path
    ) -> None:
        commit = hub.commits()[demo.DATASET]
        target = tmp_path / "data" / "corpora" / "fineweb_edu" / commit

        with locked(target):
            result = corpusmill("run", recipe_in(), "--data", tmp_path / "data", env={"HF_ENDPOINT": hub.endpoint})

        assert result.returncode == 1
        assert only_line(result).startswith(f"{target}: process {os.getpid()} on ")
        assert only_line(result).endswith("wait for it or stop it, then run the same command")

    @pytest.mark.slow
    def test_a_changed_recipe_needs_a_new_name_or_replace(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, demo_root: Path, tmp_path: Path
    ) -> None:
        root = tmp_path / "data"
        shutil.copytree(demo_root, root)
        path = recipe_in({"megatron.valid_fraction": "0.2"})
        before = (root / "megatron" / "healing_text_v1" / "train" / "manifest.json").read_bytes()

        refused = corpusmill("run", path, "--data", root)
        after_refusal = (root / "megatron" / "healing_text_v1" / "train" / "manifest.json").read_bytes()
        replaced = corpusmill("run", path, "--data", root, "--replace", "--json")

        assert refused.returncode == 2
        assert only_line(refused) == (
            f"{root}/selections/healing_text_v1: another version is sealed here: the recipe changed "
            "(valid_fraction: 0.1 → 0.2); give it another `name` in the recipe, or run with --replace"
        )
        assert "to go on" not in refused.stderr
        assert after_refusal == before
        assert replaced.returncode == 0, replaced.stderr
        assert {row["state"] for row in json.loads(replaced.stdout)} == {"current"}

    def test_a_changed_snapshot_needs_another_snapshot_name_or_replace(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, demo_root: Path, tmp_path: Path
    ) -> None:
        root = tmp_path / "data"
        shutil.copytree(demo_root, root)
        commit = next((root / "corpora" / "fineweb_edu").glob("[!.]*")).name

        result = corpusmill("run", recipe_in({"snapshot.seed": "other"}), "--data", root)

        assert result.returncode == 2
        assert only_line(result) == (
            f"{root}/corpora/fineweb_edu/{commit}: another version is sealed here: the recipe changed "
            "(seed: healing_text_v1 → other); give it another `snapshot.name` in the recipe, or run with --replace"
        )

    @pytest.mark.slow
    def test_a_damaged_artifact_stays_until_replace_builds_it_again(
        self, corpusmill: Corpusmill, demo_root: Path, tmp_path: Path
    ) -> None:
        root = tmp_path / "data"
        shutil.copytree(demo_root, root)
        snapshot = next((root / "corpora" / "fineweb_edu").glob("[!.]*"))
        manifest = snapshot / "manifest.json"
        manifest.chmod(0o644)
        manifest.write_text("{")

        refused = corpusmill("run", "healing_text_v1", "--data", root)
        replaced = corpusmill("run", "healing_text_v1", "--data", root, "--replace", "--json")
        undisturbed = corpusmill("run", "healing_text_v1", "--data", demo_root, "--json")

        assert refused.returncode == 1
        assert only_line(refused) == (
            f"{snapshot}: it is damaged ({manifest}: this is no manifest: no JSON (Input data was "
            "truncated)); run with --replace to build it again"
        )
        assert replaced.returncode == 0, replaced.stderr
        assert [row["digest"] for row in json.loads(replaced.stdout)] == [
            row["digest"] for row in json.loads(undisturbed.stdout)
        ]

    def test_a_recipe_under_another_name_than_its_file(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, tmp_path: Path
    ) -> None:
        copy = recipe_in().rename(tmp_path / "healing_text_v2.yaml")

        result = corpusmill("run", copy, "--data", tmp_path / "data")

        assert result.returncode == 2
        assert only_line(result) == (
            f"{copy}: the file is healing_text_v2, its `name` is healing_text_v1; "
            "give both one name: artifacts are named after it, and a copied recipe would replace the original's"
        )
        assert not (tmp_path / "data").exists()

    @pytest.mark.parametrize("words", [["run", "healing_text_v1"], ["demo"], ["ui"]], ids=["run", "demo", "ui"])
    def test_a_file_in_the_place_of_the_data_root(
        self, corpusmill: Corpusmill, tmp_path: Path, words: list[str]
    ) -> None:
        (tmp_path / "data").write_text("mine")

        result = corpusmill(*words, "--data", tmp_path / "data")

        assert result.returncode == 2
        assert only_line(result) == (
            f"{tmp_path}/data: a file lies where a folder belongs; give another folder, or move the file away"
        )
        assert (tmp_path / "data").read_text() == "mine"
        assert "to go on" not in result.stderr

    def test_a_setting_out_of_range(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, hub: LoopbackHub, tmp_path: Path
    ) -> None:
        env = {"HF_ENDPOINT": hub.endpoint, "CORPUSMILL_ZSTD_LEVEL": "99"}

        result = corpusmill("run", recipe_in(), "--data", tmp_path / "data", env=env)

        assert result.returncode == 2
        assert only_line(result) == "CORPUSMILL_ZSTD_LEVEL: it is '99'; set a whole number from 1 to 22"
        assert "to go on" not in result.stderr
        assert not (tmp_path / "data" / "corpora").exists()

    def test_a_dataset_name_without_an_owner(self, corpusmill: Corpusmill, tmp_path: Path) -> None:
        result = corpusmill("pin", "fineweb-edu", "--data", tmp_path)

        assert result.returncode == 2
        assert only_line(result) == (
            "fineweb-edu: this is no dataset; write owner/name, such as HuggingFaceFW/fineweb-edu"
        )

    def test_a_folder_that_is_not_there(self, corpusmill: Corpusmill, tmp_path: Path) -> None:
        none = tmp_path / "none"

        verified = corpusmill("verify", none)
        served = corpusmill("hub", "serve", none)
        shown = corpusmill("ui", "--data", none / "data")

        assert [result.returncode for result in (verified, served, shown)] == [2, 2, 2]
        assert only_line(verified) == f"{none}: there is no such folder; give the folder of a finished artifact"
        assert only_line(served) == (
            f"{none}: there is no such folder; give a folder with datasets/<owner>/<name>/… inside"
        )
        assert only_line(shown) == f"{none}/data: there is no such folder; give the data root of a build with --data"

    def test_a_port_that_is_taken(self, corpusmill: Corpusmill, hub: LoopbackHub, demo_root: Path) -> None:
        port = hub.endpoint.rpartition(":")[2]

        served = corpusmill("hub", "serve", demo_root / "hub", "--port", port)
        shown = corpusmill("ui", "--data", demo_root, "--port", port)

        assert [result.returncode for result in (served, shown)] == [1, 1]
        for result in (served, shown):
            assert only_line(result) == f"127.0.0.1:{port}: the port is taken; give another one with --port"

    @pytest.mark.slow
    def test_a_budget_larger_than_the_corpus_is_said_and_holds_back_what_was_built(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, hub: LoopbackHub, tmp_path: Path
    ) -> None:
        path = recipe_in({"megatron.token_budget": 10**9})

        result = corpusmill("run", path, "--data", tmp_path / "data", env={"HF_ENDPOINT": hub.endpoint})

        assert result.returncode == 1
        failed = [line for line in result.stderr.splitlines() if line.startswith("FAILED healing/megatron_split/")]
        assert [line.split()[1] for line in failed] == [
            "healing/megatron_split/train:",
            "healing/megatron_split/valid:",
        ]
        for line in failed:
            assert ": token_budget_met failed: " in line
            assert "the corpus ends before the budget; take a larger snapshot" in line
        assert "2 of 5 artifacts failed" in only_line(result)

    def test_a_shard_edited_after_sealing(
        self, corpusmill: Corpusmill, recipe_in: RecipeIn, demo_root: Path, tmp_path: Path
    ) -> None:
        root = tmp_path / "data"
        shutil.copytree(demo_root, root)
        shutil.rmtree(root / "selections")
        shard = next((root / "corpora").rglob("shards/*.jsonl.zst"))
        shard.chmod(0o644)
        data = bytearray(shard.read_bytes())
        data[len(data) // 2] ^= 1
        shard.write_bytes(data)

        result = corpusmill("run", recipe_in(), "--data", root)

        assert result.returncode == 1
        assert only_line(result).startswith(f"{shard}: sha256 is ")
        assert only_line(result).endswith(f"build it again: corpusmill rebuild {shard.parents[1]} --put-back")

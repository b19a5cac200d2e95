"""`corpusmill diff` as a user types it, on the demo's artifacts and on variants of them."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from demo_variants import V1, V2, build, snapshot_of, write_recipe

Corpusmill = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def stricter(demo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data root whose snapshot keeps pages with a score of 4 and more only. Tests only read it."""
    root = tmp_path_factory.mktemp("stricter")
    shutil.copytree(demo_root / "recipes", root / "recipes")
    path = write_recipe(root, {"snapshot": {"rules": ["int_score >= 4"]}}, "healing_text_v4")
    build(path, root, demo_root / "hub_cache")
    return root


def doc_ids(split: Path) -> list[str]:
    return pq.read_table(split / "documents.parquet")["doc_id"].to_pylist()


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in result.stderr, result.stderr
    [line] = result.stderr.splitlines()
    return line.removeprefix("corpusmill: ")


class TestDiff:
    """What was asked, made, read and kept: of A and of B."""

    def test_an_artifact_and_its_copy_are_identical(self, corpusmill: Corpusmill, demo_root: Path, root: Path) -> None:
        result = corpusmill("diff", demo_root / V1, root / V1)

        digest = json.loads((root / V1 / "manifest.json").read_text())["digest"]
        assert result.returncode == 0
        assert result.stdout.splitlines() == [
            f"A  {demo_root / V1}  {digest}",
            f"B  {root / V1}  {digest}",
            "identical",
        ]

    def test_another_valid_fraction_moves_documents_between_the_splits(
        self, corpusmill: Corpusmill, two_sets: Path
    ) -> None:
        result = corpusmill("diff", two_sets / V1, two_sets / V2, "--json")

        found = json.loads(result.stdout)
        train, valid = found["documents"]
        assert result.returncode == 1
        assert found["identical"] is False
        assert found["recipe"] == ["valid_fraction: 0.1 → 0.2"]
        assert [change["name"] for change in found["upstream"]] == [
            "healing/healing_text_manifest",
            "healing/megatron_split/train",
            "healing/megatron_split/valid",
        ]
        assert (train["part"], valid["part"]) == ("train", "valid")
        for changes, split in ((train, "train"), (valid, "valid")):
            left, right = doc_ids(two_sets / V1 / split), doc_ids(two_sets / V2 / split)
            told = [changes[key] for key in ("only_in_a", "only_in_b", "in_both", "changed")]
            by_hand = [
                [doc_id for doc_id in left if doc_id not in right],
                [doc_id for doc_id in right if doc_id not in left],
                [doc_id for doc_id in left if doc_id in right],
                [],  # no token of a document depends on its split
            ]
            assert told == [{"documents": len(ids), "examples": ids[:5]} for ids in by_hand]

    def test_a_stricter_rule_keeps_fewer_documents_of_the_same_rows(
        self, corpusmill: Corpusmill, demo_root: Path, stricter: Path
    ) -> None:
        result = corpusmill("diff", snapshot_of(demo_root), snapshot_of(stricter))

        lines = result.stdout.splitlines()
        assert result.returncode == 1
        assert lines[2:5] == ["different", "recipe", "  rules: ['int_score >= 3'] → ['int_score >= 4']"]
        assert lines[5:7] == ["read from the hub", f"  commit: HuggingFaceFW/fineweb-edu@{snapshot_of(demo_root).name}"]
        assert lines[7] == "  the same files and row groups"
        assert any(line.split() == ["rows", "read", "1,037", "1,037"] for line in lines)
        assert any(line.startswith("  0 documents only in B") for line in lines)
        assert lines[-1] == "  0 documents in both, but with another text"

    def test_artifacts_of_different_kinds_are_wrong_use(self, corpusmill: Corpusmill, demo_root: Path) -> None:
        result = corpusmill("diff", demo_root / V1, demo_root / V1 / "train")

        assert result.returncode == 2
        assert only_line(result) == (
            f"{demo_root / V1}/train: this is a healing/megatron_split, "
            f"{demo_root / V1} is a healing/megatron_dataset; give two artifacts of one kind"
        )

    def test_a_folder_that_is_no_artifact_is_wrong_use(
        self, corpusmill: Corpusmill, demo_root: Path, tmp_path: Path
    ) -> None:
        result = corpusmill("diff", demo_root / V1, tmp_path)

        assert result.returncode == 2
        assert only_line(result) == (
            f"{tmp_path}: nothing is sealed here (no manifest.json); give the folder of a finished artifact"
        )

    def test_a_damaged_artifact_is_one_line(self, corpusmill: Corpusmill, demo_root: Path, root: Path) -> None:
        (root / V1 / "train" / "tokens.idx").unlink()

        result = corpusmill("diff", demo_root / V1 / "valid", root / V1 / "train")

        assert result.returncode == 1
        assert only_line(result).startswith(f"{root / V1}/train/tokens.idx: the file is missing; ")


def test_help_fits_a_screen_and_ends_with_an_example(corpusmill: Corpusmill) -> None:
    result = corpusmill("diff", "--help")

    lines = result.stdout.strip().splitlines()
    assert result.returncode == 0
    assert len(lines) <= 40
    assert lines[-1].strip().startswith("Example: corpusmill diff ")

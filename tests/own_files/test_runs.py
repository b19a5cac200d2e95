"""Runs of recipes that `init` wrote, by commands and in notebooks."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
import zstandard
from command_results import Corpusmill, refused
from mixed_files import text

from corpusmill import open_folder
from pipeline_assets.build.rows.table_shard import DOCUMENT_SCHEMA

PROJECT = Path(__file__).parents[2]


def test_files_with_equal_row_numbers_lose_no_rows(corpusmill: Corpusmill, tmp_path: Path) -> None:
    root, files = tmp_path / "data", tmp_path / "files"
    files.mkdir()
    for name in ("a", "b"):
        rows = "".join(f"{number},Row {number} of {name}\n" for number in range(3))
        (files / f"{name}.csv").write_text(f"id,text\n{rows}")

    assert corpusmill("init", "mine", "--input", files, "--data", root).returncode == 0
    recipe = root / "recipes" / "mine.yaml"
    complete = corpusmill("run", "mine", "--data", root, "--workers", "0")
    recipe.write_text(recipe.read_text().replace("id: null, ", ""))
    incomplete = corpusmill("run", "mine", "--data", root, "--workers", "0", "--replace", "--strict")

    assert "different texts have the id 0" in recipe.read_text()
    assert "normalized/files  6 documents\n" in complete.stdout
    assert "rejected" not in complete.stderr
    assert "normalized/files  3 documents; other rows: 3 duplicate_doc_id\n" in incomplete.stdout
    assert incomplete.returncode == 1
    assert (
        "files: 3 of 6 rows were rejected, because their ids repeat; unless they are copies, "
        "set `columns.id` to another column, or to null for ids that are derived from the texts\n"
    ) in incomplete.stderr


def test_a_small_folder_becomes_one_padded_row(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.txt").write_text("A few words alone.")
    corpusmill("init", "few", "--input", tmp_path / "few", "--data", tmp_path / "data")

    planned = corpusmill("plan", "few", "--data", tmp_path / "data").stdout.splitlines()
    ran = corpusmill("run", "few", "--data", tmp_path / "data", "--workers", "0")

    assert ran.returncode == 0, ran.stderr
    assert "  less than one row is possible" in planned
    assert re.fullmatch(rf"  {tmp_path}/data: [\d.]+ [GTM]B free", planned[-1])  # the required size is unknown
    packed = open_folder(tmp_path / "data" / "stage_a" / "few" / "packed" / "few").packed()
    assert packed.input_ids.shape == (1, 2048)
    assert packed.meta.tokens == 6


def test_text_endings_without_files_are_refused(corpusmill: Corpusmill, mixed: Path, tmp_path: Path) -> None:
    corpusmill("init", "mine", "--input", mixed, "--data", tmp_path)
    path = tmp_path / "recipes" / "mine.yaml"
    path.write_text(path.read_text().replace("    domain:", "    text_endings: [.py]\n    domain:", 1))

    refusal = refused(corpusmill("plan", "mine", "--data", tmp_path))

    assert refusal.endswith(
        "no file of the source ends with .py; add the files to `files`, such as **/*.py, or remove `text_endings`"
    )


def test_a_data_root_in_the_folder_is_not_read_by_a_second_run(corpusmill: Corpusmill, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "A text."}\n'))
    (tmp_path / "notes.json").write_text(json.dumps([{"text": "Another text."}]))
    init = corpusmill("init", "mine", "--input", ".", cwd=tmp_path)
    first, again = (corpusmill("run", "mine", "--workers", "0", cwd=tmp_path) for _ in range(2))

    assert (init.returncode, first.returncode, again.returncode) == (0, 0, 0), again.stderr
    recipe = yaml.safe_load((tmp_path / "data" / "recipes" / "mine.yaml").read_text())
    assert (recipe["sources"][0]["files"], recipe["sources"][0]["exclude"]) == (
        ["**/*.json", "**/*.jsonl.zst"],
        ["data"],
    )
    assert "built" not in again.stdout


def test_a_recipe_of_init_packs_every_document(built: Path) -> None:
    packed = open_folder(built / "stage_a" / "mine" / "packed" / "mine")

    counts = packed.manifest.identity.counts
    assert counts["documents"] == 30 + 9 + 12 + 3
    assert {counted["epochs"] for counted in counts["by_source"].values()} == {"1.000000"}
    assert counts["tokens"] == sum(counted["text_tokens"] for counted in counts["by_source"].values())


def test_a_notebook_reads_rows_and_traces_them_to_their_files(built: Path) -> None:
    corpus = open_folder(built / "stage_a" / "mine" / "deduplicated" / "mine")

    table, documents = corpus.table(), list(corpus.documents())

    assert table.schema == DOCUMENT_SCHEMA
    assert table["doc_id"].to_pylist() == [document.doc_id for document in documents]
    [match] = corpus.trace(doc_id="a-7")
    assert (match.text.source.file, match.text.part.text) == ("rows.jsonl", text(7))
    packed = open_folder(built / "stage_a" / "mine" / "packed" / "mine")
    [token] = packed.trace(token=0)
    assert token.token is not None and token.token.id == packed.packed()[0][0]
    assert repr(corpus).startswith("<stage_a/deduplicated ") and "54 documents" in repr(corpus)


def test_a_notebook_runs_a_recipe_and_trains_on_its_rows_without_dagster(built: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    shutil.copytree(built / "recipes", tmp_path / "recipes")
    code = (
        "import sys\n"
        "from corpusmill import run\n"
        f"made = run('mine', {str(tmp_path)!r}, workers=0)\n"
        "loaded = {'dagster', 'torch'} & set(sys.modules)\n"
        "from corpusmill import loader\n"
        "[packed] = made['stage_a/packed']\n"
        "rows = sum(len(tokens) for tokens, _, _ in loader(packed.folder, 4, seed=1))\n"
        "print(rows, packed.manifest.digest, *loaded)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=PROJECT, check=True)

    packed = open_folder(built / "stage_a" / "mine" / "packed" / "mine")
    assert result.stdout.split() == [str(len(packed.packed())), packed.manifest.digest]

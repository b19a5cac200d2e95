"""Stage A recipes from a command line: input patterns and hub datasets."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from healing_build import DATASET
from refusals import refusal

from pipeline_assets.build.recipe_writing import write_new_recipe
from pipeline_assets.commands.inputs import folder_and_patterns, hub_source_section, recipe_patterns
from pipeline_assets.commands.stage_a import stage_a_recipe
from pipeline_assets.corpus.readers.hub_configs import Config, find_split_files
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.systems.stage_a import StageARecipe

NOTES = {
    "kind": "local",
    "source": "notes",
    "path": "notes",
    "files": ["*.jsonl"],
    "columns": {"text": "text", "id": None, "created_at": None, "license": None},
    "text_unit": None,
    "domain": "books",
    "license_tag": "mit",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a/x.jsonl", "a/b/y.jsonl", "a/b/z.txt", "c/w.jsonl", "d [1]/v.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("inputs", "folder", "patterns"),
    [
        (["a/x.jsonl"], "a", ["x.jsonl"]),
        (["a"], "a", ["**/*"]),
        (["a/*.jsonl"], "a", ["*.jsonl"]),
        (["a/**/*.jsonl"], "a", ["**/*.jsonl"]),
        (["*/*.jsonl"], ".", ["*/*.jsonl"]),
        (["a/x.jsonl", "c/w.jsonl"], ".", ["a/x.jsonl", "c/w.jsonl"]),
        (["a/b", "a/x.jsonl"], "a", ["b/**/*", "x.jsonl"]),
        (["./a/../c/w.jsonl"], "c", ["w.jsonl"]),
        (["/"], "/", ["**/*"]),
        (["d [1]"], "d [1]", ["**/*"]),  # the name of a folder is no pattern
        (["d [1]", "a"], ".", ["d [[]1]/**/*", "a/**/*"]),
    ],
)
def test_inputs_are_patterns_below_one_folder(root: Path, inputs: list[str], folder: str, patterns: list[str]) -> None:
    assert folder_and_patterns(inputs, "**/*") == (Path(os.path.normpath(root / folder)), patterns)


def test_an_input_that_matches_nothing_is_named(root: Path) -> None:
    with pytest.raises(UsageError, match=r"a/\*.parquet: no file matches; correct the path, or quote the pattern"):
        folder_and_patterns(["a/x.jsonl", "a/*.parquet"], "**/*")


def test_a_recipe_that_its_class_refuses_is_not_written(tmp_path: Path) -> None:
    content = stage_a_recipe("notes", [NOTES | {"text_unit": "page"}], "normalized")

    with pytest.raises(UsageError, match=r"sources.*text_unit"):
        write_new_recipe(StageARecipe, content, tmp_path, "stage-a", False)

    assert not (tmp_path / "recipes").exists()


CARD = b"""---
configs:
- config_name: default
  data_files: data/*.parquet
- config_name: deep
  data_files: data/**/*.parquet
- config_name: folder
  data_dir: data
---
"""


def test_a_hub_source_has_the_files_in_the_card(publish: Callable[..., str], hub_files: HubFiles) -> None:
    page = pa.table({"text": ["a page"]})
    commit = publish({"README.md": CARD, "data/a.parquet": page, "data/extra/b.parquet": page})

    def files(config: str) -> list[str]:
        section = hub_source_section(hub_files, DATASET, config, commit, {"documents": 1}, (), "0")
        return [*section["files"]]

    assert files("default") == ["data/a.parquet"]
    assert files("deep") == ["data/*.parquet"]
    with pytest.raises(UsageError, match=r"has no files of split 'train' \(its card names only the folder data\)"):
        files("folder")


def test_a_dataset_in_an_unsupported_format_is_refused_with_an_alternative(
    publish: Callable[..., str], hub_files: HubFiles
) -> None:
    commit = publish({"README.md": b"A card.\n", "train.csv": b"text\na page\n"})

    message = refusal(lambda: hub_source_section(hub_files, DATASET, "default", commit, {"documents": 1}, (), "0"))

    fix = "download it, and run corpusmill init pages --input FOLDER"
    assert message == f"{DATASET}@{commit}: no file of the dataset is Parquet or JSON lines; {fix}"


LINES = b'{"text": "a page", "timestamp": "2019-04-25", "url": "http://a", "id": 7}\n'
LINES_CARD = b"""---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/c4-train.*.json.gz
  - split: validation
    path: en/c4-validation.*.json.gz
- config_name: folder
  data_dir: books
---
"""


@pytest.mark.parametrize(
    ("config", "files"),
    [("en", ["en/c4-train.*.json.gz"]), ("folder", ["books/train/*.jsonl"])],
)
def test_a_hub_source_of_json_lines_has_the_files_in_the_card(
    config: str, files: list[str], publish: Callable[..., str], hub_files: HubFiles
) -> None:
    packed = gzip.compress(LINES)
    names = ["en/c4-train.0.json.gz", "en/c4-train.1.json.gz", "en/c4-validation.0.json.gz"]
    books = {"books/train/0.jsonl": LINES, "books/train/1.jsonl": LINES, "books/test/0.jsonl": LINES}
    commit = publish({"README.md": LINES_CARD} | dict.fromkeys(names, packed) | books)

    section = hub_source_section(hub_files, DATASET, config, commit, {"documents": 1}, (), "0")

    assert section["files"] == files
    assert section["columns"] == {"text": "text", "id": "id", "created_at": None, "license": None}


@pytest.mark.parametrize(
    ("paths", "files"),
    [
        (["train/c1/0.jsonl.zst", "train/c2/0.jsonl.zst", "validation/c1/0.jsonl.zst"], ["train/*.jsonl.zst"]),
        (["web-train-0.jsonl", "web-test-0.jsonl"], ["web-train-0.jsonl"]),
        (["a.jsonl", "b/c.jsonl", "dataset_infos.json"], ["*.jsonl"]),
        (["a.jsonl", "b.jsonl.gz"], ["*.jsonl", "*.jsonl.gz"]),
        (["a.parquet", "b.jsonl"], ["*.parquet"]),
    ],
)
def test_without_a_card_folders_and_file_names_decide_the_split(paths: list[str], files: list[str]) -> None:
    patterns, matches = find_split_files(None, "train", paths, "here")

    assert recipe_patterns(patterns, matches, paths) == files


@pytest.mark.parametrize(
    ("split", "used"),
    [("train", ["a.jsonl", "b.jsonl"]), ("validation", []), ("rare", [])],
)
def test_files_whose_names_contain_no_split_belong_to_train(split: str, used: list[str]) -> None:
    assert find_split_files(None, split, ["a.jsonl", "b.jsonl"], "here")[1] == used


@pytest.mark.parametrize("folder", ["train_sets", "./train_sets/"])
def test_the_folder_name_of_a_config_labels_only_files_without_a_label(folder: str) -> None:
    config = Config("default", None, None, (), folder)
    labelled = ["train_sets/train-0.parquet", "train_sets/test-0.parquet"]

    assert find_split_files(config, "train", labelled, "here")[1] == ["train_sets/train-0.parquet"]
    assert find_split_files(config, "test", labelled, "here")[1] == ["train_sets/test-0.parquet"]
    assert find_split_files(config, "train", ["train_sets/0.parquet"], "here")[1] == ["train_sets/0.parquet"]


def test_a_split_of_any_name_is_found_in_folders_and_file_names() -> None:
    paths = ["train/0.jsonl", "rare/0.jsonl", "web-rare-0.jsonl", "rarely.jsonl", "dev/0.jsonl"]

    assert find_split_files(None, "rare", paths, "here")[1] == ["rare/0.jsonl", "web-rare-0.jsonl"]
    assert find_split_files(None, "validation", paths, "here")[1] == ["dev/0.jsonl"]

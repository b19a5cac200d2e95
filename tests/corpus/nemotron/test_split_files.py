"""Files of splits by the card, else by file name; one format per split is read."""

import json

import pytest
from refusals import refusal

from pipeline_assets.corpus.nemotron.splits import (
    SplitFiles,
    find_split,
    find_splits,
    partition_key,
    split_from_file_name,
)
from pipeline_assets.spine.errors import InputError, UsageError

WHERE = "nvidia/Nemotron-Math-v2@0"
MATH = ["README.md", "data/high.part_00.jsonl", "data/high.part_01.jsonl", "data/low.jsonl", "data/medium.jsonl"]
CARD = """---
license: cc-by-4.0
configs:
- config_name: default
  data_files:
  - split: high_part00
    path: data/high.part_00.jsonl
  - split: low
    path:
    - data/low.jsonl
---
# Nemotron
"""


@pytest.mark.parametrize(
    ("path", "split"),
    [
        ("data/high.part_00.jsonl", "high_part00"),
        ("data/high_part00.parquet", "high_part00"),
        ("data/MCQ.jsonl", "MCQ"),
        ("data/chat_if.jsonl.zst", "chat_if"),
        ("train-00000-of-00005.parquet", "train"),
        ("data/low.part_12-00001-of-00002.jsonl.gz", "low_part12"),
        ("v1.2 (new).jsonl", "v1_2_new_"),
        ("Train.JSONL.GZ", "Train"),
        ("low.Parquet", "low"),
    ],
)
def test_a_split_is_named_after_its_file(path: str, split: str) -> None:
    assert split_from_file_name(path) == split


@pytest.mark.parametrize("card", ["", "---\nlicense: cc-by-4.0\n---\n"])
def test_without_configs_in_the_card_file_names_define_the_splits(card: str) -> None:
    paths = [*MATH, "LICENSE", "data/notes.txt", "dataset_infos.json"]

    splits_found = find_splits(paths, card, WHERE)

    assert list(splits_found) == ["high_part00", "high_part01", "low", "medium"]
    assert splits_found["high_part01"] == SplitFiles("high_part01", ("data/high.part_01.jsonl",), "jsonl", "file name")


def test_json_lines_win_over_parquet_which_is_listed_as_left_out() -> None:
    names = [f"data/low-0000{number}-of-00003.parquet" for number in range(3)]

    splits_found = find_splits([*MATH, "data/high_part00.parquet", *reversed(names)], "", WHERE)

    assert splits_found["low"] == SplitFiles("low", ("data/low.jsonl",), "jsonl", "file name", tuple(names))
    assert splits_found["high_part00"].left_out == ("data/high_part00.parquet",)


def test_splits_do_not_depend_on_the_order_of_the_listing() -> None:
    listing = [*MATH, "data/chat-00000-of-00002.parquet", "data/chat-00001-of-00002.parquet"]

    forwards, backwards = find_splits(listing, "", WHERE), find_splits(listing[::-1], "", WHERE)

    assert [*backwards.items()] == [*forwards.items()]
    assert forwards["chat"].files == tuple(listing[-2:])


PARQUET = ("data/low-00000-of-00002.parquet", "data/low-00001-of-00002.parquet")
TWO_SPLITS = "  data_files: [{split: train, path: code/train.jsonl}, {split: test, path: [b.jsonl, a.jsonl]}]\n"


def configs(*entries: str) -> str:
    return "".join(["---\nconfigs:\n", *(f"- config_name: {entry}" for entry in entries), "---\n"])


def config_files(card: str, *paths: str) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    """Return the config and the files of each split."""
    return {split: (entry.config, entry.files) for split, entry in find_splits(paths, card, WHERE).items()}


def test_the_card_defines_the_splits_and_their_format() -> None:
    splits_found = find_splits([*MATH, *reversed(PARQUET)], CARD.replace("data/low.jsonl", "data/low*.parquet"), WHERE)

    assert find_splits(MATH, CARD, WHERE)["low"] == SplitFiles("low", ("data/low.jsonl",), "jsonl", "card")
    assert list(splits_found) == ["high_part00", "low"]
    assert splits_found["low"] == SplitFiles("low", PARQUET, "parquet", "card", ("data/low.jsonl",))


def test_a_split_name_shared_by_configs_is_prefixed_with_its_config() -> None:
    card = configs('math\n  data_files: "math/*.jsonl"\n', f"code\n{TWO_SPLITS}")
    files = ("math/a.jsonl", "code/train.jsonl", "a.jsonl", "b.jsonl")

    assert config_files(card, *files) == {
        "math": ("math", ("math/a.jsonl",)),
        "code_train": ("code", ("code/train.jsonl",)),
        "test": ("code", ("a.jsonl", "b.jsonl")),
    }
    assert [config for config, _ in config_files(configs(f"default\n{TWO_SPLITS}"), *files).values()] == [None, None]


def test_files_in_the_folder_of_a_config_define_its_splits() -> None:
    card = configs("en\n  data_dir: en\n", "fr\n  data_dir: ./fr\n")

    assert config_files(card, "en/x.jsonl", "fr/x.jsonl", "other/x.jsonl") == {
        "en": ("en", ("en/x.jsonl",)),
        "fr": ("fr", ("fr/x.jsonl",)),
    }
    assert config_files(card, "en/train.jsonl", "en/test-00000-of-00001.parquet", "fr/a/train.jsonl") == {
        "test": ("en", ("en/test-00000-of-00001.parquet",)),
        "en_train": ("en", ("en/train.jsonl",)),
        "fr": ("fr", ("fr/a/train.jsonl",)),
    }


FOLDER = configs("fr\n  data_dir: ./fr\n")
MISSING_FILE = CARD.replace("data/low.jsonl", "data/gone.jsonl")
CARD_FIX = "correct the card or pin another commit, or set `files` of the dataset's splits in a recipe"


def test_patterns_of_a_recipe_without_a_file_are_to_be_corrected_there() -> None:
    refused = refusal(lambda: find_split(MATH, "", "low", {"low": ["gone/*.jsonl"]}, WHERE))

    assert refused == (
        f"{WHERE}: split 'low' of the recipe: no JSON lines or Parquet file matches gone/*.jsonl; "
        "correct `files` of the split"
    )


@pytest.mark.parametrize(
    ("files", "card", "line"),
    [
        (
            ["a b.jsonl", "a_b.jsonl"],
            "",
            "the files a b.jsonl and a_b.jsonl would both be the split a_b; set `files` of each split in a recipe",
        ),
        (["en/x.jsonl"], FOLDER, f"config 'fr' of the card: no JSON lines or Parquet file matches ./fr/**; {CARD_FIX}"),
        (
            MATH,
            MISSING_FILE,
            f"split 'low' of the card: no JSON lines or Parquet file matches data/gone.jsonl; {CARD_FIX}",
        ),
        (MATH, "---\nconfigs: [\n---\n", "the card's YAML cannot be read"),
    ],
)
def test_files_and_cards_without_clear_splits_are_refused_in_one_line(files: list[str], card: str, line: str) -> None:
    refused = refusal(lambda: find_splits(files, card, WHERE))

    assert refused.startswith(f"{WHERE}: {line}") and "\n" not in refused


@pytest.mark.parametrize(
    ("files", "splits"),
    [
        (["train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl"], ["train"]),
        (["high.part_00.jsonl", "high_part00.parquet"], ["high_part00"]),
        (["a/train.jsonl", "b/train.jsonl.gz"], ["train"]),
    ],
)
def test_shards_and_formats_of_one_split_form_one_split(files: list[str], splits: list[str]) -> None:
    assert list(find_splits(files, "", WHERE)) == splits


@pytest.mark.parametrize(
    ("configs", "both"),
    [
        (
            {"default": ["a.b", "a_b"]},
            "'a.b' of config 'default' and 'a_b' of config 'default' would both be the split a_b",
        ),
        ({"test": ["train"], "b": ["train", "test"]}, "'train' of config 'test' and 'test' of config 'b'"),
        ({"a.b": ["train"], "a_b": ["train"]}, "'train' of config 'a.b' and 'train' of config 'a_b'"),
    ],
)
def test_card_splits_with_colliding_names_are_refused(configs: dict[str, list[str]], both: str) -> None:
    entries = [
        {"config_name": name, "data_files": [{"split": split, "path": f"{name}/{split}.jsonl"} for split in splits]}
        for name, splits in configs.items()
    ]
    files = [data_file["path"] for entry in entries for data_file in entry["data_files"]]

    with pytest.raises(InputError, match=f"the card's splits {both}"):
        find_splits(files, f"---\n{json.dumps({'configs': entries})}\n---\n", WHERE)


@pytest.mark.parametrize(
    ("split", "line"),
    [
        ("hihg_part00", "split 'hihg_part00' not found; did you mean high_part00?"),
        ("train", "split 'train' not found; choose one of high_part00, high_part01, low, medium"),
    ],
)
def test_an_unknown_split_is_refused_with_the_nearest_name(split: str, line: str) -> None:
    assert refusal(lambda: find_split(MATH, "", split, {}, WHERE), UsageError) == f"{WHERE}: {line}"


def test_a_dataset_without_rows_is_refused() -> None:
    with pytest.raises(UsageError, match="no JSON lines or Parquet files found"):
        find_split(["README.md", "a.txt"], "", "train", {}, WHERE)


def test_a_partition_is_named_after_dataset_and_split() -> None:
    assert partition_key("nvidia/Nemotron-Science-v1", "MCQ") == "nemotron-science-v1/MCQ"

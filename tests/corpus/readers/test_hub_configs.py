"""Configs of cards by language and script, and their file patterns."""

from collections.abc import Callable
from pathlib import Path

import pytest
from datasets.data_files import resolve_pattern
from hub_dataset import DATASET

from pipeline_assets.corpus.readers.hub_configs import (
    Config,
    find_config,
    matching_configs,
    matching_paths,
    parse_configs,
    read_configs,
)
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.errors import InputError, UsageError

# As HuggingFaceFW/fineweb-2 writes its card, cut to five configs.
CARD = """---
license: odc-by
language:
- eng
configs:
- config_name: eng_Latn
  data_files:
  - split: train
    path: data/eng_Latn/train/*
  - split: test
    path: data/eng_Latn/test/*
- config_name: asm_Beng
  data_files:
  - split: train
    path: data/asm_Beng/train/*
- config_name: ben_Beng
  data_files: data/ben_Beng/**/*.parquet
- config_name: eng_Latn_removed
  data_files:
  - path: [data/eng_Latn_removed/train/*, data/eng_Latn_removed/more/*]
- config_name: sample-10BT
---
# A title

---
not: yaml
"""
WHERE = "owner/name@commit"


@pytest.fixture(scope="module")
def configs() -> list[Config]:
    return parse_configs(CARD, WHERE)


def list_names(configs: list[Config]) -> list[str]:
    return [config.name for config in configs]


def test_language_and_script_must_match_whole(configs: list[Config]) -> None:
    assert list_names(matching_configs(configs, "eng", None)) == ["eng_Latn", "eng_Latn_removed"]
    assert list_names(matching_configs(configs, "eng", "Latn")) == ["eng_Latn", "eng_Latn_removed"]
    assert list_names(matching_configs(configs, None, "Beng")) == ["asm_Beng", "ben_Beng"]
    assert list_names(matching_configs(configs, "eng", "Beng")) == []
    assert list_names(matching_configs(configs, "en", None)) == []
    assert list_names(matching_configs(configs, None, None)) == ["eng_Latn", "asm_Beng", "ben_Beng", "eng_Latn_removed"]


def test_the_card_defines_the_files_of_a_split(configs: list[Config]) -> None:
    assert [config.patterns("train") for config in configs[:4]] == [
        ["data/eng_Latn/train/*"],
        ["data/asm_Beng/train/*"],
        ["data/ben_Beng/**/*.parquet"],
        ["data/eng_Latn_removed/train/*", "data/eng_Latn_removed/more/*"],
    ]
    assert configs[0].patterns("test") == ["data/eng_Latn/test/*"]
    assert (configs[4].split_patterns, configs[4].language) == ((), None)


def test_patterns_are_relative_to_the_folder_of_a_config() -> None:
    card = """---
configs:
- config_name: en
  data_dir: en
  data_files:
  - split: test
    path: test/*.jsonl
- config_name: fr
  data_dir: fr
---
"""
    english, french = parse_configs(card, WHERE)

    assert (english.patterns("test"), english.folder) == (["en/test/*.jsonl"], None)
    assert (french.split_patterns, french.folder) == ((), "fr")


def test_an_unknown_config_is_refused_with_the_nearest_name(configs: list[Config]) -> None:
    assert find_config(configs, "ben_Beng", WHERE).name == "ben_Beng"
    with pytest.raises(UsageError, match=r"config 'eng_Lat' not found; choose a config of its card, such as eng_Latn"):
        find_config(configs, "eng_Lat", WHERE)
    with pytest.raises(UsageError, match="the dataset's card lists no configs; name the files in the recipe"):
        find_config([], "eng_Latn", WHERE)


@pytest.mark.parametrize(
    "card", ["", "# no front matter\n", "---\nlicense: mit\n---\n", "text\n---\nconfigs: 1\n---\n"]
)
def test_a_card_without_configs_has_none(card: str) -> None:
    assert parse_configs(card, WHERE) == []


def test_windows_line_ends_and_a_byte_order_mark_are_accepted(configs: list[Config]) -> None:
    assert parse_configs("\ufeff" + CARD.replace("\n", "\r\n"), WHERE) == configs


@pytest.mark.parametrize(
    "card", ["---\nconfigs: [\n---\n", "---\nconfigs:\n- data_files: x\n---\n", "---\nconfigs: 7\n---\n"]
)
def test_an_unreadable_card_is_an_error(card: str) -> None:
    with pytest.raises(InputError, match="name the files in the recipe instead of a config"):
        parse_configs(card, WHERE)


def test_the_card_is_read_from_the_hub_at_a_commit(hub_files: HubFiles, publish: Callable[..., str]) -> None:
    none = read_configs(hub_files, DATASET, publish({"data.txt": b"no card"}))
    configs_found = read_configs(hub_files, DATASET, publish({"README.md": CARD.encode()}))

    assert list_names(configs_found) == ["eng_Latn", "asm_Beng", "ben_Beng", "eng_Latn_removed", "sample-10BT"]
    assert none == []


PATHS = [
    ".cache/h.jsonl",
    "a.jsonl",
    "data/.h.jsonl",
    "data/a.jsonl",
    "data/b.parquet",
    "data/extra/b.jsonl",
    "data/extra/more/c.jsonl",
    "data2/a.jsonl",
]


@pytest.mark.parametrize(
    "pattern",
    [
        *("*.jsonl", "data/*", "*/*.jsonl", "**", "**/*", "**/b.jsonl", "data/**", "data/**/b*", "**/extra/**"),
        *("data?/*.jsonl", "data/[ab].*", "data/[!a]*", ".cache/*", ".*/*", "data/.*", "./data/*.jsonl"),
        *("data/a.jsonl", "**/**/c.jsonl", "data/**/more/*", "*", "data/*/*/*"),
    ],
)
def test_patterns_match_the_files_that_datasets_matches(pattern: str, tmp_path: Path) -> None:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}\n")

    matches = resolve_pattern(pattern, str(tmp_path))

    assert matching_paths(PATHS, [pattern], "here") == sorted(str(Path(path).relative_to(tmp_path)) for path in matches)


def test_a_file_name_with_pattern_characters_matches_itself() -> None:
    assert matching_paths(["a[1].jsonl", "a1.jsonl"], ["a[1].jsonl"], "here") == ["a[1].jsonl"]
    assert matching_paths(PATHS, ["data?a.jsonl", "data[!x]a.jsonl"], "here") == []


def test_two_stars_next_to_other_characters_are_refused() -> None:
    with pytest.raises(InputError, match=r"^here: in the pattern 'data/x\*\*', `\*\*` must be a whole folder name"):
        matching_paths(PATHS, ["data/x**"], "here")

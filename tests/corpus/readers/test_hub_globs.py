"""A card's pattern means the files that `datasets` finds by it: a wildcard stays in its folder."""

from pathlib import Path

import pytest
from datasets.data_files import resolve_pattern

from pipeline_assets.corpus.readers.hub_configs import matching_paths
from pipeline_assets.corpus.spine.errors import InputError

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


def test_a_wildcard_stays_in_its_folder_and_two_stars_do_not() -> None:
    assert matching_paths(PATHS, ["data/*.jsonl"], "here") == ["data/a.jsonl"]
    assert matching_paths(PATHS, ["data/**/*.jsonl"], "here") == [
        "data/a.jsonl",
        "data/extra/b.jsonl",
        "data/extra/more/c.jsonl",
    ]
    assert matching_paths(PATHS, ["data?a.jsonl", "data[!x]a.jsonl"], "here") == []


@pytest.mark.parametrize(
    "pattern",
    [
        *("*.jsonl", "data/*", "*/*.jsonl", "**", "**/*", "**/b.jsonl", "data/**", "data/**/b*", "**/extra/**"),
        *("data?/*.jsonl", "data/[ab].*", "data/[!a]*", ".cache/*", ".*/*", "data/.*", "./data/*.jsonl"),
        *("data/a.jsonl", "**/**/c.jsonl", "data/**/more/*", "*", "data/*/*/*"),
    ],
)
def test_it_is_what_datasets_finds(pattern: str, tmp_path: Path) -> None:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("{}\n")

    found = resolve_pattern(pattern, str(tmp_path))

    assert matching_paths(PATHS, [pattern], "here") == sorted(str(Path(one).relative_to(tmp_path)) for one in found)


def test_a_file_is_found_by_its_name_whatever_characters_it_has() -> None:
    assert matching_paths(["a[1].jsonl", "a1.jsonl"], ["a[1].jsonl"], "here") == ["a[1].jsonl"]


def test_two_stars_beside_other_characters_are_refused() -> None:
    with pytest.raises(InputError, match=r"^here: in the pattern 'data/x\*\*', `\*\*` is no folder of its own"):
        matching_paths(PATHS, ["data/x**"], "here")

"""Split names that the hub allows, and file patterns of exactly one split."""

import fnmatch
import re

import pytest
from datasets.naming import _split_re
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.publishing.dataset_card import file_pattern
from pipeline_assets.corpus.publishing.hub_metadata import hub_split_names

SPLITS = st.lists(
    st.just("all") | st.from_regex(r"\w[\w.-]{0,4}", fullmatch=True, alphabet="ab_.-é1"), max_size=8, unique=True
)


@pytest.mark.parametrize(
    "names",
    [
        {"low": "low", "high.part": "high.part", "low-part": "low_part", "a.": "a_", "a..b": "a_b"},
        {"a-b": "a_b_2", "a_b": "a_b", "a--b": "a_b_3"},
        {"all": "all__2", "ALL": "ALL_", "all_": "all_"},
        {"overall": "overall"},
    ],
    ids=["what is not allowed is _", "what is allowed stays", "all stands for all splits", "a longer name"],
)
def test_a_split_has_a_name_that_a_hub_allows(names: dict[str, str]) -> None:
    assert list(hub_split_names([*names]).items()) == list(names.items())


@given(SPLITS)
def test_every_split_has_a_unique_name(splits: list[str]) -> None:
    names = hub_split_names(splits)

    assert list(names) == splits
    assert len(set(names.values())) == len(splits)
    assert all(re.match(_split_re, name) and name != "all" for name in names.values())


@given(SPLITS)
def test_a_pattern_matches_only_the_files_of_its_split(splits: list[str]) -> None:
    files = {split: f"data/{split}-00001-of-00002.parquet" for split in splits}

    for split in splits:
        assert fnmatch.filter(files.values(), file_pattern(files[split])) == [files[split]]

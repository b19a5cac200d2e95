"""Recipe sections of pools in a folder: splits, and patterns of their files."""

import operator
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tiny_scoring import build_rows, write_pool

from pipeline_assets.commands.scores import pools_section
from pipeline_assets.corpus.readers.hub_configs import matching_paths
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.spine.errors import UsageError


def files_by_split(pool: Path, names: list[str], subdir: str | None = None) -> dict[str, list[str]]:
    for name in names:
        write_pool(pool, build_rows(1), f"{name}.parquet")

    section = pools_section(str(pool), None, HubFiles(pool / "cache"), subdir)

    assert (section["dataset"], section["path"]) == (pool.name, str(pool))
    assert section["splits"] == list(section["files"]) == sorted(section["files"])
    return section["files"]


NUMBER = "[0-9]" * 5


def test_numbered_files_of_a_split_share_a_pattern(tmp_path: Path) -> None:
    names = ["train-00000-of-00002", "train-00001-of-00002", "test", "part-00000", "part-00001", "a-00000.v1", "12345"]

    assert files_by_split(tmp_path, names) == {
        "12345": ["12345.parquet"],
        "a-00000.v1": ["a-00000.v1.parquet"],
        "part": [f"part-{NUMBER}.parquet"],
        "test": ["test.parquet"],
        "train": [f"train-{NUMBER}-of-{NUMBER}.parquet"],
    }


STEMS = ["x", "x-00000", "x-00001", "x-00000-of-00002", "x-00000.v1", "x-00001.v1", "x[1]-00000", "x[1]-00001"]
NAMES = st.builds(operator.add, st.sampled_from(["", "math/", "subset_low/math/"]), st.sampled_from(STEMS))


@given(names=st.lists(NAMES, min_size=2, unique=True))
def test_each_file_is_in_one_split_so_that_no_row_is_scored_twice(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = files_by_split(Path(folder), names)
        except UsageError:  # two splits would get the same name
            assume(False)
        read = [path for patterns in files.values() for path in matching_paths(list_names(folder), patterns, folder)]

        assert sorted(read) == list_names(folder)


def list_names(folder: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in Path(folder).rglob("*.parquet"))


@pytest.mark.parametrize(
    ("name", "split"),
    [("-dash", "_dash"), ("my pool #1", "my_pool_1"), ("ü[1]", "ü_1_"), ("#", "_")],
)
def test_characters_that_no_split_name_may_have_become_underscores(tmp_path: Path, name: str, split: str) -> None:
    assert files_by_split(tmp_path, [name]) == {split: [f"{name}.parquet"]}


def test_brackets_are_quoted_only_in_patterns(tmp_path: Path) -> None:
    assert files_by_split(tmp_path, ["ä[2]-00000"]) == {"ä_2_": [f"ä[[]2]-{NUMBER}.parquet"]}


@pytest.mark.parametrize(
    ("names", "subdir"),
    [
        (["subset_low/math/train", "subset_high/chats/train", "subset_high/math/low"], None),
        (["math/candidates_a/train", "chats/candidates_a/train", "math/candidates_a/low", "math/train"], "a"),
    ],
    ids=["subsets", "a pool"],
)
def test_equal_splits_of_several_datasets_are_apart(tmp_path: Path, names: list[str], subdir: str | None) -> None:
    """Rows of different datasets may have equal ids."""
    math, chats, low = (f"{name}.parquet" for name in names[:3])

    assert files_by_split(tmp_path, names, subdir) == {"chats_train": [chats], "low": [low], "math_train": [math]}


def test_files_that_would_be_one_split_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refused:
        files_by_split(tmp_path, ["my pool", "my#pool"])

    rule = "the files of 'my pool' and of 'my#pool' would be one split, my_pool"
    fix = "rename the files of one of them, or score them with --pool-subdir"
    assert str(refused.value) == f"{tmp_path}: {rule}; {fix}"

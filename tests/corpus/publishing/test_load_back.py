"""Loading back: a publication that `datasets` loads differently is refused."""

from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refusal

from pipeline_assets.corpus.publishing import load_back as loading
from pipeline_assets.corpus.publishing.load_back import check_configs_load
from pipeline_assets.spine.errors import RetryableError

LIBRARY = """
import types
config = types.SimpleNamespace(STREAMING_READ_MAX_RETRIES=0)


def load_dataset(repo, name, revision, streaming):
    if name == "broken":
        raise ValueError(f"no files in {name}\\nof {repo}@{revision}")
    return {split: iter([0]) for split in ("train", "high", "low")}
"""
Load = Callable[[dict[str, list[str]]], None]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a function that loads configs by a stand-in for `datasets`."""
    (tmp_path / "datasets.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path(loading.__file__).parents[3]}")
    return lambda configs: check_configs_load("me/pools", "abc", "http://127.0.0.1:9", None, configs)


def test_the_loaded_splits_of_each_config_may_be_in_any_order(load: Load) -> None:
    load({"one": ["low", "train", "high"], "two": ["high", "low", "train"]})

    assert refusal(lambda: load({"one": ["high", "low", "test", "train"]})) == (
        "me/pools@abc: `datasets` cannot load the publication "
        "(its splits are {'one': ['high', 'low', 'train']}); its files are as sent; check its card"
    )


def test_a_config_that_fails_to_load_is_reported_in_one_line(load: Load) -> None:
    assert "cannot load the publication (of me/pools@abc); its files" in refusal(lambda: load({"broken": ["train"]}))


def test_an_endless_load_is_stopped(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_TIMEOUT_S", 0.0)

    assert "did not load the publication within 0 s" in refusal(lambda: load({"one": ["train"]}), RetryableError)

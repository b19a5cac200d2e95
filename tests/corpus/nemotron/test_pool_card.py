"""Cards of pool folders, read by `datasets`."""

from pathlib import Path

import datasets
import huggingface_hub
import pytest
from candidate_pools import MIXED, row, rows_artifact, seal_pools

from pipeline_assets.spine.artifact import Artifact


@pytest.fixture
def pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    low, high = rows_artifact(tmp_path, MIXED), rows_artifact(tmp_path, [row(9, stats_tool_calls=1)], name="high")
    return seal_pools(tmp_path, {"low": low, "high": high})


def test_datasets_loads_every_pool_with_rows_as_a_config_with_its_splits(pools: Artifact, tmp_path: Path) -> None:
    configs = datasets.get_dataset_config_names(str(pools.folder))
    loaded = datasets.load_dataset(str(pools.folder), "tool_use", cache_dir=str(tmp_path / "cache"))

    assert sorted(configs) == sorted(pools.manifest.identity.counts["pools"])
    assert {split: rows["id"] for split, rows in loaded.items()} == {"high": ["row-9"], "low": ["row-0"]}


def test_pools_without_rows_have_a_card_without_configs(tmp_path: Path) -> None:
    pools = seal_pools(tmp_path, {"low": rows_artifact(tmp_path, [])})

    assert "configs:" not in (pools.folder / "README.md").read_text("utf-8")


def test_no_digest_covers_the_card(pools: Artifact) -> None:
    assert "README.md" in [file.path for file in pools.manifest.storage]
    assert "README.md" not in [file.path for file in pools.manifest.identity.files]

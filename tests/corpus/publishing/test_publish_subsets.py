"""Training subsets on the hub: one config each, with token files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_pools import SOURCE, Place, card_yaml, check_whole, read_card
from subset_pools import bare, build_subsets, scored, talk

from pipeline_assets.build.build_target import build_target
from pipeline_assets.build.systems import unknown_kind
from pipeline_assets.build.target import Target
from pipeline_assets.corpus.formats.parquet_tables import write_table
from pipeline_assets.corpus.publishing.publication import prepare_publication
from pipeline_assets.corpus.publishing.publish import publish
from pipeline_assets.corpus.scoring.scores import SCORES_FILE, SCORES_WITH_TOKENS_SCHEMA
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import StageVersion
from pipeline_assets.spine.staging import StagingDir

RULES = {"anchor": {"percentile": [0, 50]}, "challenge": {"percentile": [50, 100]}}


def test_each_subset_is_a_config_with_all_splits_scores_and_token_files(place: Place, tmp_path: Path) -> None:
    origin = {"dataset": SOURCE, "source_revision": place.revision, "meta_license": "cc-by-4.0"}
    scores = [*map(float, range(6))]
    splits = [
        scored(tmp_path / "made", name, [talk(f"{name}-{number}", **origin) for number in range(6)], scores)
        for name in ("chats/high.v1", "chats/low", "letters/low")
    ]
    artifact, repo = build_subsets(tmp_path, splits, RULES, tokens=True), place.repo()

    publish(prepare_publication(artifact, repo), repo)  # it loads each config by its name, and finds these splits

    assert check_whole(place.folder) == artifact.manifest.digest
    configs = {
        config["config_name"]: {data["split"]: data["path"] for data in config["data_files"]}
        for config in card_yaml(place.folder)["configs"]
    }
    assert configs == {
        rule: {
            name: f"subset_{rule}/{file}-{'[0-9]' * 5}-of-00001.parquet"
            for name, file in {
                "chats_high_v1": "chats/high.v1",
                "chats_low": "chats/low",
                "letters_low": "letters/low",
            }.items()
        }
        for rule in RULES
    }
    for rule in RULES:
        folder = place.folder / "tokens" / rule
        tokens, mask = np.load(folder / "tokens.npy", mmap_mode="r"), np.load(folder / "loss_mask.npy", mmap_mode="r")
        assert len(tokens) == len(mask) == sum(pq.read_table(folder / "rows.parquet")["tokens"].to_pylist())
    _, body = read_card(place.folder)
    assert "| `nll_mean` | float64 | Mean negative log-likelihood" in body
    assert "| `training_subset` | string | The rule of the recipe" in body
    assert "`tokens/CONFIG/loss_mask.npy`" in body
    assert "A row may be in several pools." not in body


def test_rows_without_a_dataset_are_not_published(place: Place, tmp_path: Path) -> None:
    artifact = build_subsets(tmp_path, [scored(tmp_path, "chats/low", [bare("0")], [1.0])], {"all": {}})

    with pytest.raises(UsageError, match="rows do not name their dataset"):
        prepare_publication(artifact, place.repo(), allow_unknown_licences=True)


def test_scores_are_a_config_that_datasets_can_load(place: Place, tmp_path: Path) -> None:
    rows = [{"id": name, "nll_mean": nll, "token_nll": [nll]} for name, nll in (("a", 1.0), ("b", None))]
    table = pa.Table.from_pylist(rows, SCORES_WITH_TOKENS_SCHEMA)
    target = Target(
        unknown_kind("nemotron/nll_scores", StageVersion("made", 1)), "mine/chats/low", Path("scores"), {"split": "low"}
    )

    def write(staging: StagingDir) -> BuildResult:
        file = write_table(staging.path(SCORES_FILE), SCORES_FILE, [table], table.schema)
        return BuildResult([file], {"ledger": Ledger(2, 2).to_json()}, {})

    artifact, repo = build_target(target, tmp_path, write, True, {}), place.repo()

    publish(prepare_publication(artifact, repo), repo)  # it loads the config, and finds its split

    [config] = card_yaml(place.folder)["configs"]
    assert config == {"config_name": "default", "data_files": [{"split": "low", "path": "scores.parquet"}]}
    _, body = read_card(place.folder)
    assert "| `id` | string | The row's id in its pools; each is scored once. |" in body

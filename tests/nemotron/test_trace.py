"""Every normalized row is traced to its input line."""

import functools
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nemotron_build import build, offline
from nemotron_hub import is_science_line
from rows_contract import check_contract

from pipeline_assets.build.rows.conversations import ConversationRows
from pipeline_assets.build.rows.follow import follow_source
from pipeline_assets.build.rows.row_stores import RowStores, open_rows
from pipeline_assets.build.rows.store import UpstreamRow
from pipeline_assets.build.rows.trace import trace_row
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.lineage import Lineage
from pipeline_assets.systems.nemotron import NemotronRecipe
from pipeline_assets.systems.registry import SYSTEMS


@pytest.fixture(scope="module")
def root(recipe: NemotronRecipe, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("science")
    build(recipe.model_copy(update={"datasets": recipe.datasets[2:3]}), folder, offline(cache), RunSettings())
    return folder


@pytest.fixture(scope="module")
def hf_layout(root: Path) -> Artifact:
    """Open the layout with both splits, one after the other."""
    return open_artifact(root / "nemotron" / "nemotron_v1" / "hf_layout" / "nemotron-science-v1")


def test_rows_of_a_split_and_of_the_layout_are_traced_to_the_same_lines(root: Path, hf_layout: Artifact) -> None:
    split = root / "nemotron" / "nemotron_v1" / "normalized_shards" / "nemotron-science-v1" / "RQA"
    store, layout_store = open_rows(split, SYSTEMS.kinds), open_rows(hf_layout.folder, SYSTEMS.kinds)

    for row in range(3):
        [own], [other] = trace_row(store, row), trace_row(layout_store, row + 3)
        assert (own.text.part, own.text.source, own.facts) == (other.text.part, other.text.source, other.facts)
        [back] = follow_source(RowStores(SYSTEMS.kinds, Lineage(root)), own.text.source.rows[0])
        fates = {fate.artifact.folder: (fate.outcome, fate.row_number) for _, fate in back.downstream}
        prompts, near, kept = (split.parents[2] / step / "nemotron-science-v1" / "RQA" for step in OF_SPLITS[1:])
        is_duplicate = pq.read_table(kept / "data")["quality_is_duplicate"][row].as_py()
        assert fates.pop(near)[0] == ("near_duplicate" if is_duplicate else "kept")
        assert (back.fate.artifact.folder, back.fate.row_number) == (split, row)
        pools = split.parents[2] / "candidate_pools" / "nemotron-science-v1"
        outcome, number = fates.pop(pools)
        assert outcome == "pooled" and number is not None
        assert open_rows(pools, SYSTEMS.kinds).row_at(number).parts[0].id == own.text.part.id
        assert fates == {hf_layout.folder: ("kept", row + 3), prompts: ("kept", row), kept: ("kept", row)}


@pytest.mark.parametrize(
    ("step", "row"), [("deduplicated/nemotron-science-v1/RQA", 1), ("hf_layout/nemotron-science-v1", 4)]
)
def test_origin_of_later_rows_is_a_row_of_the_normalized_split(root: Path, step: str, row: int) -> None:
    store = open_rows(root / "nemotron" / "nemotron_v1" / step, SYSTEMS.kinds)
    [part] = store.row_at(row).parts

    origin = store.origin(part)

    assert isinstance(origin, UpstreamRow)
    split = root / "nemotron" / "nemotron_v1" / "normalized_shards" / "nemotron-science-v1" / "RQA"
    assert (origin.store.artifact.folder, origin.number) == (split, 1)


OF_SPLITS = ("normalized_shards", "prompts", "near_duplicates", "deduplicated")
OF_DATASETS = ("candidate_pools", "hf_layout")


@pytest.mark.parametrize(
    "place",
    [
        *(f"{kind}/nemotron-science-v1/MCQ" for kind in OF_SPLITS),
        *(f"{kind}/nemotron-science-v1" for kind in OF_DATASETS),
    ],
)
def test_rows_keep_the_contract(root: Path, place: str, real: bool) -> None:
    store = open_rows(root / "nemotron" / "nemotron_v1" / place, SYSTEMS.kinds)

    check_contract(store, functools.partial(is_science_line, real=real))


def test_row_is_found_with_any_row_groups(tmp_path: Path, root: Path, hf_layout: Artifact) -> None:
    name = "data/RQA-00000-of-00001.parquet"
    table = pq.read_table(hf_layout.path(name))
    (tmp_path / "data").mkdir()
    for file in hf_layout.manifest.storage:
        (tmp_path / file.path).write_bytes(hf_layout.path(file.path).read_bytes())
    pq.write_table(table, tmp_path / name, row_group_size=1)

    store = ConversationRows(Artifact(tmp_path, hf_layout.manifest), Lineage(root))
    [*parts] = (store.row_at(row).parts[0] for row in (3, 4, 5))

    assert [part.id for part in parts] == table["id"].to_pylist()
    assert [part.shard_row for part in parts] == [0, 1, 2]

"""Every normalised row is traced to the line that it was made from."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nemotron_build import build, offline
from nemotron_hub import rows_of

from pipeline_assets.corpus.spine.artifact import Artifact, open_artifact
from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.corpus.spine.errors import UsageError
from pipeline_assets.corpus.trace.conversation_to_source import read_conversation, trace_conversation
from pipeline_assets.corpus.trace.source_row import SourceRow
from pipeline_assets.systems.nemotron import NemotronRecipe

SCIENCE = "nvidia/Nemotron-Science-v1"


@pytest.fixture(scope="module")
def root(recipe: NemotronRecipe, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("science")
    build(recipe.model_copy(update={"datasets": recipe.datasets[2:3]}), folder, offline(cache), EngineSettings())
    return folder


@pytest.fixture(scope="module")
def laid_out(root: Path) -> Artifact:
    """Both splits, one after the other."""
    return open_artifact(root / "nemotron" / "nemotron_v1" / "hf_layout" / "nemotron-science-v1")


def test_each_row_names_its_line_by_number_and_by_id(root: Path, laid_out: Artifact) -> None:
    for row in range(6):
        split = ("MCQ", "RQA")[row // 3]
        found = trace_conversation(laid_out, root, None, row)

        source = found.source
        assert isinstance(source, SourceRow)
        assert (source.dataset, source.path) == (SCIENCE, f"data/{split}.jsonl")
        line = json.loads(rows_of(SCIENCE, split)[source.row :].splitlines()[0])
        assert line["uuid"] == found.id
        assert " ".join(line["messages"][0]["content"].split()).startswith(" ".join(found.asked.split())[:80])
        assert trace_conversation(laid_out, root, found.id, None) == found
        [entry] = open_artifact(root / "nemotron/nemotron_v1/raw/nemotron-science-v1" / split).manifest.identity.inputs
        assert found.source_digest == entry["digest"]


def test_a_split_of_its_own_is_traced_to_the_same_lines(root: Path, laid_out: Artifact) -> None:
    split = open_artifact(root / "nemotron" / "nemotron_v1" / "normalized_shards" / "nemotron-science-v1" / "RQA")

    for row in range(3):
        own = trace_conversation(split, root, None, row)
        assert replace(own, folder=laid_out.folder) == trace_conversation(laid_out, root, None, row + 3)


def test_a_row_is_found_whatever_the_row_groups(tmp_path: Path, laid_out: Artifact) -> None:
    name = "data/RQA-00000-of-00001.parquet"
    table = pq.read_table(laid_out.path(name))
    (tmp_path / "data").mkdir()
    for file in laid_out.manifest.storage:
        (tmp_path / file.path).write_bytes(laid_out.path(file.path).read_bytes())
    pq.write_table(table, tmp_path / name, row_group_size=1)

    found = [read_conversation(Artifact(tmp_path, laid_out.manifest), row, ["id"]) for row in (3, 4, 5)]

    assert [one.columns["id"] for one in found] == table["id"].to_pylist()
    assert [one.shard_row for one in found] == [0, 1, 2]


def test_what_is_not_there_is_refused(root: Path, laid_out: Artifact) -> None:
    with pytest.raises(UsageError, match="there is no row 6; give 0 to 5"):
        trace_conversation(laid_out, root, None, 6)
    with pytest.raises(UsageError, match="no row has the id 'x'"):
        trace_conversation(laid_out, root, "x", None)

"""Rows of a dataset whose card has configurations say which one they are of."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from nemotron_build import SHIPPED, build, offline

from pipeline_assets.corpus.spine.engine import EngineSettings
from pipeline_assets.systems.nemotron import NemotronRecipe

CARD = """---
configs:
- config_name: en
  data_files: en/*.jsonl
- config_name: default
  data_files: [{split: test, path: test.jsonl}]
---
"""


@pytest.mark.parametrize(("said", "subsets"), [(None, ["en", None]), ("mine", ["mine", "mine"])])
def test_the_subset_of_a_row_is_its_config_unless_the_recipe_says_another(
    said: str | None, subsets: list[str | None], tmp_path: Path
) -> None:
    row = {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]}
    for path in ("chats/en/a.jsonl", "chats/test.jsonl"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(json.dumps(row) + "\n")
    (tmp_path / "chats" / "README.md").write_text(CARD)
    section = {"dataset": "chats", "path": str(tmp_path / "chats"), "splits": ["train", "test"], "subset": said}
    rows = yaml.safe_load(SHIPPED.read_text())["rows"]
    content = {"system": "nemotron", "name": "chats", "rows": rows, "datasets": [section | {"domain": "math"}]}

    build(NemotronRecipe.of(content, "the test"), tmp_path / "out", offline(tmp_path / "cache"), EngineSettings())

    folder = tmp_path / "out" / "nemotron" / "chats" / "normalized_shards" / "chats"
    made = [pq.read_table(folder / split / "data")["subset"].to_pylist() for split in ("train", "test")]
    assert made == [[subset] for subset in subsets]

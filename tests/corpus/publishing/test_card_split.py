"""What a card tells of a split is what its rows hold."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nemotron_hub import made_rows
from published import normalise, said
from rows_made import LOOKUP, QUESTION, called

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.publishing.dataset_card import card_split
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError


def test_it_counts_what_the_rows_hold(tmp_path: Path) -> None:
    tools = {"messages": [QUESTION, called({"word": "sum"})], "tools": [LOOKUP]}
    given = [*made_rows("chat_if"), tools, {"messages": []}, said("x", license="MIT"), *made_rows("low")]
    built = normalise(tmp_path, "low-part", given, 900)

    split = card_split(built)

    paths = sorted((built.folder / "data").iterdir())
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    assert (split.name, split.digest, split.files) == ("low-part", built.manifest.digest, len(paths))
    assert len(paths) > 1
    assert split.bytes == sum(path.stat().st_size for path in paths)
    assert split.rows == len(rows) == 8
    assert split.rejected == {"no_messages": 1}
    for name in ("tokens", "completion_tokens", "tool_calls"):
        assert getattr(split, name) == sum(row[f"stats_{name}"] for row in rows)
    assert split.licences == Counter(row["meta_license"] for row in rows)
    assert split.filled == {name: sum(row[name] is not None for row in rows) for name in SCHEMA.names}


def test_what_holds_no_normalised_rows_is_refused(tmp_path: Path) -> None:
    built = normalise(tmp_path, "low", [said("x")], 900)
    for path in list((built.folder / "data").iterdir()):
        path.unlink()
    empty = [file for file in built.manifest.storage if not file.path.startswith("data/")]
    manifest = type(built.manifest)(**{**vars(built.manifest), "storage": empty})

    with pytest.raises(InputError, match="normalised rows of 0 splits"):
        card_split(Artifact(built.folder, manifest))

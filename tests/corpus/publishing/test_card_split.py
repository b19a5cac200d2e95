"""The facts of a split on the card equal its rows."""

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from nemotron_hub import synthetic_rows
from nemotron_rows import LOOKUP, QUESTION, called
from published_splits import answered, normalise

from pipeline_assets.corpus.nemotron.schema import SCHEMA
from pipeline_assets.corpus.publishing.dataset_card import CardSource, collect_splits_and_sources
from pipeline_assets.spine.errors import InputError


def test_a_split_is_described_by_its_rows(tmp_path: Path) -> None:
    tools = {"messages": [QUESTION, called({"word": "sum"})], "tools": [LOOKUP]}
    chats = [*synthetic_rows("chat_if"), tools, {"messages": []}, answered("x", license="MIT"), *synthetic_rows("low")]
    built = normalise(tmp_path, "low-part", chats, 900)

    [split], sources = collect_splits_and_sources([built])

    paths = sorted((built.folder / "data").iterdir())
    files = [pq.ParquetFile(path) for path in paths]
    rows = [row for file in files for row in file.read().to_pylist()]
    pattern = f"data/low-part-{'[0-9]' * 5}-of-{len(paths):05d}.parquet"
    assert (split.config, split.name, split.data_files, split.schema) == ("default", "low-part", pattern, SCHEMA)
    assert len(paths) > 1
    assert split.bytes == sum(path.stat().st_size for path in paths)
    groups = [file.metadata.row_group(number) for file in files for number in range(file.metadata.num_row_groups)]
    assert split.uncompressed_bytes == sum(group.total_byte_size for group in groups)
    assert split.rows == len(rows) == 8
    for name in ("tokens", "completion_tokens"):
        assert getattr(split, name) == sum(row[f"stats_{name}"] for row in rows)
    assert split.licences == Counter((row["dataset"], row["meta_license"]) for row in rows)
    assert sources == [CardSource(rows[0]["dataset"], rows[0]["source_revision"])]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    built = normalise(tmp_path, "low", [answered("x")], 900)
    path = next((built.folder / "data").iterdir())
    path.write_bytes(path.read_bytes()[:-4] + b"PARX")

    with pytest.raises(InputError, match=f"{path}: the file differs from its manifest"):
        collect_splits_and_sources([built])

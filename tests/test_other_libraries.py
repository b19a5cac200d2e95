"""datasets, Polars, DuckDB and pandas read corpora with one type of `meta`.

They take types from the first rows, so each source comes first once; every row must be read.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_results import DOCS, code_blocks
from demo_variants import find_snapshot
from nemotron_build import offline, write_nemotron
from stage_a_build import build, local_source, parse_recipe

from pipeline_assets.build.run import Run
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter, read_line_blocks
from pipeline_assets.corpus.readers.hub_files import CACHE_FOLDER, HubFiles
from pipeline_assets.corpus.sealed_shards import rows_by_shard
from pipeline_assets.demo.corpora import write_inputs
from pipeline_assets.demo.loopback_hub import HUB_FOLDER, LoopbackHub
from pipeline_assets.demo.recipes import write_stage_a_recipe
from pipeline_assets.spine.artifact import Artifact, open_artifact
from pipeline_assets.spine.engine import RunSettings

Row = dict[str, Any]
Types = dict[str, Any]
"""Types by column: `string`, `integer`, or the types of a struct's fields."""
Corpora = Mapping[str, Mapping[str, Sequence[Path]]]
"""Shards by kind and source."""

TYPES: Types = {
    **dict.fromkeys(Document.__struct_fields__[:-1], "string"),
    "meta": dict.fromkeys(Meta.__struct_fields__, "string") | {"source_row": "integer"},
}


def read_by_datasets(paths: Sequence[Path], cache: Path) -> pa.Table:
    import datasets

    files, cache_dir = [str(path) for path in paths], str(cache / "datasets")
    rows = datasets.load_dataset("json", data_files=files, split="train", cache_dir=cache_dir)
    return rows.with_format("arrow")[:]


def read_by_polars(paths: Sequence[Path], cache: Path) -> pa.Table:
    import polars

    return polars.scan_ndjson(list(paths)).collect().to_arrow()


def read_by_duckdb(paths: Sequence[Path], cache: Path) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        return connection.read_json([str(path) for path in paths]).to_arrow_table()


def read_by_pandas(paths: Sequence[Path], cache: Path) -> pa.Table:
    import pandas

    frame = pandas.concat(pandas.read_json(path, lines=True, compression="zstd", dtype=False) for path in paths)
    return pa.Table.from_pandas(frame, preserve_index=False)


def read_types(fields: Iterable[pa.Field]) -> Types:
    names = {pa.string(): "string", pa.large_string(): "string", pa.int64(): "integer"}
    return {col.name: read_types(col.type) if pa.types.is_struct(col.type) else names[col.type] for col in fields}


READERS = {"datasets": read_by_datasets, "polars": read_by_polars, "duckdb": read_by_duckdb, "pandas": read_by_pandas}


def decode_rows(paths: Sequence[Path]) -> list[Row]:
    """Decode the Documents of shards."""
    blocks = (block for path in paths for block in read_line_blocks(path))
    return [msgspec.to_builtins(msgspec.json.decode(line, type=Document)) for b in blocks for line in b.splitlines()]


def group_by_source(*corpora: Artifact) -> dict[str, list[Path]]:
    """Group shards by source; each shard has documents of one source."""
    shards: dict[str, list[Path]] = {}
    for corpus in corpora:
        for path in map(corpus.path, rows_by_shard(corpus)):
            [source] = {row["source"] for row in decode_rows([path])}
            shards.setdefault(source, []).append(path)
    return shards


@pytest.fixture(scope="module")
def corpora(demo_root: Path, tmp_path_factory: pytest.TempPathFactory, planted: dict[str, list[Path]]) -> Corpora:
    """Build the demo's corpora and list their shards by kind and source."""
    root = tmp_path_factory.mktemp("demo_stage_a")
    write_inputs(root, "stage_a")
    with LoopbackHub(root / HUB_FOLDER) as hub:
        recipe = write_stage_a_recipe(root, hub.commits())
        built = build(recipe, root, HubFiles(root / CACHE_FOLDER, endpoint=hub.endpoint))
    demo = {
        name: group_by_source(*(built[role] for role in built if role.split("/")[1] == name))
        for name in ("normalized", "decontaminated")
    }
    snapshot = group_by_source(open_artifact(find_snapshot(demo_root)))
    return {**demo, "snapshot and normalized": snapshot | demo["normalized"], "planted": planted}


# Filtering, deduplication and decontamination pass lines on, so the last corpus has the lines of all three.
KINDS = ("snapshot and normalized", "decontaminated", "planted")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_corpora_have_their_rows_and_types_in_any_order_of_sources(
    reader: str, kind: str, corpora: Corpora, tmp_path: Path
) -> None:
    names = list(corpora[kind])
    assert len(names) == {"snapshot and normalized": 6, "planted": len(PLANTED)}.get(kind, 5)

    for start in range(len(names)):
        paths = [path for name in names[start:] + names[:start] for path in corpora[kind][name]]

        table = READERS[reader](paths, tmp_path / str(start))

        assert read_types(table.schema) == TYPES
        assert table.to_pylist() == decode_rows(paths)


def text(name: str, number: int) -> str:
    return f"{name} has {number * 7919} words to say of row {number}, and none twice."


PLANTED: dict[str, list[Row]] = {
    "nothing": [{} for _ in range(20)],
    "titled_later": [{"title": f"Title {number}"} if number > 30 else {} for number in range(60)],
    "nulls": [{"title": None, "url": None, "language": None, "at": None, "score": None} for _ in range(20)],
    "zulu": [{"at": f"2019-04-21T18:54:{number:02d}Z", "title": "2019-04-21", "score": number} for number in range(20)],
    "days": [{"at": f"2019-04-{number + 1:02d}", "url": "https://a", "score": "none"} for number in range(20)],
    "seconds": [{"at": 1512465451 + number, "language": "en", "score": number / 7} for number in range(20)],
    "some_dates": [{"at": "2019-04-21 18:54:04.5+02:00" if number % 2 else ""} for number in range(20)],
    "other_dates": [{"at": "May 2019", "title": {"de": "Titel"}, "score": [number, None]} for number in range(20)],
    "names_of_ours": [{"meta": {"extra": number}, "extra": None, "source_row": "x"} for number in range(20)],
}
DATES = {
    "zulu": "2019-04-21T18:54:00.000",
    "days": "2019-04-01T00:00:00.000",
    "seconds": "1512465451",
    "other_dates": "May 2019",
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Build shards of sources with unlike columns, dates, titles and nulls."""
    root = tmp_path_factory.mktemp("planted")
    sections = []
    for name, rows in PLANTED.items():
        plain = [{"text": text(name, number), "key": f"{name}-{number}"} for number in range(len(rows))]
        has_dates = any("at" in row for row in rows)
        columns = {"text": "text", "id": "key", "created_at": "at" if has_dates else None, "license": None}
        rows = [columns_row | row for columns_row, row in zip(plain, rows, strict=True)]
        sections.append(local_source(root, name, rows, columns=columns))
    built = build(parse_recipe(*sections, shard_text_bytes=2000), root)
    return group_by_source(*(built[f"stage_a/normalized/{name}"] for name in PLANTED))


def test_unlike_dates_titles_and_columns_are_stored_with_equal_types(planted: dict[str, list[Path]]) -> None:
    by_id = {row["doc_id"]: row for paths in planted.values() for row in decode_rows(paths)}

    assert len(planted["titled_later"]) > 1
    assert {name: by_id[f"{name}-0"]["created_at"] for name in DATES} == DATES
    assert {by_id[f"some_dates-{number}"]["created_at"] for number in range(20)} == {"", "2019-04-21T16:54:04.500"}
    assert [by_id[f"titled_later-{number}"]["meta"]["title"] for number in (30, 31)] == ["", "Title 31"]
    assert {name: msgspec.json.decode(by_id[f"{name}-3"]["meta"]["extra"]) for name in PLANTED} == {
        name: {column: value for column, value in rows[3].items() if not is_meta_field(column, value)}
        for name, rows in PLANTED.items()
    }


def is_meta_field(column: str, value: object) -> bool:
    """Check whether a column of a row becomes a field of its meta."""
    return column in ("title", "url", "language") and isinstance(value, str) and value != "2019-04-21"


@pytest.mark.parametrize("reader", READERS)
def test_a_shard_without_documents_is_read(reader: str, planted: dict[str, list[Path]], tmp_path: Path) -> None:
    empty = tmp_path / "00000.jsonl.zst"
    with JsonlZstWriter(empty, 3):
        pass
    shards = [path for paths in planted.values() for path in paths]
    paths = [shards[0], empty, *shards[1:]] if reader == "polars" else [empty, *shards]  # see the page's warning

    table = READERS[reader](paths, tmp_path)

    assert read_types(table.schema) == TYPES
    assert table.to_pylist() == decode_rows(shards)


def test_python_of_the_page_reads_the_demos_corpora(
    corpora: Corpora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    shards = [path for paths in corpora["normalized"].values() for path in paths]
    [code] = code_blocks(DOCS / "stage_a.md", "python")

    scope: dict[str, Any] = {}
    exec(code.replace("data/stage_a/stage_a_v1/normalized", os.path.commonpath(shards)), scope)

    expected = decode_rows(sorted(shards))
    scores = [msgspec.json.decode(row["meta"]["extra"]).get("score") for row in expected]
    assert scope["rows"].to_list() == scope["frame"].to_dicts() == scope["records"].to_dict("records") == expected
    assert scope["table"].fetchall() == [tuple(row.values()) for row in expected]
    assert scope["scores"].fetchall() == [(row["doc_id"], score) for row, score in zip(expected, scores, strict=True)]
    assert any(isinstance(score, float) for score in scores)


def test_each_library_reads_conversations_from_parquet(tmp_path: Path) -> None:
    import datasets
    import duckdb
    import pandas
    import polars

    run = Run(tmp_path, RunSettings(workers=0), offline(tmp_path / "cache"), publishes=False)
    built = [target.kind.build(target, run) for target in write_nemotron(tmp_path).targets()]
    shards = [file for artifact in built for file in sorted((artifact.folder / "data").glob("*.parquet"))]
    assert len(shards) > 2

    for paths in (shards, shards[::-1]):
        files, cache_dir = [str(path) for path in paths], str(tmp_path / "datasets")
        expected = [row for path in paths for row in pq.read_table(path).to_pylist()]
        loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=cache_dir)
        frames = pandas.concat(pandas.read_parquet(path, dtype_backend="pyarrow") for path in paths)
        with duckdb.connect() as connection:
            table = connection.read_parquet(files).to_arrow_table()

        assert loaded.to_list() == expected
        assert polars.scan_parquet(files).collect().to_dicts() == expected
        assert table.to_pylist() == expected
        assert pa.Table.from_pandas(frames, preserve_index=False).to_pylist() == expected

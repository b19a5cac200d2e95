"""Local files become the same Documents in every format, piece and compression."""

import gzip
import io
import json
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.normalize.files import read_piece
from pipeline_assets.corpus.readers.local import LocalRecipe, plan_local
from pipeline_assets.corpus.readers.source_folder import SourceFile, list_files
from pipeline_assets.spine.errors import InputError, UsageError
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.stage import group_by_size

Source = Callable[..., SourceFile]
META = pa.struct([("url", pa.string()), ("n", pa.int64())])


def new_recipe(text_unit: str | None = None, **columns: str | None) -> LocalRecipe:
    named = {"text": "text", "id": None, "created_at": None, "license": None} | columns
    origin = {"source": "notes", "domain": "books", "license_tag": "cc0-1.0"}
    return LocalRecipe.model_validate(origin | {"files": ["*"], "columns": named, "text_unit": text_unit})


def read_rows(files: Sequence[SourceFile], recipe: LocalRecipe, shard_bytes: int = 1 << 30) -> list[Document | Reject]:
    return [row for piece in plan_local(files, recipe, shard_bytes) for row in read_piece(piece, recipe)]


def read_docs(files: Sequence[SourceFile], recipe: LocalRecipe, shard_bytes: int = 1 << 30) -> list[Document]:
    rows = read_rows(files, recipe, shard_bytes)
    assert all(isinstance(row, Document) for row in rows)
    return rows  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("pattern", "columns", "start", "doc_id", "created_at", "kept_columns"),
    [
        (
            "c4/c4-sample.01.json.gz",
            {"id": "url", "created_at": "date"},
            "The woman who died after falling from a bridge over the A21 has been identified",
            "https://www.kentlive.news/news/sevenoaks-mum-who-died-after-2582402",
            "2019-04-21T18:54:04.000",
            {"date": "2019-04-21T18:54:04Z"},
        ),
        (
            "redpajama/arxiv.jsonl",
            {"id": "meta.arxiv_id", "created_at": "meta.timestamp"},
            "\\section{Riemannian Langevin dynamics}",
            "1712.01076",
            "1512465451000",
            {
                "meta": {"language": "en", "source": "arxiv", "timestamp": 1512465451000, "yymm": "1712"}
                | {"url": "https://arxiv.org/abs/1712.01076"}
            },
        ),
        (
            "fineweb/fineweb2_*.jsonl",
            {"id": "id", "created_at": "date"},
            "Customised pristine audio delivery\nスタジオやシステムの要件を満たす入出力数に適合",
            "<urn:uuid:1454fb03",
            "2013-05-26T09:28:33.000",
            {"language_score": 1.0000053644180298, "top_langs": '{"jpn_Jpan_score": 1.0000053644180298}'},
        ),
    ],
)
def test_the_first_row_of_a_public_dataset_has_this_text_and_metadata(
    real_data: Path,
    pattern: str,
    columns: dict[str, str],
    start: str,
    doc_id: str,
    created_at: str,
    kept_columns: dict[str, object],
) -> None:
    first, *_ = read_docs(list_files(real_data, [pattern]), new_recipe(**columns))

    assert first.text.startswith(start) and first.doc_id.startswith(doc_id)
    assert (first.created_at, first.meta.source_row) == (created_at, 0)
    assert kept_columns.items() <= first.meta.columns().items()


@pytest.mark.parametrize("pattern", ["c4/*.jsonl", "redpajama/*.jsonl", "fineweb/*.jsonl"])
def test_sample_rows_are_equal_in_any_pieces_and_as_parquet(shared_data: Path, tmp_path: Path, pattern: str) -> None:
    for file in list_files(shared_data, [pattern]):
        whole = read_docs([file], new_recipe())
        assert len(whole) > 1

        assert read_docs([file], new_recipe(), 5000) == whole
        table = pa.Table.from_pylist([json.loads(line) for line in file.path.read_text(encoding="utf-8").splitlines()])
        pq.write_table(table, tmp_path / "rows.parquet", row_group_size=7)
        from_parquet = read_docs(list_files(tmp_path, ["*.parquet"]), new_recipe(), 20_000)
        assert [row.text for row in from_parquet] == [row.text for row in whole]
        assert [row.meta.source_row for row in from_parquet] == list(range(len(whole)))


scalars = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    scalars | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
rows_lists = st.lists(st.fixed_dictionaries({"text": st.text(min_size=1), "extra": json_values}), max_size=8)
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".xz": lzma.compress,
}
reuse_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@reuse_folder
@given(rows=rows_lists, suffix=st.sampled_from(list(COMPRESS)), ascii=st.booleans(), shard_bytes=st.integers(4, 200))
def test_rows_are_read_back_from_json_lines(
    source: Source, rows: list[dict[str, Any]], suffix: str, ascii: bool, shard_bytes: int
) -> None:
    content = "".join(json.dumps(row, ensure_ascii=ascii) + "\n" for row in rows).encode("utf-8")

    rows_read = read_docs([source(COMPRESS[suffix](content), f"rows.jsonl{suffix}")], new_recipe(), shard_bytes)

    assert [{"text": row.text, "extra": row.meta.columns()["extra"]} for row in rows_read] == rows
    for row in rows_read:
        line = content[row.meta.source_row :].split(b"\n", 1)[0]
        assert json.loads(line)["text"] == row.text


@reuse_folder
@given(
    rows=st.lists(st.tuples(st.text(min_size=1), st.none() | st.text(), st.integers(-(2**60), 2**60)), max_size=12),
    group=st.integers(1, 5),
    shard_bytes=st.integers(1, 2000),
)
def test_rows_are_read_back_from_parquet(
    source: Source, rows: list[tuple[str, str | None, int]], group: int, shard_bytes: int
) -> None:
    texts, urls, counts = ([row[column] for row in rows] for column in range(3))
    nested = pa.array([{"url": url, "n": n} for url, n in zip(urls, counts, strict=True)], META)
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": pa.array(texts, pa.string()), "meta": nested}), sink, row_group_size=group)

    rows_read = read_docs([source(sink.getvalue(), "rows.parquet")], new_recipe(), shard_bytes)

    metas = [row.meta.columns()["meta"] for row in rows_read]
    assert [(row.text, meta["url"], meta["n"]) for row, meta in zip(rows_read, metas, strict=True)] == rows
    assert [row.meta.source_row for row in rows_read] == list(range(len(rows)))


@reuse_folder
@given(
    texts=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=6)
)
def test_paragraphs_are_read_back_from_text(source: Source, texts: list[str]) -> None:
    texts = [text for text in texts if text.encode().strip() and not text.startswith("\ufeff")]
    file = source("\n\n".join(texts), "notes.txt")

    rows_read = read_docs([file], new_recipe("paragraph"), 20)

    assert [row.text for row in rows_read] == texts


def test_a_large_file_has_many_pieces_and_small_files_share_a_shard(tmp_path: Path) -> None:
    line = json.dumps({"text": "x" * 87}) + "\n"
    for name, rows in {"a": 1000, "b": 3, "c": 2, "d": 4}.items():
        (tmp_path / f"{name}.jsonl").write_text(line * rows)
    files = list_files(tmp_path, ["*.jsonl"])

    pieces = plan_local(files, new_recipe(), 10_000)
    shards = list(group_by_size(pieces, lambda piece: piece.bytes, 10_000))

    assert [len({piece.file.name for piece in shard}) for shard in shards] == [1] * 10 + [3]
    assert [sum(1 for piece in shard for _ in read_piece(piece, new_recipe())) for shard in shards] == [100] * 10 + [9]
    assert plan_local(files, new_recipe(), 10_000) == pieces


NO_COLUMNS = new_recipe().model_copy(update={"columns": None})
ENDINGS = ".jsonl, .ndjson, .ndjsonl, .json, .parquet, .csv, .tsv, .txt"


@pytest.mark.parametrize(
    ("name", "content", "recipe", "error", "message"),
    [
        ("a.odt", b"text\n", new_recipe(), UsageError, f"the file name must end with {ENDINGS}"),
        ("a.txt", b"text\n", new_recipe(), UsageError, "the document unit of text files is not set; set `text_unit`"),
        ("a.jsonl", b"PAR1....PAR1", new_recipe(), InputError, "the file is Parquet; rename it to end with .parquet"),
        ("a.csv", b"body\na\n", new_recipe(), UsageError, "column `text` not found; the columns are body; set `col"),
        ("a.jsonl", b"{}\n", NO_COLUMNS, UsageError, "the text column is not set; set `columns` in the"),
    ],
)
def test_a_file_that_does_not_match_its_name_stops_the_plan(
    source: Source, name: str, content: bytes, recipe: LocalRecipe, error: type[InputError], message: str
) -> None:
    file = source(content, name)

    assert refusal(lambda: plan_local([file], recipe, 1000), error).startswith(f"{file.path}: {message}")

"""Conversion of JSON lines on a hub to documents, with dropped rows and rejects."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from healing_build import DATASET, build_snapshot
from healing_build import parse_recipe as healing_recipe
from json_pages import COLUMNS, PACKED, SECTION, Normalize, lines, pages
from refusals import refusal
from stage_a_build import ledger, only, recipe_with

from pipeline_assets.corpus.normalize.sources import HubSource
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.snapshot.convert import convert_shard
from pipeline_assets.corpus.snapshot.fetch import fetch_pieces, plan_shards
from pipeline_assets.corpus.snapshot.plan import plan_snapshot
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.engine import RunSettings
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import StagingView

Read = Callable[[Artifact], list[dict[str, Any]]]


@pytest.mark.parametrize("ending", PACKED)
def test_a_row_becomes_a_document_with_its_number_not_counting_blank_lines(
    ending: str, hub_source: Normalize, read_docs: Read
) -> None:
    content = lines([pages(0, 1)[0] | {"url": "http://a"}]) + b"\n  \n" + lines(pages(1, 1))

    snapshot = hub_source({f"data/a.{ending}": PACKED[ending](content)})

    documents = read_docs(snapshot)
    assert [(document["text"], document["doc_id"], document["meta"]["url"]) for document in documents] == [
        ("Text of page 0.", "page-0", "http://a"),
        ("Text of page 1.", "page-1", ""),
    ]
    places = [(document["meta"]["source_file"], document["meta"]["source_row"]) for document in documents]
    assert places == [(f"data/a.{ending}", 0), (f"data/a.{ending}", 1)]


@pytest.mark.parametrize(
    ("window", "kept_rows", "rejected"),
    [
        (WHOLE_SHARD, [0, 1, 2, 3, 4], {5: "no_text"}),
        (Window(1, 4), [1, 2, 3], {}),
        (Window(3, None), [3, 4], {5: "no_text"}),
        (Window(6, None), [], {}),
        (Window(poison_rows=frozenset({1, 4})), [0, 2, 3], {1: "killed_worker", 4: "killed_worker", 5: "no_text"}),
    ],
)
@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_window_reads_only_its_rows_and_rejects_poison_rows_unread(
    window: Window,
    kept_rows: list[int],
    rejected: dict[int, str],
    ending: str,
    publish: Callable[..., str],
    hub_files: HubFiles,
    tmp_path: Path,
    jsonl: Callable[[Path], list[dict[str, Any]]],
) -> None:
    rows = [*pages(0, 5), {"text": None, "id": "page-5"}]
    files: dict[str, bytes | pa.Table] = {"data/a.jsonl": lines(rows[:3]), "data/b.jsonl": lines(rows[3:])}
    places = [(file, row) for file in files for row in range(3)]
    if ending == "parquet":
        files, places = {"data/a.parquet": pa.Table.from_pylist(rows)}, [("data/a.parquet", row) for row in range(6)]
    commit = publish(files, rows_per_group=3)
    [source] = recipe_with(tmp_path, only("pages", **SECTION | {"files": ["data/*"]}), commit).sources
    assert isinstance(source, HubSource)
    recipe = source.snapshot_recipe(1 << 20)
    settings = RunSettings(fetch_threads=1)
    plan = plan_snapshot(hub_files, recipe, settings)
    [shard] = plan_shards(fetch_pieces(hub_files, recipe, plan, settings), recipe.shard_text_bytes)

    receipt = convert_shard(shard, window, StagingView(tmp_path), recipe, 3, source.columns)

    documents, _, rejects = (tmp_path / file.path for file in receipt.files)
    assert [document["doc_id"] for document in jsonl(documents)] == [f"page-{row}" for row in kept_rows]
    assert [(reject["file"], reject["row"], reject["reason"]) for reject in jsonl(rejects)] == [
        (*places[row], reason) for row, reason in rejected.items()
    ]
    assert receipt.counts.get("rows", 0) == len(kept_rows) + len(rejected)


def test_bad_rows_are_rejects_with_their_reasons(
    hub_source: Normalize, read_rejects: Callable[[Artifact], list[dict[str, object]]]
) -> None:
    bad = b"""{"text": "half
[1, 2]
{"text": "\xff"}
{"text": null}
{"text": 5}
{"text": ""}
{"body": "x"}
{"text": "many", "score": "x"}
{"text": "few", "score": 1}
{"text": "none"}"""
    content = lines([{"text": "good", "score": 3}]) + bad

    snapshot = hub_source({"data/a.jsonl": content}, columns=COLUMNS | {"id": None}, rules=["score >= 3"])

    assert [(reject["row"], reject["reason"], reject["detail"]) for reject in read_rejects(snapshot)] == [
        (1, "not_json", "JSON is malformed: invalid character (byte 14)"),
        (2, "wrong_type", "the line is list"),
        (3, "invalid_utf8", "invalid start byte at byte 0"),
        (8, "wrong_type", "column `score` is str"),
    ]
    rejected = {"not_json": 1, "wrong_type": 2, "invalid_utf8": 1}
    assert ledger(snapshot) == {"in": 11, "out": 1, "dropped": {"score >= 3": 6}, "rejected": rejected}


def test_only_rows_with_another_language_are_dropped(hub_source: Normalize, read_docs: Read) -> None:
    rows = [{"text": code, "id": code} | ({"language": code} if code != "-" else {}) for code in ("en", "de", "-")]

    snapshot = hub_source({"data/a.jsonl": lines(rows)}, language="en")

    assert [document["text"] for document in read_docs(snapshot)] == ["en", "-"]
    assert ledger(snapshot)["dropped"] == {"language": 1}


def test_named_columns_without_values_are_recorded(hub_source: Normalize) -> None:
    snapshot = hub_source({"data/a.jsonl": lines(pages(0, 3))}, columns=COLUMNS | {"id": "key", "license": "licence"})

    assert snapshot.manifest.identity.decisions["columns_without_values"] == ["key", "licence"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"columns": COLUMNS | {"text": "body"}}, "column `body` not found in the first rows; they have text, id"),
        ({"rules": ["score >= 3"]}, "column `score` not found in the first rows; they have text, id"),
    ],
)
def test_a_column_not_in_first_rows_is_an_error(changes: dict[str, object], what: str, hub_source: Normalize) -> None:
    line = refusal(lambda: hub_source({"data/a.jsonl": lines(pages(0, 3))}, **changes), UsageError)

    assert line.startswith(f"{DATASET}@") and f":data/a.jsonl: {what}; " in line


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.jsonl.zst", PACKED["jsonl.zst"](lines(pages(0, 99)))[:-20], "the zstd stream is truncated"),
        ("a.json.gz", PACKED["json.gz"](b"{}")[:10] + b"\xff" * 40, "the gzip stream is damaged ("),
        ("a.jsonl", json.dumps(pages(0, 3)).encode(), "the file is a JSON array, not JSON lines"),
        ("a.jsonl", "{}\n".encode("utf-16"), "the file is UTF-16"),
    ],
)
def test_an_unreadable_file_is_reported_in_one_line_and_leaves_no_cached_bytes(
    name: str, content: bytes, what: str, hub_source: Normalize, hub_files: HubFiles
) -> None:
    line = refusal(lambda: hub_source({f"data/{name}": content}))

    assert f":data/{name}: {what}" in line
    if "stream" in what:
        assert line.endswith("; the file is damaged: pin another commit, or exclude it from `files`")
        assert not [path for path in hub_files.cache.glob("*/bytes/*/*") if path.is_file()]


def test_mixed_formats_are_refused(hub_source: Normalize) -> None:
    with pytest.raises(UsageError, match=r"JSON lines and others: data/a.jsonl, data/b.parquet; narrow `files`"):
        hub_source({"data/a.jsonl": b"", "data/b.parquet": b"PAR1"})


def test_a_healing_snapshot_reads_compressed_json_lines(
    publish: Callable[..., str], hub_files: HubFiles, tmp_path: Path, read_docs: Read
) -> None:
    rows = [row | {"url": "u", "language": "en"} for row in pages(0, 30)]
    commit = publish({"data/a.jsonl.zst": PACKED["jsonl.zst"](lines(rows))})
    recipe = healing_recipe(commit, {"files": ["data/*"], "amount": {"documents": 20}})

    snapshot = build_snapshot(recipe, tmp_path / "data", hub_files)

    assert [document["meta"]["source_row"] for document in read_docs(snapshot)] == list(range(20))
    assert {document["meta"]["language"] for document in read_docs(snapshot)} == {"en"}

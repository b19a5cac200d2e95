"""The stage `encode`: tokens, rejects and spot checks of the fast driver."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from wrong_tokenizer import wrong_gigatoken

from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.tokens import encode
from pipeline_assets.corpus.tokens.encode import DocumentTable, encode_shard, is_spot_checked
from pipeline_assets.corpus.tokens.families import TokenizerFile
from pipeline_assets.corpus.tokens.o200k_harmony import HarmonyRecipe
from pipeline_assets.spine.artifact import Artifact
from pipeline_assets.spine.stage import WHOLE_SHARD, Window
from pipeline_assets.spine.staging import Receipt, StagingView
from pipeline_assets.systems.healing import HealingRecipe

PATH = "shards/00000.jsonl.zst"
HELLO = [13225, 2375]  # "Hello world"
END = 199_999
SHIPPED = TokenizerFile(HarmonyRecipe())


class Result(NamedTuple):
    """Receipt and contents of an encoded shard."""

    receipt: Receipt
    ids: list[int]
    table: list[dict[str, object]]
    rejects: list[dict[str, object]]

    @property
    def counts(self) -> Mapping[str, int]:
        return self.receipt.counts

    @property
    def rows(self) -> list[object]:
        return [line["row"] for line in self.table]


@pytest.fixture
def run_encode(tmp_path: Path, jsonl: Callable[[Path], list[dict[str, object]]]) -> Callable[..., Result]:
    """Return a function that encodes pairs (doc_id, text), or lines of JSON."""

    def run(*documents: tuple[str, str] | bytes, window: Window = WHOLE_SHARD, **split: Any) -> Result:
        lines = [
            document
            if isinstance(document, bytes)
            else json.dumps({"text": document[1], "doc_id": document[0], "license_tag": "odc-by"}).encode()
            for document in documents
        ]
        with JsonlZstWriter(tmp_path / "shard.jsonl.zst", 3) as writer:
            writer.write_lines(b"".join(line + b"\n" for line in lines), len(lines))
        shard = DocumentShard("00000", PATH, tmp_path / "shard.jsonl.zst", len(lines))
        receipt = encode_shard(shard, window, StagingView(tmp_path), SHIPPED, 3, **split)
        tokens, documents_file, rejects = (tmp_path / file.path for file in receipt.files)
        table = DocumentTable(documents_file)
        columns = [table.doc_ids.to_pylist(), table.license_tags.to_pylist()]
        columns += [column.tolist() for column in (table.rows, table.starts, table.tokens)]
        names = ("doc_id", "license_tag", "row", "start", "tokens")
        entries = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        return Result(receipt, np.fromfile(tokens, np.int32).tolist(), entries, jsonl(rejects))

    return run


def test_each_document_has_ids_with_an_end_of_text_and_a_row_of_the_table(run_encode: Callable[..., Result]) -> None:
    result = run_encode(("page-0", "Hello world"), ("page-1", " world"))

    assert result.ids == [*HELLO, END, 2375, END]
    assert result.table == [
        {"doc_id": "page-0", "license_tag": "odc-by", "row": 0, "start": 0, "tokens": 3},
        {"doc_id": "page-1", "license_tag": "odc-by", "row": 1, "start": 3, "tokens": 2},
    ]
    assert result.counts == {"rows": 2, "documents": 2, "tokens": 5, "bytes": 17, "spot_checked": 0}
    assert result.receipt.notes == {"driver": "gigatoken"}


def test_documents_of_the_other_split_are_counted_but_keep_row_numbers(run_encode: Callable[..., Result]) -> None:
    documents = [(f"page-{number}", "Hello world") for number in range(30)]

    train = run_encode(*documents, split="train", valid_fraction="0.1")
    valid = run_encode(*documents, split="valid", valid_fraction="0.1")

    assert valid.rows == [1, 2, 27]
    assert train.rows == [row for row in range(30) if row not in (1, 2, 27)]
    assert (train.counts["dropped/other_split"], valid.counts["dropped/other_split"]) == (3, 27)


def test_a_shard_without_documents_of_the_split_has_empty_files(run_encode: Callable[..., Result]) -> None:
    other = run_encode(("page-0", "Hello world"), split="valid")
    empty = run_encode()

    assert other.ids == other.table == empty.ids == empty.table == []
    assert other.counts["dropped/other_split"] == 1
    assert empty.counts == {"rows": 0, "documents": 0, "tokens": 0, "bytes": 0, "spot_checked": 0}


def test_blocks_of_lines_change_no_result(run_encode: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [(f"page-{number}", f"Hello {number}\u2028world") for number in range(200)]
    whole = run_encode(*documents)

    monkeypatch.setattr(encode, "_BLOCK_BYTES", 1)

    assert run_encode(*documents) == whole


def test_a_document_on_which_tiktoken_panics_is_rejected_with_its_row(
    run_encode: Callable[..., Result], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run_encode(("page-0", "Hello world"), ("page-1", " " * 999_999), ("page-2", "Hello world"))

    detail = "a million blanks in a row overflow the tokenizer"
    assert caplog.messages == [f"{PATH} row 1: document 'page-1' is rejected: {detail}"]
    assert "panicked" not in capfd.readouterr().err
    assert result.ids == [*HELLO, END, *HELLO, END]
    assert result.rejects == [{"file": PATH, "row": 1, "reason": "blanks", "detail": detail}]
    assert result.counts["rejected/blanks"] == 1


def test_a_poison_row_is_rejected_unread(run_encode: Callable[..., Result]) -> None:
    documents = ("page-0", "Hello world"), b"not even JSON", ("page-2", "Hello world")

    result = run_encode(*documents, window=Window(poison_rows=frozenset({1})))

    assert result.rows == [0, 2]
    assert result.rejects == [{"file": PATH, "row": 1, "reason": "killed_worker", "detail": ""}]
    assert (result.counts["rows"], result.counts["rejected/killed_worker"]) == (3, 1)


def test_the_same_thousandth_of_documents_is_always_spot_checked(run_encode: Callable[..., Result]) -> None:
    result = run_encode(*[(f"page-{number}", "Hello world") for number in range(1000)])

    assert [number for number in range(1000) if is_spot_checked(f"page-{number}")] == [175, 475]
    assert result.counts["spot_checked"] == 2
    assert sum(is_spot_checked(f"page-{number}") for number in range(100_000)) == 94


def test_a_wrong_fast_tokenizer_is_replaced_by_tiktoken_for_all_documents(
    ingest: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # page-175 is spot-checked; page-5, in the shard before it, is wrong too but not checked.
    pages = pa.table({"text": ["It's a page", "It's a page"], "id": ["page-5", "page-175"]})
    corpus = {"rows_per_group": 1, "shard_text_bytes": 1}
    revision = ingest({"a.parquet": pages}, **corpus).manifest.identity.recipe["revision"]
    ingest({"a.parquet": pages}, root="slow", **corpus)
    recipe = healing_recipe(revision, {"shard_text_bytes": 1})
    right = build_megatron(recipe, tmp_path / "slow", "train", driver="tiktoken")

    with wrong_gigatoken():
        rebuilt = build_megatron(recipe, tmp_path / "data", "train")

    assert rebuilt.manifest.digest == right.manifest.digest
    assert rebuilt.path("tokens.bin").read_bytes() == right.path("tokens.bin").read_bytes()
    assert rebuilt.manifest.provenance["tokenizer_driver"] == ["tiktoken"]
    assert rebuilt.manifest.provenance["spot_checked_documents"] == 1
    assert caplog.messages[-1] == (
        "shards/00001.jsonl.zst row 0: gigatoken and tiktoken disagree; tiktoken encodes everything again"
    )

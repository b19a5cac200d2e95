"""Writing of a Document shard: documents, ids, rejects and counts."""

import json
from pathlib import Path

import pytest

from pipeline_assets.corpus.converted_shards import ShardWriter
from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.formats.jsonl_zst import read_line_blocks
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.staging import Receipt, StagingView


def document(doc_id: str, text: str = "Text.") -> Document:
    return Document(text, "notes", "books", doc_id, "cc0-1.0", "", Meta("a.jsonl", 0))


@pytest.fixture
def folder(tmp_path: Path) -> StagingView:
    return StagingView(tmp_path)


def read_rows(folder: StagingView, receipt: Receipt, file: int) -> list[dict[str, object]]:
    blocks = read_line_blocks(folder.path(receipt.files[file].path))
    return [json.loads(line) for block in blocks for line in block.splitlines()]


def test_shard_consists_of_documents_ids_and_rejects(folder: StagingView) -> None:
    with ShardWriter(folder, "00007", 3) as writer:
        writer.write([document("b"), document("a", "naïve 日本語 🐻")])
        writer.reject(Reject("a.jsonl", 3, "no_text", "null"))
        writer.write([document("c")])
    receipt = writer.receipt()

    assert [(file.path, file.rows) for file in receipt.files] == [
        (".work/converted/00007.jsonl.zst", 3),
        (".work/ids/00007", 3),
        (".work/rejects/00007.jsonl.zst", 1),
    ]
    assert [row["doc_id"] for row in read_rows(folder, receipt, 0)] == ["b", "a", "c"]
    assert read_rows(folder, receipt, 2) == [{"file": "a.jsonl", "row": 3, "reason": "no_text", "detail": "null"}]
    assert receipt.counts == {"documents": 3, "bytes": 5 + 21 + 5, "rejected/no_text": 1}  # of UTF-8


def test_zero_counts_are_omitted(folder: StagingView) -> None:
    with ShardWriter(folder, "00000", 3) as writer:
        writer.write([])
        writer.count("rows", 0)
        writer.count("merged", 2)
        writer.count("merged")
    receipt = writer.receipt()

    assert receipt.counts == {"merged": 3}
    assert [file.rows for file in receipt.files] == [0, 0, 0]


def test_a_shard_that_fails_leaves_no_file(folder: StagingView) -> None:
    with pytest.raises(ZeroDivisionError), ShardWriter(folder, "00000", 3) as writer:
        writer.write([document("a")])
        raise ZeroDivisionError

    assert [path.name for path in folder.folder.rglob("*") if path.is_file()] == []

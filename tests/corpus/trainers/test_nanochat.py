"""Files for nanochat: row groups of 1,000 texts, 1 % of documents for validation."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from document_corpus import seal_corpus

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.sealed_shards import document_shards
from pipeline_assets.corpus.trainers import nanochat
from pipeline_assets.corpus.trainers.nanochat import write_nanochat
from pipeline_assets.spine.build_result import BuildResult
from pipeline_assets.spine.errors import UsageError
from pipeline_assets.spine.opening import open_staging_dir


def export_corpus(tmp_path: Path, count: int, shard_documents: int) -> tuple[BuildResult, list[pq.ParquetFile]]:
    meta = Meta(source_file="f", source_row=0, license_evidence="recipe")
    fixed: dict[str, Any] = {"source": "web", "domain": "web", "license_tag": "cc0-1.0", "created_at": "", "meta": meta}
    documents = [Document(text=f"text {number}", doc_id=f"id-{number}", **fixed) for number in range(count)]
    corpus = seal_corpus(tmp_path, "web", documents, shard_documents)
    with open_staging_dir(tmp_path / "out", {}) as staging:
        result = write_nanochat(staging, document_shards(corpus))
        return result, [pq.ParquetFile(staging.path(file.path), memory_map=False) for file in result.files]


def test_files_have_groups_of_1000_and_the_last_is_for_validation(tmp_path: Path) -> None:
    result, files = export_corpus(tmp_path, 2_351, 1_000)

    assert [file.path for file in result.files] == ["shard_00000.parquet", "shard_00001.parquet"]
    groups = [[file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] for file in files]
    assert groups == [[1000, 1000, 327], [24]]
    assert files[1].read()["doc_id"].to_pylist() == [f"id-{number}" for number in range(0, 2_351, 100)]
    trained = [number for number in range(2_351) if number % 100]
    assert files[0].read()["text"].to_pylist() == [f"text {number}" for number in trained]
    assert result.counts["documents"] == {"train": 2_327, "valid": 24}


def test_a_file_has_100_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nanochat, "_FILE_ROW_GROUPS", 2)

    result, files = export_corpus(tmp_path, 4_041, 4_100)

    assert [file.rows for file in result.files] == [2000, 2000, 41]
    assert [file.num_row_groups for file in files] == [2, 2, 1]


@pytest.mark.parametrize("count", [0, 1])
def test_a_corpus_without_two_documents_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(UsageError, match=f"nanochat needs at least 2 documents, got {count}"):
        export_corpus(tmp_path, count, 10)

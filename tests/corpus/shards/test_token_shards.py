"""Opened token shards: rows as views, the documents of each row, and refusals."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pack_build import license_for
from refusals import refusal
from shards_build import by_model, copy_set, manual, numbered_rows, seal_rows, shard_documents

from pipeline_assets.build.rows.token_rows import TokenShardRows
from pipeline_assets.corpus.formats import parquet
from pipeline_assets.corpus.shards import token_shards
from pipeline_assets.corpus.shards.token_shards import TokenShards, open_shards
from pipeline_assets.corpus.tokens.families import load_tokenizer
from pipeline_assets.spine.errors import InputError, RetryableError
from pipeline_assets.spine.lineage import Lineage

EXPECTED = "expected uint16 of shape (5, 16) in C order"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory, texts: list[str], model: Path) -> TokenShards:
    """30 paragraphs in rows of 16."""
    folder = tmp_path_factory.mktemp("made")
    return open_shards(shard_documents(folder, manual(texts[:30]), by_model(model)).folder)


def test_rows_are_views_of_the_files(shards: TokenShards) -> None:
    files = [np.load(path) for path in sorted(shards.folder.glob("*.npy"))]

    assert np.concatenate(files).tolist() == [shards[row].tolist() for row in range(len(shards))]
    assert shards[-1].tolist() == files[-1][-1].tolist()
    assert (shards.dtype, shards.seq_len, shards.vocabulary_size) == (np.dtype("uint16"), 16, 400)
    assert not shards[0].flags.writeable and not shards[0].flags.owndata
    with pytest.raises(IndexError):
        shards[len(shards)]


@pytest.mark.parametrize("group_rows", [4, 65_536])
def test_the_documents_of_a_row_are_its_tokens(
    tmp_path: Path, texts: list[str], model: Path, group_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet.ParquetOutput.__init__, "__defaults__", (group_rows,))
    short = [text[: 5 + number] for number, text in enumerate(texts[:30])]
    documents, tokenizer = manual(short), by_model(model)
    artifact = shard_documents(tmp_path, documents, tokenizer)
    shards, rows = open_shards(artifact.folder), TokenShardRows(artifact, Lineage(tmp_path))
    library = load_tokenizer(tokenizer)
    ids = {item.doc_id: [*library.encode([item.text]).ids.tolist(), shards.eos] for item in documents}

    for row in range(len(shards)):
        parts = [*rows.row_parts(row)]
        tokens = [token for item in parts for token in ids[item.id][item.start : item.start + item.tokens]]
        assert shards[row].tolist() == tokens
        assert [item.column for item in parts] == [sum(item.tokens for item in parts[:n]) for n in range(len(parts))]
        assert all(line["license_tag"] == license_for(line["doc_id"]) for line in shards.document_entries_in_row(row))
        numbers = [int(item.id.removeprefix("manual-")) for item in parts]
        assert [(item.shard, item.shard_row) for item in parts] == [
            (f"shards/{number // 7:05d}.jsonl.zst", number % 7) for number in numbers
        ]


def test_unpickled_shards_are_open(shards: TokenShards) -> None:
    data = pickle.dumps(shards)

    assert len(data) < 1000
    assert pickle.loads(data) == shards


def test_a_replaced_set_is_refused(tmp_path: Path) -> None:
    folder = seal_rows(tmp_path, "a", numbered_rows(2, 12)).folder
    opened = open_shards(folder)
    pickled, first = pickle.dumps(opened), opened[0]
    seal_rows(tmp_path, "a", numbered_rows(100, 12), rows_per_shard=4)

    assert first.tolist() == [2] * 4
    line = refusal(lambda: opened[11], RetryableError)
    assert line == f"{folder}: the folder was replaced while it was read; open the set again"
    line = refusal(lambda: pickle.loads(pickled), RetryableError)
    assert line == f"{folder}: set was replaced since it was opened; open the set again"


def test_files_are_mapped_again_beyond_the_limit(shards: TokenShards, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [shards[row].tolist() for row in range(len(shards))]
    narrow = token_shards.functools.lru_cache(2)(token_shards._map_shard.__wrapped__)
    monkeypatch.setattr(token_shards, "_map_shard", narrow)

    assert [shards[row].tolist() for row in range(len(shards))] == expected
    assert narrow.cache_info().currsize == 2


def test_a_folder_without_shards_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "folder not found" in refusal(lambda: open_shards(tmp_path / "gone"), InputError)
    assert "expected a folder, got a file" in refusal(lambda: open_shards(tmp_path / "file"), InputError)
    assert "no sealed artifact found" in refusal(lambda: open_shards(tmp_path), InputError)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-2]), "has 286 bytes, sealed with 288; restore the file"),
        (Path.unlink, "the file is missing; restore the file or rebuild the set"),
        (lambda path: np.save(path, np.zeros((5, 16), "<i2")), f"{EXPECTED}, got int16 of shape (5, 16) in C order"),
        (lambda path: np.save(path, np.zeros((16, 5), "<u2")), f"{EXPECTED}, got uint16 of shape (16, 5) in C order"),
        (
            lambda path: np.save(path, np.zeros((5, 16), "<u2", "F")),
            f"{EXPECTED}, got uint16 of shape (5, 16) in F order with 288 bytes",
        ),
        (lambda path: path.write_bytes(b"x" * 288), "not an array"),
    ],
    ids=["cut", "missing", "another type", "another shape", "another order", "no array"],
)
def test_a_damaged_shard_is_named(
    shards: TokenShards, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    path = copy_set(shards.folder, tmp_path) / "shard_00001.npy"
    damage(path)

    line = refusal(lambda: open_shards(path.parent), InputError)

    assert line.startswith(f"{path}: {message}")

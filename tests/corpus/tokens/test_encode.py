"""The stage `encode`: which documents become tokens, which are rejected, and how the fast driver is watched."""

import json
from collections.abc import Callable
from pathlib import Path

import gigatoken
import numpy as np
import pyarrow as pa
import pytest

from pipeline_assets.corpus.document_shards import DocumentShard
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.spine.artifact import Artifact
from pipeline_assets.corpus.spine.errors import InputError
from pipeline_assets.corpus.spine.staging import BuildFolder, Receipt
from pipeline_assets.corpus.spine.worker import WHOLE, Window
from pipeline_assets.corpus.tokens import encode
from pipeline_assets.corpus.tokens.encode import DocumentTable, encode_shard, is_spot_checked
from pipeline_assets.corpus.tokens.families import TokenizerFile, load_tokenizer
from pipeline_assets.corpus.tokens.o200k_harmony import TokenizerRecipe
from pipeline_assets.systems.healing import HealingRecipe

PATH = "shards/00000.jsonl.zst"
HELLO = [13225, 2375]  # "Hello world"
END = 199_999
SHIPPED = TokenizerFile(TokenizerRecipe())


@pytest.fixture
def shard(tmp_path: Path) -> Callable[..., DocumentShard]:
    """A Document shard of (doc_id, text) pairs, or of lines as they are given."""

    def write(*documents: tuple[str, str] | bytes) -> DocumentShard:
        lines = [
            document
            if isinstance(document, bytes)
            else json.dumps({"text": document[1], "doc_id": document[0], "license_tag": "odc-by"}).encode()
            for document in documents
        ]
        with JsonlZstWriter(tmp_path / "shard.jsonl.zst", 3) as writer:
            writer.write_lines(b"".join(line + b"\n" for line in lines), len(lines))
        return DocumentShard("00000", PATH, tmp_path / "shard.jsonl.zst", len(lines))

    return write


@pytest.fixture
def encoded(tmp_path: Path) -> Callable[..., Receipt]:
    def run(shard: DocumentShard, window: Window = WHOLE, valid_fraction: str = "0", split: str = "train") -> Receipt:
        return encode_shard(shard, window, BuildFolder(tmp_path), SHIPPED, 3, split, valid_fraction)  # type: ignore[arg-type]

    return run


@pytest.fixture
def ids_of(tmp_path: Path) -> Callable[[Receipt], list[int]]:
    return lambda receipt: np.fromfile(tmp_path / receipt.files[0].path, np.int32).tolist()


@pytest.fixture
def rows_of(tmp_path: Path) -> Callable[[Receipt], list[dict[str, object]]]:
    def read(receipt: Receipt) -> list[dict[str, object]]:
        table = DocumentTable(tmp_path / receipt.files[1].path)
        columns = [table.doc_ids.to_pylist(), table.license_tags.to_pylist()]
        columns += [column.tolist() for column in (table.rows, table.starts, table.tokens)]
        names = ("doc_id", "license_tag", "row", "start", "tokens")
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    return read


@pytest.fixture
def rejects(tmp_path: Path, jsonl: Callable[[Path], list[dict[str, object]]]) -> Callable[[Receipt], list[object]]:
    return lambda receipt: jsonl(tmp_path / receipt.files[2].path)


def test_each_document_is_its_ids_and_the_end_of_text_and_a_row_of_the_table(
    shard: Callable[..., DocumentShard],
    encoded: Callable[..., Receipt],
    ids_of: Callable[[Receipt], list[int]],
    rows_of: Callable[[Receipt], list[dict[str, object]]],
) -> None:
    documents = shard(("page-0", "Hello world"), ("page-1", " world"))

    receipt = encoded(documents)

    assert ids_of(receipt) == [*HELLO, END, 2375, END]
    assert rows_of(receipt) == [
        {"doc_id": "page-0", "license_tag": "odc-by", "row": 0, "start": 0, "tokens": 3},
        {"doc_id": "page-1", "license_tag": "odc-by", "row": 1, "start": 3, "tokens": 2},
    ]
    assert receipt.counts == {"rows": 2, "documents": 2, "tokens": 5, "bytes": 17, "spot_checked": 0}
    assert receipt.notes == {"driver": "gigatoken"}


def test_documents_of_the_other_split_are_counted_and_keep_their_row_numbers(
    shard: Callable[..., DocumentShard],
    encoded: Callable[..., Receipt],
    rows_of: Callable[[Receipt], list[dict[str, object]]],
) -> None:
    documents = shard(*[(f"page-{number}", "Hello world") for number in range(30)])

    train = encoded(documents, valid_fraction="0.1")
    train_rows = [row["row"] for row in rows_of(train)]
    valid = encoded(documents, valid_fraction="0.1", split="valid")

    assert [row["row"] for row in rows_of(valid)] == [1, 2, 27]
    assert train_rows == [row for row in range(30) if row not in (1, 2, 27)]
    assert train.counts["dropped/other_split"] == 3
    assert valid.counts["dropped/other_split"] == 27


def test_a_shard_without_documents_of_the_split_or_without_documents_leaves_empty_files(
    shard: Callable[..., DocumentShard], encoded: Callable[..., Receipt], ids_of: Callable[[Receipt], list[int]]
) -> None:
    other = encoded(shard(("page-0", "Hello world")), split="valid")
    empty = encoded(shard())

    assert ids_of(other) == ids_of(empty) == []
    assert other.counts["dropped/other_split"] == 1
    assert empty.counts == {"rows": 0, "documents": 0, "tokens": 0, "bytes": 0, "spot_checked": 0}


def test_blocks_of_lines_have_no_part_in_the_result(
    shard: Callable[..., DocumentShard],
    encoded: Callable[..., Receipt],
    ids_of: Callable[[Receipt], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = shard(*[(f"page-{number}", f"Hello {number}\u2028world") for number in range(200)])
    whole = encoded(documents)
    whole_ids = ids_of(whole)

    monkeypatch.setattr(encode, "_BLOCK_BYTES", 1)
    in_blocks = encoded(documents)

    assert ids_of(in_blocks) == whole_ids
    assert in_blocks == whole


def test_a_document_on_which_tiktoken_panics_is_rejected_with_its_row(
    shard: Callable[..., DocumentShard],
    encoded: Callable[..., Receipt],
    ids_of: Callable[[Receipt], list[int]],
    rejects: Callable[[Receipt], list[object]],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    documents = shard(("page-0", "Hello world"), ("page-1", " " * 999_999), ("page-2", "Hello world"))

    receipt = encoded(documents)

    assert caplog.messages == [
        f"{PATH} row 1: document 'page-1' is rejected: a million blanks in a row overflow the tokenizer"
    ]
    assert "panicked" not in capfd.readouterr().err

    assert ids_of(receipt) == [*HELLO, END, *HELLO, END]
    assert rejects(receipt) == [
        {"file": PATH, "row": 1, "reason": "blanks", "detail": "a million blanks in a row overflow the tokenizer"}
    ]
    assert receipt.counts["rejected/blanks"] == 1


def test_a_row_that_kills_its_worker_is_rejected_unread(
    shard: Callable[..., DocumentShard],
    encoded: Callable[..., Receipt],
    rows_of: Callable[[Receipt], list[dict[str, object]]],
    rejects: Callable[[Receipt], list[object]],
) -> None:
    documents = shard(("page-0", "Hello world"), b"not even JSON", ("page-2", "Hello world"))

    receipt = encoded(documents, Window(fatal=frozenset({1})))

    assert [row["row"] for row in rows_of(receipt)] == [0, 2]
    assert rejects(receipt) == [{"file": PATH, "row": 1, "reason": "killed_worker", "detail": ""}]
    assert (receipt.counts["rows"], receipt.counts["rejected/killed_worker"]) == (3, 1)


def test_a_window_reads_its_rows_alone(
    shard: Callable[..., DocumentShard],
    encoded: Callable[..., Receipt],
    rows_of: Callable[[Receipt], list[dict[str, object]]],
) -> None:
    documents = shard(*[(f"page-{number}", "Hello world") for number in range(6)])

    receipt = encoded(documents, Window(start=2, stop=4))

    assert [row["row"] for row in rows_of(receipt)] == [2, 3]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"doc_id":"page-1"}', "Object missing required field `text`"),
        (b'{"doc_id":"page-1","text":7}', "Expected `str`, got `int` - at `$.text`"),
        (b'{"doc_id":"page-1","te', "Input data was truncated"),
        (b"", "Input data was truncated"),
    ],
)
def test_a_line_that_is_no_document_is_an_error_that_names_file_and_row(
    shard: Callable[..., DocumentShard], encoded: Callable[..., Receipt], line: bytes, complaint: str
) -> None:
    documents = shard(("page-0", "Hello world"), line)

    with pytest.raises(InputError) as error:
        encoded(documents)

    assert str(error.value) == (
        f"{documents.file}: row 1 is no Document ({complaint}); verify the corpus, then rebuild it"
    )


def test_a_shard_cut_off_on_disk_is_an_error_that_names_it(
    shard: Callable[..., DocumentShard], encoded: Callable[..., Receipt]
) -> None:
    documents = shard(*[(f"page-{number}", "Hello world") for number in range(1000)])
    documents.file.write_bytes(documents.file.read_bytes()[:-20])

    with pytest.raises(InputError) as error:
        encoded(documents)

    assert str(error.value) == (
        f"{documents.file}: the zstd stream is cut off; restore the file or rebuild the artifact"
    )


def test_one_document_in_a_thousand_is_spot_checked_always_the_same(
    shard: Callable[..., DocumentShard], encoded: Callable[..., Receipt]
) -> None:
    documents = shard(*[(f"page-{number}", "Hello world") for number in range(1000)])

    receipt = encoded(documents)

    assert [number for number in range(1000) if is_spot_checked(f"page-{number}")] == [175, 475]
    assert receipt.counts["spot_checked"] == 2
    assert sum(is_spot_checked(f"page-{number}") for number in range(100_000)) == 94


class WrongTokenizer:
    """gigatoken with the splits of cl100k, which part a contraction from its word."""

    @staticmethod
    def from_tiktoken(vocabulary: Path, pretokenizer: str, special_tokens: dict[str, int]) -> gigatoken.Tokenizer:
        return TOKENIZER.from_tiktoken(vocabulary, pretokenizer="cl100k", special_tokens=special_tokens)


TOKENIZER = gigatoken.Tokenizer


def test_when_the_fast_tokenizer_is_wrong_everything_is_encoded_again_by_tiktoken(
    take: Callable[..., Artifact],
    build_megatron: Callable[..., Artifact],
    healing_recipe: Callable[..., HealingRecipe],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # page-175 is spot-checked; page-5, in the shard before it, is wrong too and nobody looks at it.
    pages = pa.table({"text": ["It's a page", "It's a page"], "id": ["page-5", "page-175"]})
    corpus = {"rows_per_group": 1, "shard_text_bytes": 1}
    revision = take({"a.parquet": pages}, **corpus).manifest.identity.recipe["revision"]
    take({"a.parquet": pages}, root="slow", **corpus)
    recipe = healing_recipe(revision, {"shard_text_bytes": 1})
    right = build_megatron(recipe, tmp_path / "slow", "train", driver="tiktoken")

    monkeypatch.setattr(gigatoken, "Tokenizer", WrongTokenizer)
    load_tokenizer.cache_clear()
    redone = build_megatron(recipe, tmp_path / "data", "train")
    load_tokenizer.cache_clear()

    assert redone.manifest.digest == right.manifest.digest
    assert redone.path("tokens.bin").read_bytes() == right.path("tokens.bin").read_bytes()
    assert redone.manifest.provenance["tokenizer_driver"] == ["tiktoken"]
    assert redone.manifest.provenance["spot_checked_documents"] == 1
    assert caplog.messages[-1] == (
        "shards/00001.jsonl.zst row 0: gigatoken and tiktoken disagree; tiktoken encodes everything again"
    )

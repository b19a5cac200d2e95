"""Reading of Document shards: blocks, windows and poison rows."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pipeline_assets.corpus.document_lines import read_lines
from pipeline_assets.corpus.document_shards import DocumentShard, read_documents
from pipeline_assets.corpus.formats.jsonl_zst import JsonlZstWriter
from pipeline_assets.corpus.partial_documents import DocumentText
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.stage import WHOLE_SHARD, Window

DECODER = msgspec.json.Decoder(DocumentText)
LINES = [b'{"doc_id":"page-%d","text":"a\xe2\x80\xa8b","license_tag":"cc0"}' % number for number in range(9)]


def write_shard(folder: Path, lines: list[bytes]) -> DocumentShard:
    path = folder / "in.jsonl.zst"
    with JsonlZstWriter(path, 3) as writer:
        writer.write_lines(b"".join(line + b"\n" for line in lines), len(lines))
    return DocumentShard("00000", "shards/00000.jsonl.zst", path, len(lines))


def read(shard: DocumentShard, window: Window = WHOLE_SHARD, block_bytes: int = 1) -> list[tuple[int, str | None]]:
    """Read the row and id of each document; a poison row has no id."""
    rows: list[tuple[int, str | None]] = []
    for documents, poison_rows in read_documents(shard, window, DECODER, block_bytes):
        rows += [(row, document.doc_id) for row, document in documents] + [(row, None) for row in poison_rows]
    return sorted(rows)


@pytest.mark.parametrize("block_bytes", [1, 200, 1 << 20])
def test_every_row_is_read_once_with_its_line_for_any_block_size(tmp_path: Path, block_bytes: int) -> None:
    shard = write_shard(tmp_path, LINES)

    assert read(shard, WHOLE_SHARD, block_bytes) == [(row, f"page-{row}") for row in range(9)]
    assert [row for block in read_lines(shard, WHOLE_SHARD, block_bytes) for row in block.lines] == [*enumerate(LINES)]


@pytest.mark.parametrize("block_bytes", [1, 200, 1 << 20])
def test_window_has_only_its_rows_and_poison_rows_are_not_read(tmp_path: Path, block_bytes: int) -> None:
    shard = write_shard(tmp_path, [*LINES[:3], b"not even JSON", *LINES[4:]])

    rows = read(shard, Window(2, 6, frozenset({3})), block_bytes)

    assert rows == [(2, "page-2"), (3, None), (4, "page-4"), (5, "page-5")]


def test_a_shard_without_a_line_has_no_block(tmp_path: Path) -> None:
    assert read(write_shard(tmp_path, [])) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"doc_id":"page-1","license_tag":"cc0"}', "Object missing required field `text`"),
        (b'{"doc_id":"page-1","text":7}', "Expected `str`, got `int` - at `$.text`"),
        (b'{"doc_id":"page-1","te', "Input data was truncated"),
        (b"", "Input data was truncated"),
        (
            b'{"doc_id":"page-1","text":"\xff"}',
            "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
    ],
)
def test_line_that_is_not_a_document_is_an_error_with_its_row(tmp_path: Path, line: bytes, message: str) -> None:
    shard = write_shard(tmp_path, [LINES[0], line])

    with pytest.raises(InputError) as error:
        read(shard, block_bytes=1 << 20)

    assert str(error.value) == f"{shard.file}: row 1 is not a Document ({message}); verify the corpus, then rebuild it"


def test_row_count_that_differs_from_the_manifest_is_an_error(tmp_path: Path) -> None:
    shard = replace(write_shard(tmp_path, LINES), rows=10)

    with pytest.raises(InputError, match="expected 10 rows, got 9; verify the corpus"):
        read(shard)

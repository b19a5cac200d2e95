"""A Document shard as stages read it: in blocks, in a window, without the rows that kill."""

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


def shard_of(folder: Path, lines: list[bytes]) -> DocumentShard:
    path = folder / "in.jsonl.zst"
    with JsonlZstWriter(path, 3) as writer:
        writer.write_lines(b"".join(line + b"\n" for line in lines), len(lines))
    return DocumentShard("00000", "shards/00000.jsonl.zst", path, len(lines))


def read(shard: DocumentShard, window: Window = WHOLE_SHARD, block_bytes: int = 1) -> list[tuple[int, str | None]]:
    """Row and id of each document, None for one that is not read."""
    found: list[tuple[int, str | None]] = []
    for documents, fatal in read_documents(shard, window, DECODER, block_bytes):
        found += [(row, document.doc_id) for row, document in documents] + [(row, None) for row in fatal]
    return sorted(found)


@pytest.mark.parametrize("block_bytes", [1, 200, 1 << 20])
def test_every_row_is_read_once_with_its_line_however_long_blocks_are(tmp_path: Path, block_bytes: int) -> None:
    shard = shard_of(tmp_path, LINES)

    assert read(shard, WHOLE_SHARD, block_bytes) == [(row, f"page-{row}") for row in range(9)]
    assert [one for block in read_lines(shard, WHOLE_SHARD, block_bytes) for one in block.lines] == [*enumerate(LINES)]


@pytest.mark.parametrize("block_bytes", [1, 200, 1 << 20])
def test_a_window_has_its_rows_alone_and_fatal_ones_are_not_read(tmp_path: Path, block_bytes: int) -> None:
    shard = shard_of(tmp_path, [*LINES[:3], b"not even JSON", *LINES[4:]])

    found = read(shard, Window(2, 6, frozenset({3})), block_bytes)

    assert found == [(2, "page-2"), (3, None), (4, "page-4"), (5, "page-5")]


def test_a_shard_without_a_line_has_no_block(tmp_path: Path) -> None:
    assert read(shard_of(tmp_path, [])) == []


@pytest.mark.parametrize(
    ("line", "complaint"),
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
def test_a_line_that_is_no_document_is_an_error_with_file_and_row(tmp_path: Path, line: bytes, complaint: str) -> None:
    shard = shard_of(tmp_path, [LINES[0], line])

    with pytest.raises(InputError) as error:
        read(shard, block_bytes=1 << 20)

    assert (
        str(error.value) == f"{shard.file}: row 1 is not a Document ({complaint}); verify the corpus, then rebuild it"
    )


def test_a_shard_with_other_rows_than_its_manifest_says_is_an_error(tmp_path: Path) -> None:
    shard = replace(shard_of(tmp_path, LINES), rows=10)

    with pytest.raises(InputError, match="expected 10 rows, got 9; verify the corpus"):
        read(shard)


def test_a_shard_cut_off_on_disk_is_an_error_that_names_it(tmp_path: Path) -> None:
    shard = shard_of(tmp_path, LINES * 100)
    shard.file.write_bytes(shard.file.read_bytes()[:-20])

    with pytest.raises(InputError) as error:
        read(shard)

    assert str(error.value) == f"{shard.file}: the zstd stream is truncated; restore the file or rebuild the artifact"

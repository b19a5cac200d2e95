"""Reading of packed sets, and refusal of invalid ones."""

import json
import multiprocessing
import operator
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zstandard
from refusals import refusal

from pipeline_assets.corpus.formats.memmap import (
    BOUNDARIES_FILE,
    BOUNDARY_OFFSETS_FILE,
    INDEX_FILE,
    INPUT_IDS_FILE,
    META_FILE,
    Frame,
    PackedSet,
    PackedSetMeta,
    Segment,
    open_packed,
)
from pipeline_assets.spine.errors import InputError, RetryableError

ROWS = [[11, 12, 1, 21], [22, 1, 31, 1], [41, 42, 43, 1], [51, 1, 0, 0]]
SEGMENTS = [
    [Segment("one", "a", 0, 3), Segment("two", "b", 0, 1)],
    [Segment("two", "b", 1, 2), Segment("three", "a", 0, 2)],
    [Segment("four", "a", 0, 4)],
    [Segment("five", "b", 0, 2)],
]


def line(segments: list[Segment]) -> bytes:
    return json.dumps([{name: getattr(item, name) for name in item.__struct_fields__} for item in segments]).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a packed set of four rows of four tokens, its index in two frames."""
    np.array(ROWS, "<i4").tofile(tmp_path / INPUT_IDS_FILE)
    frames = [
        zstandard.compress(b"".join(line(segments) + b"\n" for segments in part))
        for part in (SEGMENTS[:3], SEGMENTS[3:])
    ]
    (tmp_path / INDEX_FILE).write_bytes(b"".join(frames))
    meta = PackedSetMeta(
        seq_len=4,
        n_seqs=4,
        dtype="int32",
        tokenizer_family="hf_tokenizer",
        tokenizer_sha256="0" * 64,
        tokenizer_path="tokenizer.json",
        vocabulary_size=60,
        eod_id=1,
        pad_id=0,
        strategy="best_fit",
        documents=5,
        tokens=14,
        padding_tokens=2,
        created_at="2026-01-01T12:00:00+00:00",
        index_frames=[Frame(0, 0), Frame(3, len(frames[0]))],
    )
    (tmp_path / META_FILE).write_bytes(meta.to_bytes())
    return tmp_path


def test_rows_are_views_of_the_file(folder: Path) -> None:
    packed = open_packed(folder)
    by_numpy_alone = np.memmap(folder / INPUT_IDS_FILE, "<i4", "r", shape=(4, 4))

    assert by_numpy_alone.tolist() == ROWS
    assert len(packed) == 4
    assert [packed[row].tolist() for row in range(4)] == ROWS
    assert packed[-1].tolist() == ROWS[-1]
    assert packed[1].dtype == np.int32
    assert np.shares_memory(packed[1], packed.input_ids)
    with pytest.raises(ValueError, match="read-only"):
        packed[1][0] = 5
    with pytest.raises(IndexError):
        packed[4]


def test_segments_are_found_in_any_frame(folder: Path) -> None:
    packed = open_packed(folder)

    assert [packed.segments(row) for row in (3, 0, 2, 1, -1)] == [SEGMENTS[row] for row in (3, 0, 2, 1, 3)]
    for row in (4, -5):
        with pytest.raises(IndexError, match=f"^row must be from -4 to 3, got {row}$"):
            packed.segments(row)


def test_open_sets_are_compared_by_identity(folder: Path) -> None:
    first, second = open_packed(folder), open_packed(folder)

    assert first != second and len({first, second}) == 2


def test_boundaries_and_the_document_of_each_token(folder: Path) -> None:
    packed = open_packed(folder)

    assert packed.boundaries(1).tolist() == [[0, 2], [2, 2]]
    numbers = [packed.document_numbers(row).tolist() for row in range(4)]
    assert numbers == [[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, -1, -1]]


def save_boundaries(folder: Path) -> None:
    np.save(folder / BOUNDARIES_FILE, np.array([[0, 3], [3, 1], [0, 2], [2, 2], [0, 4], [0, 2]], np.int32))
    np.save(folder / BOUNDARY_OFFSETS_FILE, np.array([0, 2, 4, 5, 6]))


def test_boundaries_are_read_from_the_arrays_if_they_exist(folder: Path) -> None:
    save_boundaries(folder)
    (folder / INDEX_FILE).unlink()

    packed = open_packed(folder)

    assert packed.boundaries(1).tolist() == [[0, 2], [2, 2]]
    assert packed.boundaries(-1).tolist() == [[0, 2]]


def replace_with_one_row(folder: Path, doc_id: str) -> None:
    """Replace the files of a set with those of a set of one row and one document."""
    index = zstandard.compress(line([Segment(doc_id, "a", 0, 4)]) + b"\n")
    meta = json.loads((folder / META_FILE).read_bytes()) | {"n_seqs": 1, "index_frames": [{"row": 0, "offset": 0}]}
    ids = np.array([[51, 52, 53, 1]], "<i4").tobytes()
    for name, data in ((INPUT_IDS_FILE, ids), (INDEX_FILE, index), (META_FILE, json.dumps(meta).encode())):
        (folder / "new").write_bytes(data)
        os.replace(folder / "new", folder / name)


def test_open_set_does_not_change_if_it_is_replaced(folder: Path) -> None:
    save_boundaries(folder)
    packed = open_packed(folder)

    replace_with_one_row(folder, "new")

    assert [packed[row].tolist() for row in range(4)] == ROWS
    assert [packed.segments(row) for row in range(4)] == SEGMENTS
    assert packed.boundaries(3).tolist() == [[0, 2]]
    with pytest.raises(RetryableError, match="the folder was replaced since the set was opened; open the set again"):
        pickle.loads(pickle.dumps(packed))


def test_a_worker_gets_the_folder_of_a_set_and_not_its_tokens(folder: Path) -> None:
    meta = json.loads((folder / META_FILE).read_bytes()) | {"n_seqs": 250_000}
    (folder / META_FILE).write_text(json.dumps(meta))
    (folder / INPUT_IDS_FILE).write_bytes(np.tile(np.array(ROWS, "<i4"), (62_500, 1)).tobytes())
    packed = open_packed(folder)

    with multiprocessing.get_context("spawn").Pool(1) as worker:
        row = worker.apply(operator.getitem, (packed, 249_999))
        segments = worker.apply(PackedSet.segments, (packed, 1))

    assert len(pickle.dumps(packed)) < 1000
    assert row.tolist() == ROWS[3]
    assert segments == SEGMENTS[1]


def test_a_damaged_index_is_refused_when_it_is_read(folder: Path) -> None:
    index, meta = (folder / INDEX_FILE).read_bytes(), json.loads((folder / META_FILE).read_bytes())
    (folder / INDEX_FILE).write_bytes(index[:-3])
    packed = open_packed(folder)

    assert packed.segments(0) == SEGMENTS[0]
    with pytest.raises(InputError, match="the zstd stream is truncated"):
        packed.segments(3)
    (folder / INDEX_FILE).write_bytes(zstandard.compress(b"[{]\n" * 4))
    with pytest.raises(InputError, match="the line of row 1 is damaged: JSON is malformed"):
        open_packed(folder).segments(1)
    for frames in ([], [{"row": 1, "offset": 0}]):
        (folder / META_FILE).write_text(json.dumps(meta | {"index_frames": frames}))
        assert "the index has no line for row 0; restore the file" in refusal(lambda: open_packed(folder).segments(0))


@pytest.mark.parametrize("name", [META_FILE, INPUT_IDS_FILE, INDEX_FILE])
def test_missing_file_is_an_error_that_names_it(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: expected a folder, got a file; choose the folder of a packed"):
        open_packed(folder / name)
    (folder / name).unlink()

    with pytest.raises(InputError, match=f"{name}: file not found; (choose the folder of a packed|restore)"):
        open_packed(folder).segments(0)


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        (INPUT_IDS_FILE, bytes(60), "4 rows of 4 int32 take 64 bytes, got 60"),
        (BOUNDARIES_FILE, b"no array", "not an array ("),
        (BOUNDARIES_FILE, b"\x93NUMPY\x01\x00\x10\x00{('a',):1,'b':2}\n", "not an array ("),
        *(
            (META_FILE, content, "not the description of a packed set (")
            for content in (b"{}", b"no JSON", b'{"dtype": "\xe4b"}', b'{"seq_len": "4"}')
        ),
    ],
)
def test_invalid_file_is_refused_when_the_set_is_opened(folder: Path, name: str, content: bytes, what: str) -> None:
    (folder / name).write_bytes(content)

    line = refusal(lambda: open_packed(folder))

    assert line.startswith(f"{folder / name}: {what}") and line.endswith("; restore the file or rebuild the set")


def test_reading_loads_neither_torch_nor_a_tokenizer() -> None:
    code = "import pipeline_assets.corpus.formats.memmap, sys; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], capture_output=True, text=True, check=True
    )

    loaded = {name.split(".")[0] for name in result.stdout.split()}
    assert loaded & {"torch", "tiktoken", "gigatoken", "tokenizers", "pyarrow", "numba", "pydantic", "dagster"} == set()

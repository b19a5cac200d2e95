"""`.bin/.idx` pairs: equal to those of Megatron's library, and damage is refused."""

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.formats import megatron
from pipeline_assets.corpus.formats.megatron import encode_index, read_indexed_dataset

SYNTHETIC = ["one_seq_per_doc_int32", "multi_seq_int32", "edge_int32", "multi_seq_uint16", "merged_int32"]
IDS = st.integers(-(2**31), 2**31 - 1)


@pytest.fixture
def fixtures(real_data: Path) -> Path:
    return real_data / "megatron"


def encoded_index(lengths: np.ndarray) -> bytes:
    return b"".join(encode_index(lengths))


def write_pair(prefix: Path, documents: list[list[int]]) -> Path:
    lengths = np.array([len(document) for document in documents], np.int32)
    prefix.with_name(prefix.name + ".idx").write_bytes(encoded_index(lengths))
    ids = np.array([token for document in documents for token in document], np.int32)
    prefix.with_name(prefix.name + ".bin").write_bytes(ids.tobytes())
    return prefix


@pytest.mark.parametrize("name", SYNTHETIC)
def test_bin_and_idx_files_are_read_as_their_json_file_describes(fixtures: Path, name: str) -> None:
    description = json.loads((fixtures / f"{name}.json").read_text())

    dataset = read_indexed_dataset(fixtures / name)

    assert dataset.lengths.tolist() == description["sequence_lengths"]
    assert dataset.pointers.tolist() == description["sequence_pointers"]
    assert dataset.document_index.tolist() == description["document_indices"]
    assert dataset.tokens.dtype == description["dtype"]
    documents = [[token for sequence in document for token in sequence] for document in description["documents"]]
    assert [dataset.document(number).tolist() for number in range(len(documents))] == documents


@pytest.mark.parametrize(
    ("name", "dtype", "documents", "tokens", "shortest", "longest"),
    [
        ("ag_news_prompt_inputs_document", "int32", 100, 5_945, 28, 118),
        ("ag_news_prompt_targets_document", "int32", 100, 244, 2, 4),
        ("meg-gpt2-openwebtext_text_document", "uint16", 1_000, 1_361_845, 193, 21_809),
    ],
)
def test_pair_of_a_public_training_set_is_read_completely(
    fixtures: Path, name: str, dtype: str, documents: int, tokens: int, shortest: int, longest: int
) -> None:
    dataset = read_indexed_dataset(fixtures / "real" / name)

    assert dataset.tokens.dtype == dtype
    assert len(dataset.lengths) == len(dataset.document_index) - 1 == documents
    assert sum(len(dataset.document(number)) for number in range(documents)) == len(dataset.tokens) == tokens
    assert (dataset.lengths.min(), dataset.lengths.max()) == (shortest, longest)


@pytest.mark.parametrize(
    "name",
    ["one_seq_per_doc_int32", "real/ag_news_prompt_inputs_document", "real/ag_news_prompt_targets_document"],
)
def test_index_equals_that_of_megatron_byte_for_byte(fixtures: Path, name: str) -> None:
    theirs = (fixtures / f"{name}.idx").read_bytes()

    ours = encoded_index(read_indexed_dataset(fixtures / name).lengths)

    assert ours == theirs


def test_the_index_of_three_documents_is_102_known_bytes() -> None:
    assert encoded_index(np.array([2, 1, 3], np.int32)).hex() == (
        "4d4d49444944580000" "0100000000000000" "04" "0300000000000000" "0400000000000000"
        "02000000" "01000000" "03000000"
        "0000000000000000" "0800000000000000" "0c00000000000000"
        "0000000000000000" "0100000000000000" "0200000000000000" "0300000000000000"
    )  # fmt: skip


def test_an_empty_index_has_42_bytes_and_reads_back_empty(tmp_path: Path) -> None:
    prefix = write_pair(tmp_path / "tokens", [])

    dataset = read_indexed_dataset(prefix)

    assert (tmp_path / "tokens.idx").stat().st_size == 42
    assert dataset.lengths.tolist() == dataset.tokens.tolist() == []
    assert dataset.document_index.tolist() == [0]


def test_pointers_pass_the_range_of_32_bits() -> None:
    index = encoded_index(np.full(3, 2**31 - 1, np.int32))

    assert struct.unpack_from("<3q", index, 34 + 12) == (0, 8_589_934_588, 17_179_869_176)


def test_blocks_of_documents_make_one_index(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = np.array([2, 1, 3, 0, 5, 7, 1], np.int32)
    expected = encoded_index(lengths)

    for documents in (1, 2, 3, 7, 8):
        monkeypatch.setattr(megatron, "_BLOCK_DOCUMENTS", documents)
        assert encoded_index(lengths) == expected
    assert struct.unpack_from("<7q", expected, 34 + 28) == (0, 8, 12, 24, 24, 44, 72)


@given(documents=st.lists(st.lists(IDS, max_size=5), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pair_round_trips(tmp_path: Path, documents: list[list[int]]) -> None:
    prefix = write_pair(tmp_path / "tokens", documents)

    dataset = read_indexed_dataset(prefix)

    assert [dataset.document(number).tolist() for number in range(len(documents))] == documents


@pytest.fixture(scope="module")
def indexed_dataset() -> Callable[..., Any]:
    """Return megatron-core's own reader."""
    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from megatron.core.datasets.indexed_dataset import IndexedDataset
    except ImportError as error:
        pytest.skip(f"megatron-core can't be imported here ({error}); `pip install megatron-core==0.16.1 torch`")
    return IndexedDataset  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
def test_pair_of_the_installed_megatron_is_read_and_our_index_equals_it(
    indexed_dataset: Callable[..., Any], tmp_path: Path, dtype: type[np.number]
) -> None:
    """Documents have none to three sequences, some empty, or one sequence each."""
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    def write(prefix: Path, documents: list[list[list[int]]]) -> None:
        builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=dtype)
        for sequences in documents:
            for tokens in sequences:
                builder.add_item(torch.tensor(tokens, dtype=torch.int64))
            builder.end_document()
        builder.finalize(f"{prefix}.idx")

    several = [[[1, 2, 3], [4, 5]], [[6]], [], [[7, 8, 9, 10], [], [0, 65_535]]]
    write(tmp_path / "several", several)
    write(tmp_path / "single", [[[1, 2, 3]], [[4]], [[5, 6]]])

    dataset, single = read_indexed_dataset(tmp_path / "several"), read_indexed_dataset(tmp_path / "single")

    assert dataset.tokens.dtype == dtype
    assert dataset.lengths.tolist() == [3, 2, 1, 4, 0, 2]
    assert dataset.document_index.tolist() == [0, 2, 3, 3, 6]
    assert [dataset.document(number).tolist() for number in range(4)] == [
        [token for tokens in sequences for token in tokens] for sequences in several
    ]
    if dtype is np.int32:
        assert encoded_index(single.lengths) == (tmp_path / "single.idx").read_bytes()


def test_megatron_reads_our_pair(indexed_dataset: Callable[..., Any], tmp_path: Path) -> None:
    documents = [[13225, 2375, 199999], [199999], [64, 200001, 201087, 199999]]
    prefix = write_pair(tmp_path / "tokens", documents)

    theirs = indexed_dataset(str(prefix))

    assert [theirs[number].tolist() for number in range(len(theirs))] == documents
    assert theirs.document_indices.tolist() == [0, 1, 2, 3]
    assert theirs.sequence_lengths.tolist() == [3, 1, 4]


def test_megatron_opens_our_empty_pair_without_a_mapping(indexed_dataset: Callable[..., Any], tmp_path: Path) -> None:
    prefix = write_pair(tmp_path / "tokens", [])

    assert len(indexed_dataset(str(prefix), mmap=False)) == 0


GOOD = encoded_index(np.array([2, 1], np.int32))  # 34 header, 8 lengths, 16 pointers, 24 document index


def changed(at: int, layout: str, *values: int) -> bytes:
    """Return the valid index with other values at an offset."""
    packed = struct.pack(layout, *values)
    return GOOD[:at] + packed + GOOD[at + len(packed) :]


TOKENS = bytes(12)
NO_INDEX = "not a Megatron index; choose the prefix of a .bin/.idx pair"
BAD_HEADER = "unsupported or truncated index"
MISMATCH = "lengths and pointers do not match the tokens; rebuild the pair"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Write a valid pair; return its prefix."""
    (tmp_path / "tokens.idx").write_bytes(GOOD)
    (tmp_path / "tokens.bin").write_bytes(TOKENS)
    return tmp_path / "tokens"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (b"", NO_INDEX),
        (b"MMIDIDX", NO_INDEX),
        (b"PAR1" + GOOD[4:], NO_INDEX),
        (changed(9, "<Q", 2), f"{BAD_HEADER}: version 2, dtype code 4, 82 bytes;"),
        (changed(17, "B", 9), f"{BAD_HEADER}: version 1, dtype code 9, 82 bytes;"),
        (GOOD[:-1], f"{BAD_HEADER}: version 1, dtype code 4, 81 bytes; rebuild the pair"),
        (changed(18, "<Q", 2**60), f"{BAD_HEADER}: version 1, dtype code 4, 82"),  # sequences
        (changed(26, "<Q", 2**60), f"{BAD_HEADER}: version 1, dtype code 4, 82"),  # documents
        (changed(34, "<2i", 2, 2**31 - 1), MISMATCH),  # a length too long
        (changed(34, "<2i", 4, -1), MISMATCH),
        (changed(42, "<2q", 0, -4), MISMATCH),  # a pointer before the start
        (changed(42, "<2q", 0, 2**62), MISMATCH),
        (changed(42, "<2q", 0, 4), MISMATCH),  # sequences that overlap
        (changed(58, "<3q", 0, 1, 1), MISMATCH),  # a sequence in no document
        (changed(58, "<3q", 1, 1, 2), MISMATCH),  # a first document that starts late
        (changed(58, "<3q", 0, 3, 2), MISMATCH),  # a document past the sequences
        (changed(26, "<Q", 0)[:58], MISMATCH),  # no document index
    ],
)
def test_invalid_or_mismatched_index_is_refused(prefix: Path, index: bytes, message: str) -> None:
    prefix.with_suffix(".idx").write_bytes(index)

    assert refusal(lambda: read_indexed_dataset(prefix)).startswith(f"{prefix}.idx: {message}")


@pytest.mark.parametrize("tokens", [TOKENS[:8], TOKENS + bytes(4), TOKENS[:11], b""])
def test_tokens_that_do_not_fit_the_index_are_refused(prefix: Path, tokens: bytes) -> None:
    """Cases: a token short, a token over, cut inside a token, no token."""
    prefix.with_suffix(".bin").write_bytes(tokens)

    assert refusal(lambda: read_indexed_dataset(prefix)) == f"{prefix}.idx: {MISMATCH}"


@pytest.mark.parametrize("missing", ["tokens.idx", "tokens.bin"])
def test_a_missing_half_of_the_pair_is_named(prefix: Path, missing: str) -> None:
    prefix.with_name(missing).unlink()

    line = refusal(lambda: read_indexed_dataset(prefix))

    assert line == f"{prefix.parent}/{missing}: file not found; choose the prefix of a .bin/.idx pair"


@pytest.mark.skipif(sys.byteorder == "big", reason="tokens are mapped in the machine's order")
def test_tokens_are_mapped_not_read(prefix: Path) -> None:
    assert isinstance(read_indexed_dataset(prefix).tokens, np.memmap)

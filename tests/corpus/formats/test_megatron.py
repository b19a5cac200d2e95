"""`.bin/.idx` pairs: read as Megatron's own library wrote them, written byte for byte as it would, damage refused."""

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

MADE = ["one_seq_per_doc_int32", "multi_seq_int32", "edge_int32", "multi_seq_uint16", "merged_int32"]
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


@pytest.mark.parametrize("name", MADE)
def test_a_pair_that_megatron_wrote_reads_back_as_its_description_says(fixtures: Path, name: str) -> None:
    told = json.loads((fixtures / f"{name}.json").read_text())

    dataset = read_indexed_dataset(fixtures / name)

    assert dataset.lengths.tolist() == told["sequence_lengths"]
    assert dataset.pointers.tolist() == told["sequence_pointers"]
    assert dataset.document_index.tolist() == told["document_indices"]
    assert dataset.tokens.dtype == told["dtype"]
    documents = [[token for sequence in document for token in sequence] for document in told["documents"]]
    assert [dataset.document(number).tolist() for number in range(len(documents))] == documents


@pytest.mark.parametrize(
    ("name", "dtype", "documents", "tokens", "shortest", "longest"),
    [
        ("ag_news_prompt_inputs_document", "int32", 100, 5_945, 28, 118),
        ("ag_news_prompt_targets_document", "int32", 100, 244, 2, 4),
        ("meg-gpt2-openwebtext_text_document", "uint16", 1_000, 1_361_845, 193, 21_809),
    ],
)
def test_a_pair_of_a_public_training_set_reads_whole(
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
def test_an_index_is_byte_for_byte_what_megatron_writes_for_these_lengths(fixtures: Path, name: str) -> None:
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
    asked = encoded_index(lengths)

    for documents in (1, 2, 3, 7, 8):
        monkeypatch.setattr(megatron, "_BLOCK_DOCUMENTS", documents)
        assert encoded_index(lengths) == asked
    assert struct.unpack_from("<7q", asked, 34 + 28) == (0, 8, 12, 24, 24, 44, 72)


@given(documents=st.lists(st.lists(IDS, max_size=5), max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_what_is_read(tmp_path: Path, documents: list[list[int]]) -> None:
    prefix = write_pair(tmp_path / "tokens", documents)

    dataset = read_indexed_dataset(prefix)

    assert [dataset.document(number).tolist() for number in range(len(documents))] == documents


@pytest.fixture(scope="module")
def indexed_dataset() -> Callable[..., Any]:
    """megatron-core's own reader."""
    try:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from megatron.core.datasets.indexed_dataset import IndexedDataset
    except ImportError as error:
        pytest.skip(f"megatron-core can't be imported here ({error}); `pip install megatron-core==0.16.1 torch`")
    return IndexedDataset  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [np.int32, np.uint16])
def test_a_pair_that_megatron_writes_here_reads_back_and_ours_has_its_index(
    indexed_dataset: Callable[..., Any], tmp_path: Path, dtype: type[np.number]
) -> None:
    """Documents of two, one, zero and three sequences, one of them empty; then one sequence per document."""
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
TOKENS = bytes(12)
NO_INDEX = "not a Megatron index; choose the prefix of a .bin/.idx pair"
BAD_HEADER = "unsupported or truncated index"
UNFIT = "lengths and pointers do not match the tokens; rebuild the pair"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Of a sound pair."""
    (tmp_path / "tokens.idx").write_bytes(GOOD)
    (tmp_path / "tokens.bin").write_bytes(TOKENS)
    return tmp_path / "tokens"


@pytest.mark.parametrize(
    ("index", "complaint"),
    [
        pytest.param(b"", NO_INDEX, id="empty"),
        pytest.param(b"MMIDIDX", NO_INDEX, id="cut in its name"),
        pytest.param(b"PAR1" + GOOD[4:], NO_INDEX, id="another format"),
        pytest.param(
            GOOD[:9] + struct.pack("<Q", 2) + GOOD[17:],
            f"{BAD_HEADER}: version 2, dtype code 4, 82 bytes;",
            id="version",
        ),
        pytest.param(GOOD[:17] + b"\x09" + GOOD[18:], f"{BAD_HEADER}: version 1, dtype code 9, 82 bytes;", id="dtype"),
        pytest.param(GOOD[:-1], f"{BAD_HEADER}: version 1, dtype code 4, 81 bytes; rebuild the pair", id="cut"),
        pytest.param(
            GOOD[:18] + struct.pack("<Q", 2**60) + GOOD[26:],
            f"{BAD_HEADER}: version 1, dtype code 4, 82",
            id="sequences",
        ),
        pytest.param(
            GOOD[:26] + struct.pack("<Q", 2**60) + GOOD[34:],
            f"{BAD_HEADER}: version 1, dtype code 4, 82",
            id="documents",
        ),
        pytest.param(GOOD[:34] + struct.pack("<2i", 2, 2**31 - 1) + GOOD[42:], UNFIT, id="a length too long"),
        pytest.param(GOOD[:34] + struct.pack("<2i", 4, -1) + GOOD[42:], UNFIT, id="a negative length"),
        pytest.param(GOOD[:42] + struct.pack("<2q", 0, -4) + GOOD[58:], UNFIT, id="a pointer before the start"),
        pytest.param(GOOD[:42] + struct.pack("<2q", 0, 2**62) + GOOD[58:], UNFIT, id="a pointer behind the end"),
        pytest.param(GOOD[:42] + struct.pack("<2q", 0, 4) + GOOD[58:], UNFIT, id="sequences that overlap"),
        pytest.param(GOOD[:58] + struct.pack("<3q", 0, 1, 1), UNFIT, id="a sequence in no document"),
        pytest.param(GOOD[:58] + struct.pack("<3q", 1, 1, 2), UNFIT, id="a first document that starts late"),
        pytest.param(GOOD[:58] + struct.pack("<3q", 0, 3, 2), UNFIT, id="a document past the sequences"),
        pytest.param(GOOD[:26] + struct.pack("<Q", 0) + GOOD[34:58], UNFIT, id="no document index"),
    ],
)
def test_an_index_that_is_none_or_does_not_fit_is_refused(prefix: Path, index: bytes, complaint: str) -> None:
    prefix.with_suffix(".idx").write_bytes(index)

    assert refusal(lambda: read_indexed_dataset(prefix)).startswith(f"{prefix}.idx: {complaint}")


@pytest.mark.parametrize("tokens", [TOKENS[:8], TOKENS + bytes(4), TOKENS[:11], b""])
def test_tokens_that_the_index_does_not_fit_are_refused(prefix: Path, tokens: bytes) -> None:
    """A token short, a token over, cut inside a token, none."""
    prefix.with_suffix(".bin").write_bytes(tokens)

    assert refusal(lambda: read_indexed_dataset(prefix)) == f"{prefix}.idx: {UNFIT}"


@pytest.mark.parametrize("missing", ["tokens.idx", "tokens.bin"])
def test_a_missing_half_of_the_pair_is_named(prefix: Path, missing: str) -> None:
    prefix.with_name(missing).unlink()

    line = refusal(lambda: read_indexed_dataset(prefix))

    assert line == f"{prefix.parent}/{missing}: file not found; choose the prefix of a .bin/.idx pair"


@pytest.mark.skipif(sys.byteorder == "big", reason="tokens are mapped in the machine's order")
def test_tokens_are_mapped_not_read(prefix: Path) -> None:
    assert isinstance(read_indexed_dataset(prefix).tokens, np.memmap)

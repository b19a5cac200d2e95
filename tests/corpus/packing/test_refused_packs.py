"""Refused packs: the error messages, and their advice when followed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pack_build import STRATEGIES, TWO_SOURCES, Doc, pack_documents, sized_documents
from refusals import refusal

from pipeline_assets.corpus.formats.memmap import open_packed
from pipeline_assets.corpus.packing.empty_sources import raise_if_unencodable
from pipeline_assets.spine.errors import RetryableError, UsageError
from pipeline_assets.spine.staging import Receipt

SMALL_B = [*sized_documents("a", [3, 5, 20, 4, 2, 9] * 4), *sized_documents("b", [4, 4, 4, 7, 34] * 2)]  # 172 and 106


TOO_LONG = "lower `pack.seq_len`: the available tokens do not fill a row of"


@pytest.mark.parametrize(
    ("changes", "needed", "fix"),
    [
        (
            {"num_seqs": 30},
            "30 rows need 120 tokens of b, which has 106: 1.133 epochs, but its max_epochs is 1",
            "request at most {rows} rows, or lower its weight to at most 0.441666 of the sum, or raise its max_epochs",
        ),
        (
            {"num_seqs": 40},  # all sources have tokens for 34 rows: no weights suffice
            "40 rows need 160 tokens of b, which has 106: 1.51 epochs, but its max_epochs is 1",
            "request at most {rows} rows, or raise its max_epochs",
        ),
        (
            {"num_seqs": 1, "seq_len": 1000},
            "1 row needs 500 tokens of b, which has 106: 4.717 epochs, but its max_epochs is 1",
            f"{TOO_LONG} 1,000, or raise its max_epochs",
        ),
        (
            {"num_seqs": 1, "seq_len": 250},
            "1 row needs 125 tokens of b, which has 106: 1.18 epochs, but its max_epochs is 1",
            f"{TOO_LONG} 250, or lower its weight to at most 0.424 of the sum, or raise its max_epochs",
        ),
        (
            {"num_seqs": 10, "seq_len": 250},
            "10 rows need 1,250 tokens of b, which has 106: 11.793 epochs, but its max_epochs is 1",
            f"{TOO_LONG} 250, or lower its weight and request fewer rows, or raise its max_epochs",
        ),
        (
            {"caps": {"a": "0.0001"}},
            "2 rows need 8 tokens of a, which has 172: 0.047 epochs, but its max_epochs is 0.0001",
            f"{TOO_LONG} 8, or lower its weight to at most 0.001075 of the sum, or raise its max_epochs",
        ),
        (
            {"caps": {"a": "0.001"}, "num_seqs": None},  # not even one token
            "1 row needs 4 tokens of a, which has 172: 0.024 epochs, but its max_epochs is 0.001",
            f"{TOO_LONG} 8, or lower its weight to at most 0.0215 of the sum, or raise its max_epochs",
        ),
    ],
)
@pytest.mark.parametrize(("strategy", "rows"), [("sequential", 26), ("best_fit", 27)])
def test_more_tokens_than_a_source_has_are_refused_in_one_line(
    folder: Path, changes: dict[str, Any], needed: str, fix: str, strategy: str, rows: int
) -> None:
    assert refusal(lambda: pack_documents(folder, SMALL_B, strategy=strategy, **changes), UsageError) == (
        f"pack.num_seqs: {needed}; {fix.format(rows=rows)}"
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"a": "0.5", "bb": "0.5"}, "source bb not found; did you mean b?"),
        ({"a": "1"}, "the source b has no weight; set its weight, or pack a corpus without it"),
    ],
)
def test_weights_of_other_sources_are_refused(folder: Path, weights: dict[str, str], message: str) -> None:
    assert refusal(lambda: pack_documents(folder, SMALL_B, weights=weights), UsageError) == f"pack.weights: {message}"


def test_a_single_source_gets_no_weight_advice_and_its_rejects_are_counted(folder: Path) -> None:
    documents = [*sized_documents("a", [5] * 9), Doc("a", "bad", "<end>"), Doc("a", "too", "w1 <end>")]

    changes = {"weights": {"a": "1"}, "num_seqs": 6, "max_epochs": "1.0"}

    assert refusal(lambda: pack_documents(folder, documents, 4, **changes), UsageError) == (
        "pack.num_seqs: 6 rows need 48 tokens of a, which has 45 (2 of its 11 texts cannot be encoded): "
        "1.067 epochs, but its max_epochs is 1.0; request at most 5 rows, or raise its max_epochs"
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_advised_number_of_rows_works_and_one_more_does_not(folder: Path, strategy: str) -> None:
    with pytest.raises(UsageError) as error:
        pack_documents(folder, TWO_SOURCES, strategy=strategy, num_seqs=1000)
    rows = int(error.value.fix.split()[3])

    result = pack_documents(folder, TWO_SOURCES, strategy=strategy, num_seqs=rows)

    assert len(open_packed(result.folder)) == rows
    with pytest.raises(UsageError):
        pack_documents(folder / "more", TWO_SOURCES, strategy=strategy, num_seqs=rows + 1)


def test_without_weights_the_advised_factor_for_all_caps_suffices(folder: Path) -> None:
    assert refusal(lambda: pack_documents(folder, SMALL_B, weights=None, num_seqs=40), UsageError) == (
        "pack.num_seqs: 40 rows need 320 tokens, but the caps of all sources allow 278; "
        "request at most 34 rows, or multiply every cap in `max_epochs` by 1.152"
    )
    result = pack_documents(folder / "more", SMALL_B, weights=None, num_seqs=40, max_epochs="1.152")
    assert len(open_packed(result.folder)) == 40


def test_a_source_without_a_document_is_named(folder: Path) -> None:
    documents = [*sized_documents("a", [5] * 9), Doc("b", "bad", "<end>")]

    with pytest.raises(UsageError, match="no document of b can be encoded: 1 special_tokens; remove the source"):
        pack_documents(folder, documents)


def test_a_shortage_below_a_token_counts_as_one_token(folder: Path) -> None:
    documents, weights = [*sized_documents("a", [400]), *sized_documents("b", [124])], {"a": "0.8445", "b": "0.1555"}

    with pytest.raises(
        UsageError, match=r"need 125 tokens of b, which has 124: 1.009 epochs, but its max_epochs is 1;"
    ):
        pack_documents(folder, documents, weights=weights, num_seqs=100, caps={"a": "5"})


def test_the_advised_weight_of_a_small_source_is_not_rounded_to_zero(folder: Path) -> None:
    documents, weights = [*sized_documents("a", [400]), *sized_documents("b", [4])], {"a": "0.1", "b": "0.9"}

    with pytest.raises(
        UsageError, match=r"1,800,000 epochs, .* or lower its weight to at most 0.0000005 of the sum"
    ) as error:
        pack_documents(folder, documents, weights=weights, num_seqs=4 * 10**6, seq_len=2, caps={"a": "99999"})

    assert error.value.where == "pack.num_seqs"


def test_rows_larger_than_the_disk_are_refused_before_encoding(folder: Path) -> None:
    message = refusal(lambda: pack_documents(folder, TWO_SOURCES, num_seqs=(1 << 31) - 1, seq_len=1 << 20), UsageError)

    what = "2,147,483,647 rows of 1,048,576 tokens need 9,007,199,250,546,688 bytes, but only "
    assert message.startswith(f"{folder / 'packed'}: {what}")
    assert message.endswith("; lower `pack.num_seqs`, or choose a folder on a larger disk")
    assert list(folder.glob("packed*/.receipts/*")) == []


def test_reasons_without_encodable_documents_are_counted_in_order() -> None:
    halves = [
        Receipt([], {"rows": 3, "rejected/special_tokens": 2, "rejected/killed_worker": 1}),
        Receipt([], {"rows": 1, "rejected/empty": 1}),
    ]

    assert refusal(lambda: raise_if_unencodable(["b", "b"], halves), UsageError) == (
        "pack.weights: no document of b can be encoded: 1 empty, 1 killed_worker, 2 special_tokens; "
        "remove the source and its weight, or choose another tokenizer"
    )


@pytest.mark.parametrize(
    ("changes", "free", "what"),
    [
        ({"num_seqs": 21}, 640, "21 rows of 8 tokens need 672 bytes, but only 640 are free"),
        ({"num_seqs": None, "weights": None}, 64, "34 rows of 8 tokens need 1,088 bytes, but only 64 are free"),
    ],
)
def test_rows_larger_than_the_free_space_are_a_retryable_error(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], free: int, what: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9 - free, free))

    assert refusal(lambda: pack_documents(folder, SMALL_B, **changes), RetryableError) == (
        f"{folder / 'packed'}: {what}; free disk space, lower `pack.num_seqs`, or choose a folder on a larger disk"
    )

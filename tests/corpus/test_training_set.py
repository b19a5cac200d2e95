"""The split into train and valid by a hash of the document id, and its budgets."""

import numpy as np
import pytest

from pipeline_assets.corpus.training_set import count_fitting, split_budget, split_rule


@pytest.mark.parametrize(
    ("doc_id", "first_64_bits"),
    [
        ("a", 0xCA978112CA1BBDCA),
        ("abc", 0xBA7816BF8F01CFEA),
        ("", 0xE3B0C44298FC1C14),
        ("<urn:uuid:日本>", 0xAC4B26747CCE4DC1),
    ],
)
def test_an_id_is_valid_above_the_fraction_equal_to_its_hash(doc_id: str, first_64_bits: int) -> None:
    # 64 bits over 2**64 have a finite decimal: at this fraction the threshold is the hash itself.
    at_hash = exact_decimal(first_64_bits)
    above_hash = exact_decimal(first_64_bits + 1)

    assert split_rule(at_hash)(doc_id) == "train"
    assert split_rule(above_hash)(doc_id) == "valid"


def exact_decimal(bits: int) -> str:
    """Format bits / 2**64 as a decimal string: 2**-64 is 5**64 / 10**64."""
    return f"{bits // 2**64}.{bits % 2**64 * 5**64:064d}"


@pytest.mark.parametrize(
    ("valid_fraction", "expected"),
    [
        ("0", "train train train train train train"),
        ("0.1", "train valid valid train train train"),
        ("0.75", "train valid valid train valid train"),
        ("1", "valid valid valid valid valid valid"),
    ],
)
def test_known_ids_are_in_their_expected_splits(valid_fraction: str, expected: str) -> None:
    ids = ["page-0", "page-1", "page-2", "page-3", "page-4", "page-11"]

    assert " ".join(map(split_rule(valid_fraction), ids)) == expected


@pytest.mark.parametrize(
    ("token_budget", "valid_fraction", "train", "valid"),
    [
        (200_000_000, "0.1", 180_000_000, 20_000_000),
        (10, "0.29", 8, 2),
        (1, "0.9", 1, 0),
        (1, "0", 1, 0),
        (1, "1", 0, 1),
        (10**18 + 3, "0.1", 900_000_000_000_000_003, 100_000_000_000_000_000),
    ],
)
def test_the_valid_budget_is_rounded_down_and_train_has_the_remainder(
    token_budget: int, valid_fraction: str, train: int, valid: int
) -> None:
    assert split_budget(token_budget, valid_fraction, "train") == train
    assert split_budget(token_budget, valid_fraction, "valid") == valid


@pytest.mark.parametrize(
    ("lengths", "budget", "documents"),
    [
        ([], 0, 0),
        ([], 10, 0),
        ([3, 4, 3], 10, 3),  # exactly full
        ([3, 4, 4], 10, 2),  # one token over
        ([3, 8, 1], 10, 1),  # the third would fit, but comes after one that doesn't
        ([11, 1], 10, 0),
        ([1], 0, 0),
        ([0, 0, 1], 0, 2),
        ([3, 4, 3], 10**15, 3),
        ([2**31 - 1] * 3, 2 * (2**31 - 1), 2),  # a sum beyond 32 bits
    ],
)
def test_the_first_document_over_budget_ends_the_split(lengths: list[int], budget: int, documents: int) -> None:
    assert count_fitting(np.array(lengths, np.int32), budget) == documents

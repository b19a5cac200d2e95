"""Best-fit packing places pieces where a scan of every row would place them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_packing import Draw, best_fit_rows

from pipeline_assets.corpus.packing.strategies import (
    assign_rows,
    count_best_fit_rows,
    count_pieces,
    find_whole_row_draws,
    order_by_remainder,
)
from pipeline_assets.corpus.packing.strategies import best_fit_rows as packed_rows
from pipeline_assets.spine.errors import UsageError

LENGTHS = st.lists(st.integers(1, 40), max_size=60)


@given(LENGTHS, st.integers(2, 33))
def test_each_piece_is_in_the_row_that_a_full_scan_finds(lengths: list[int], seq_len: int) -> None:
    whole, shared = best_fit_rows([(Draw("a", 0, number), length) for number, length in enumerate(lengths)], seq_len)

    documents = np.array(lengths, np.int32)
    rows, opened = assign_rows(order_by_remainder(documents, seq_len), documents, seq_len, len(shared))

    assert opened == len(shared)
    assert {piece.draw.document: row for row, pieces in enumerate(shared) for piece in pieces} == {
        number: rows[number] for number, length in enumerate(lengths) if length % seq_len
    }
    assert count_best_fit_rows(count_pieces(documents, seq_len), seq_len) == len(whole) + len(shared)
    assert find_whole_row_draws(documents, seq_len).tolist() == [row[0].draw.document for row in whole]


def test_spare_rows_take_the_longest_documents_that_share_a_row() -> None:
    [segments] = packed_rows(np.array([3, 5, 4, 1, 2], np.int32), 8, num_seqs=4, seed=1)

    rows = {frozenset(segments.ranks[segments.rows == row].tolist()) for row in range(4)}
    assert rows == {frozenset({1}), frozenset({2}), frozenset({0}), frozenset({3, 4})}


def test_spare_rows_without_documents_are_an_error() -> None:
    with pytest.raises(
        UsageError, match="the drawn documents fill 2 rows and cannot be spread over 3; request 2 rows, or use"
    ):
        list(packed_rows(np.array([8, 8], np.int32), 8, num_seqs=3, seed=1))

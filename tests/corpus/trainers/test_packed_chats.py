"""Packed rows for fine-tuning: whole conversations, their loss and their bounds."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_assets.corpus.scoring.subset_tokens import ROWS_SCHEMA
from pipeline_assets.corpus.trainers.packed_chats import pack_subset
from pipeline_assets.spine.staging import Receipt, StagingView

PAD = 9999


def pack_conversations(folder: Path, lengths: list[int], seq_len: int) -> tuple[Receipt, list[dict[str, list[int]]]]:
    """Pack conversations with ids 0, 1, …; every third token is in the loss."""
    folder.mkdir()
    tokens = np.arange(sum(lengths), dtype=np.int32)
    np.save(folder / "tokens.npy", tokens)
    np.save(folder / "loss_mask.npy", tokens % 3 == 0)
    firsts = np.cumsum([0, *lengths]).tolist()
    rows = [
        {"id": str(number), "split": "d/s", "first_token": firsts[number], "tokens": length, "loss_rule": "r"}
        for number, length in enumerate(lengths)
    ]
    pq.write_table(pa.Table.from_pylist(rows, ROWS_SCHEMA), folder / "rows.parquet")
    receipt = pack_subset(folder, StagingView(folder), "out.parquet", seq_len, PAD)
    return receipt, pq.ParquetFile(folder / "out.parquet").read().to_pylist() if receipt.files else []


def packed_row(input_ids: list[int], labels: list[int], seq_lengths: list[int], *ids: int) -> dict[str, object]:
    names = [f"d/s/{number}" for number in ids]
    return {"input_ids": input_ids, "labels": labels, "seq_lengths": seq_lengths, "ids": names}


def test_conversations_share_rows_and_keep_their_bounds(tmp_path: Path) -> None:
    receipt, rows = pack_conversations(tmp_path / "a", [3, 2, 6, 2], 6)

    assert receipt.counts == {"rows": 4, "documents": 4, "tokens": 13}
    assert rows == [
        packed_row([11, 12, PAD, PAD, PAD, PAD], [-100, 12, -100, -100, -100, -100], [2, 4], 3),
        packed_row([0, 1, 2, 3, 4, PAD], [0, -100, -100, 3, -100, -100], [3, 2, 1], 0, 1),
        packed_row([5, 6, 7, 8, 9, 10], [-100, 6, -100, -100, 9, -100], [6], 2),
    ]


def test_a_conversation_longer_than_a_row_is_dropped(tmp_path: Path) -> None:
    receipt, rows = pack_conversations(tmp_path / "a", [5, 3], 4)

    assert receipt.counts == {"rows": 2, "documents": 1, "tokens": 3, "dropped/longer_than_a_row": 1}
    assert rows == [packed_row([5, 6, 7, PAD], [-100, 6, -100, -100], [3, 1], 1)]


def test_nothing_is_written_if_all_are_too_long(tmp_path: Path) -> None:
    receipt, _ = pack_conversations(tmp_path / "a", [5, 6], 4)

    assert (receipt.files, receipt.counts["dropped/longer_than_a_row"]) == ([], 2)


@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=40), seq_len=st.integers(2, 10))
@settings(max_examples=60, deadline=None)
def test_each_conversation_that_fits_is_in_one_row(tmp_path_factory: object, lengths: list[int], seq_len: int) -> None:
    folder = tmp_path_factory.mktemp("packed") / "a"  # type: ignore[attr-defined]
    _, rows = pack_conversations(folder, lengths, seq_len)
    firsts = np.cumsum([0, *lengths])

    numbers = []
    for row in rows:
        assert len(row["input_ids"]) == len(row["labels"]) == sum(row["seq_lengths"]) == seq_len
        position = 0
        for name, length in zip(row["ids"], row["seq_lengths"], strict=False):
            number = int(str(name).rpartition("/")[2])
            ids = list(range(firsts[number], firsts[number] + lengths[number]))
            assert row["input_ids"][position : position + length] == ids
            assert row["labels"][position : position + length] == [token if token % 3 == 0 else -100 for token in ids]
            numbers.append(number)
            position += length
        assert row["input_ids"][position:] == [PAD] * (seq_len - position)
        assert set(row["labels"][position:]) <= {-100}
    assert sorted(numbers) == [number for number, length in enumerate(lengths) if length <= seq_len]

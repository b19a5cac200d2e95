"""What a training loop does with a packed set: rows over ranks and epochs, masks, labels."""

from pathlib import Path

import pytest
from pack_build import documents_of, pack_documents

from pipeline_assets.corpus.formats.memmap import PackedSet, open_packed

torch = pytest.importorskip("torch", reason="torch is not installed")
batching = pytest.importorskip("pipeline_assets.corpus.batching")


@pytest.fixture
def packed(folder: Path) -> PackedSet:
    """21 rows, some padded."""
    documents = [*documents_of("a", [5, 20, 6] * 8), *documents_of("b", [5, 7, 2, 30] * 5)]
    return open_packed(pack_documents(folder, documents, num_seqs=21, strategy="best_fit", max_epochs="2").folder)


@pytest.mark.parametrize(("ranks", "batch"), [(1, 1), (1, 4), (2, 3), (5, 2), (30, 1)])
def test_over_all_ranks_every_row_comes_once(packed: PackedSet, ranks: int, batch: int) -> None:
    found = [
        row.tolist()
        for rank in range(ranks)
        for tokens, _, _ in batching.loader(packed.folder, batch, seed=7, rank=rank, ranks=ranks)
        for row in tokens
    ]

    assert sorted(found) == sorted(packed.input_ids.tolist())


def test_a_loader_that_starts_at_a_step_gives_what_comes_from_there_on(packed: PackedSet) -> None:
    for rank in range(2):
        whole = [tokens.tolist() for tokens, _, _ in batching.loader(packed.folder, 3, 7, rank=rank, ranks=2)]
        resumed = [tokens.tolist() for tokens, _, _ in batching.loader(packed.folder, 3, 7, rank=rank, ranks=2, step=2)]
        assert resumed == whole[2:]


def test_epochs_have_orders_of_their_own(packed: PackedSet) -> None:
    orders = [
        [tokens.tolist() for tokens, _, _ in batching.loader(packed.folder, 21, 7, epoch=epoch)] for epoch in (0, 1)
    ]

    assert orders[0] != orders[1]


def test_masks_and_labels_stay_within_a_document(packed: PackedSet) -> None:
    [(tokens, documents, _)] = batching.loader(packed.folder, 21, 7)

    mask, labels = batching.attention_mask(documents), batching.labels(tokens, documents)

    assert (documents == -1).any()
    for row in range(21):
        for at in range(8):
            may = [other for other in range(at + 1) if documents[row, other] == documents[row, at]]
            assert mask[row, at].nonzero().flatten().tolist() == may
            has_next = at < 7 and documents[row, at] == documents[row, at + 1] >= 0
            assert labels[row, at] == (tokens[row, at + 1] if has_next else -100)


def test_torch_views_the_file_as_it_lies(packed: PackedSet) -> None:
    size = packed.input_ids.size

    found = torch.from_file(str(packed.folder / "input_ids.mmap"), size=size, dtype=torch.int32)

    assert found.reshape(21, 8).tolist() == packed.input_ids.tolist()


def test_a_batch_says_which_rows_it_holds(packed: PackedSet) -> None:
    for tokens, documents, rows in batching.loader(packed.folder, 4, seed=3):
        for row, own, numbers in zip(rows.tolist(), tokens, documents, strict=True):
            assert own.tolist() == packed[row].tolist()
            assert numbers.tolist() == packed.document_numbers(row).tolist()


@pytest.mark.parametrize(
    "wrong", [{"rank": 1}, {"rank": -1}, {"rank": 5, "ranks": 2}, {"ranks": 0}, {"step": -1}, {"batch": 0}]
)
def test_a_rank_step_or_batch_that_would_lose_rows_is_refused(wrong: dict[str, int], packed: PackedSet) -> None:
    with pytest.raises(ValueError, match=r"rank is|batch is"):
        batching.loader(packed.folder, **{"batch": 4, "seed": 1} | wrong)

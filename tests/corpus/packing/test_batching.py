"""Batches of a packed set for training: ranks, epochs, masks and labels."""

import pickle
import shutil
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from pack_build import pack_documents, sized_documents
from real_samples import some

from pipeline_assets.corpus.formats.memmap import (
    BOUNDARIES_FILE,
    BOUNDARY_OFFSETS_FILE,
    INDEX_FILE,
    PackedSet,
    open_packed,
)
from pipeline_assets.corpus.shards.mixture_order import rank_positions
from pipeline_assets.spine.errors import InputError, RetryableError, UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")
batching = pytest.importorskip("pipeline_assets.corpus.batching")
rank_loader = pytest.importorskip("pipeline_assets.corpus.rank_loader")


@pytest.fixture
def packed(folder: Path) -> PackedSet:
    """21 rows, some padded."""
    documents = [*sized_documents("a", [5, 20, 6] * 8), *sized_documents("b", [5, 7, 2, 30] * 5)]
    return open_packed(pack_documents(folder, documents, num_seqs=21, strategy="best_fit", max_epochs="2").folder)


def deal(packed: PackedSet, ranks: int, batch: int, **settings: int) -> list[list[list[int]]]:
    """Return the row numbers of each rank and step."""
    return [
        [rows.tolist() for _, _, rows in batching.loader(packed.folder, batch, 7, rank=rank, ranks=ranks, **settings)]
        for rank in range(ranks)
    ]


def flatten(by_rank: list[list[list[int]]]) -> list[int]:
    return [row for steps in by_rank for rows in steps for row in rows]


def copy_without(folder: Path, *names: str) -> Path:
    """Copy a set without some files and without its manifest, which would miss them."""
    names = ("manifest.json", *names)
    return shutil.copytree(folder, folder.with_name("copy"), ignore=shutil.ignore_patterns(*names))


@pytest.mark.parametrize("workers", [0, 2])
def test_stored_boundaries_change_no_batch(packed: PackedSet, workers: int) -> None:
    plain = copy_without(packed.folder, BOUNDARIES_FILE, BOUNDARY_OFFSETS_FILE)

    stored, decoded = (
        [[part.tolist() for part in batch] for batch in batching.loader(path, 4, 7, workers=workers)]
        for path in (packed.folder, plain)
    )

    assert stored == decoded
    for tokens, documents, rows in some(stored):
        assert tokens == [packed[row].tolist() for row in rows]
        assert documents == [packed.document_numbers(row).tolist() for row in rows]


def test_rows_accept_negative_indices(packed: PackedSet) -> None:
    rows = batching.TokenRows(packed.folder)

    assert rows[20][0].tolist() == rows[-1][0].tolist() == packed[20].tolist()
    assert int(rows[20][2]) == int(rows[-1][2]) == 20
    for row in (21, -22):
        with pytest.raises(IndexError, match=f"^row must be from -21 to 20, got {row}$"):
            rows[row]
    for wrong in (None, "3", slice(2), 1.5):
        for read in (rows, packed):
            with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
                read[wrong]


def test_a_pickled_dataset_reads_the_same_rows(packed: PackedSet) -> None:
    content = pickle.dumps(batching.TokenRows(packed.folder))

    assert len(content) < 2000
    assert [part.tolist() for part in pickle.loads(content)[3]] == [
        packed[3].tolist(),
        packed.document_numbers(3).tolist(),
        3,
    ]


def test_a_torch_data_loader_stacks_the_items(packed: PackedSet) -> None:
    dataset = batching.TokenRows(packed.folder)

    batches = [*torch.utils.data.DataLoader(dataset, batch_size=8)]

    assert [rows.tolist() for _, _, rows in batches] == [[*range(8)], [*range(8, 16)], [*range(16, 21)]]
    assert batches[0][0].tolist() == [packed[row].tolist() for row in range(8)]
    assert batches[0][1].tolist() == [packed.document_numbers(row).tolist() for row in range(8)]


DOES_NOT_FIT = r"segments of row \d+ do not fit into 8 tokens"


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        *(
            (BOUNDARIES_FILE, lambda values, length=length: np.where([False, True], length, values), DOES_NOT_FIT)
            for length in (-1, 9, 2**31 - 1)
        ),
        (BOUNDARY_OFFSETS_FILE, lambda values: values[::-1], DOES_NOT_FIT),
        (BOUNDARY_OFFSETS_FILE, lambda values: np.arange(5), "4 rows instead of 21"),
    ],
)
def test_damaged_boundaries_are_refused(
    packed: PackedSet, name: str, damage: Callable[[np.ndarray], np.ndarray], message: str, workers: int
) -> None:
    folder = copy_without(packed.folder, name)
    np.save(folder / name, damage(np.load(packed.folder / name)))

    with pytest.raises(InputError, match=f"boundaries are damaged: {message}"):
        list(batching.loader(folder, 4, 7, workers=workers))


def test_a_spawned_worker_reports_that_the_set_was_replaced(
    packed: PackedSet, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = batching.loader(packed.folder, 4, 7, workers=1)
    monkeypatch.setattr(rank_loader, "DataLoader", partial(rank_loader.DataLoader, multiprocessing_context="spawn"))
    assert len([*loader]) == 6

    other = pack_documents(folder / "other", [*sized_documents("a", [5]), *sized_documents("b", [7])], num_seqs=1)
    shutil.rmtree(packed.folder)
    other.folder.rename(packed.folder)

    with pytest.raises(RetryableError, match="the folder was replaced since the set was opened; open the set again"):
        list(loader)


def test_a_set_without_boundaries_and_index_is_refused(packed: PackedSet) -> None:
    with pytest.raises(InputError, match="file not found"):
        batching.loader(copy_without(packed.folder, BOUNDARIES_FILE, BOUNDARY_OFFSETS_FILE, INDEX_FILE), 4, 7)


def test_the_index_is_decompressed_once_before_any_batch(packed: PackedSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a shuffled order, each row would otherwise decompress a frame of the index."""
    loader = batching.loader(copy_without(packed.folder, BOUNDARIES_FILE, BOUNDARY_OFFSETS_FILE), 4, 7)
    monkeypatch.setattr("pipeline_assets.corpus.formats.memmap.decompress", None)

    assert sorted(row for _, _, rows in loader for row in rows.tolist()) == list(range(21))


@pytest.mark.parametrize("batch", [1, 4, 21, 22])
def test_one_rank_reads_every_row_once(packed: PackedSet, batch: int) -> None:
    assert sorted(flatten(deal(packed, 1, batch))) == list(range(21))


@pytest.mark.parametrize(("ranks", "step"), [(1, 0), (2, 1)])
def test_workers_change_no_batch(packed: PackedSet, ranks: int, step: int) -> None:
    assert deal(packed, ranks, 3, step=step, workers=2) == deal(packed, ranks, 3, step=step)


def test_skipped_rows_are_logged_once(packed: PackedSet, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "corpusmill"):
        rows_read = flatten(deal(packed, 4, 2))

    [skipped] = set(range(21)) - set(rows_read)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[0].startswith("epoch 0: 4 ranks do not read the last 1 of 21 rows; padding=True")
    assert caplog.messages[1] == f"epoch 0: skipped rows: {skipped}"


def test_padding_deals_every_row_to_ranks_of_equal_batches(packed: PackedSet, caplog: pytest.LogCaptureFixture) -> None:
    by_rank = deal(packed, 4, 2, padding=True)

    assert [[len(rows) for rows in steps] for steps in by_rank] == [[2, 2, 2]] * 4
    repeated = Counter(flatten(by_rank)) - Counter(range(21))
    assert sorted(set(flatten(by_rank))) == list(range(21))
    assert sum(repeated.values()) == 3
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_skipped_rows_differ_between_epochs(packed: PackedSet) -> None:
    skipped = {row for epoch in range(4) for row in set(range(21)) - set(flatten(deal(packed, 4, 2, epoch=epoch)))}

    assert len(skipped) > 1


@pytest.mark.parametrize("drop_last", [True, False])
def test_an_order_without_rows_is_refused_without_advice(drop_last: bool) -> None:
    with pytest.raises(ValueError, match=r"^1 rank needs at least [14] rows?, got 0$"):
        rank_positions(0, 4, rank=0, ranks=1, step=0, drop_last=drop_last)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranks": 22}, "22 ranks need at least 22 rows, got 21: use fewer ranks"),
        (
            {"ranks": 2, "batch": 11, "drop_last": True},
            "2 ranks need at least 22 rows, got 21: use fewer ranks, or a smaller batch",
        ),
        ({"batch": 22, "drop_last": True}, "1 rank needs at least 22 rows, got 21: use a smaller batch"),
        ({"workers": -1}, "workers must be >= 0, got -1"),
        ({"seed": -1}, "seed and epoch must be 0 or more, got -1 and 0"),
        ({"epoch": -2}, "seed and epoch must be 0 or more, got 7 and -2"),
        ({"batch": np.int8(100), "ranks": np.int8(100)}, "100 ranks need at least 100 rows, got 21: use fewer ranks"),
    ],
)
def test_too_many_ranks_and_negative_numbers_are_refused(
    settings: dict[str, int], message: str, packed: PackedSet
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        batching.loader(packed.folder, **{"batch": 1, "seed": 7} | settings)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_saved_state_continues_within_an_epoch_and_into_the_next(packed: PackedSet, workers: int) -> None:
    loaders = [batching.loader(packed.folder, 4, 7, rank=1, ranks=2, workers=workers) for _ in range(3)]
    whole = [[rows.tolist() for _, _, rows in loaders[0]] for _ in range(2)]

    for _, _, rows in loaders[1]:
        assert rows.tolist() == whole[0][0]
        break
    loaders[2].load_state_dict(pickle.loads(pickle.dumps(loaders[1].state_dict())))

    assert len(loaders[2]) == len(whole[0])  # as in torch; Lightning compares it with the batches since the epoch began
    assert [[rows.tolist() for _, _, rows in loaders[2]] for _ in range(2)] == [whole[0][1:], whole[1]]
    with pytest.raises(ValueError, match="load a state that this loader saved"):
        batching.loader(packed.folder, 4, 8).load_state_dict(loaders[1].state_dict())
    with pytest.raises(UsageError, match=r"^state: must be a Mapping, got None; correct it$"):
        loaders[1].load_state_dict(None)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_caller_that_counts_batches_gets_every_epoch(packed: PackedSet, workers: int) -> None:
    counted, whole = batching.loader(packed.folder, 4, 7, workers=workers), batching.loader(packed.folder, 4, 7)

    for _ in range(2):
        batches = [rows.tolist() for _, (_, _, rows) in zip(range(len(counted)), counted, strict=False)]
        assert batches == [rows.tolist() for _, _, rows in whole]
    assert counted.state_dict() == whole.state_dict()


def test_steps_of_one_size_have_the_same_rows_for_any_number_of_ranks(packed: PackedSet) -> None:
    def rows_by_step(ranks: int, batch: int) -> list[list[int]]:
        loaders = [batching.loader(packed.folder, batch, 7, rank=rank, ranks=ranks, step=1) for rank in range(ranks)]
        return [sorted(row for _, _, rows in step for row in rows.tolist()) for step in zip(*loaders, strict=True)]

    assert rows_by_step(1, 4)[:4] == rows_by_step(2, 2)[:4] == rows_by_step(4, 1)


def test_masks_and_labels_stay_within_a_document(packed: PackedSet) -> None:
    [(tokens, documents, _)] = batching.loader(packed.folder, 21, 7)

    mask, labels = batching.attention_mask(documents), batching.labels(tokens, documents)

    assert (documents == -1).any()
    for row in range(21):
        for position in range(8):
            visible = [other for other in range(position + 1) if documents[row, other] == documents[row, position]]
            assert mask[row, position].nonzero().flatten().tolist() == visible
            has_next = position < 7 and documents[row, position] == documents[row, position + 1] >= 0
            assert labels[row, position] == (tokens[row, position + 1] if has_next else -100)


def test_labels_refuse_arrays_of_different_batches(packed: PackedSet) -> None:
    [(tokens, documents, rows)] = batching.loader(packed.folder, 21, 7)

    for other, shape in ((documents[:1], "(1, 8)"), (documents[:, :3], "(21, 3)"), (rows, "(21,)")):
        with pytest.raises(ValueError) as refused:
            batching.labels(tokens, other)
        what = "tokens and documents must both have the shape (batch, seq_len)"
        assert str(refused.value) == f"{what}, got (21, 8) and {shape}"


def test_torch_maps_the_file_without_conversion(packed: PackedSet) -> None:
    size = packed.input_ids.size

    ids = torch.from_file(str(packed.folder / "input_ids.mmap"), size=size, dtype=torch.int32)

    assert ids.reshape(21, 8).tolist() == packed.input_ids.tolist()


@pytest.mark.parametrize(
    "settings", [{"rank": 1}, {"rank": -1}, {"rank": 5, "ranks": 2}, {"ranks": 0}, {"step": -1}, {"batch": 0}]
)
def test_a_rank_step_or_batch_out_of_range_is_refused(settings: dict[str, int], packed: PackedSet) -> None:
    with pytest.raises(ValueError, match=r"(rank|batch|step) must be"):
        batching.loader(packed.folder, **{"batch": 4, "seed": 1} | settings)


def test_a_step_after_the_epoch_is_refused(packed: PackedSet) -> None:
    assert [*batching.loader(packed.folder, 4, 1, step=6)] == []

    with pytest.raises(ValueError, match=r"^step must be at most 6, .* got 7: count from the start of its epoch$"):
        batching.loader(packed.folder, 4, 1, step=7)

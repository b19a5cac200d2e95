"""A mixture read by ranks and workers, also when resumed at a step."""

import io
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from shards_build import numbered_rows, seal_rows

from pipeline_assets.corpus.shards import reader as reader_module
from pipeline_assets.corpus.shards.reader import MixtureReader
from pipeline_assets.spine.errors import UsageError

WEIGHTS = {"a": "0.5", "b": 0.3, "c": 0.2}
SIZES = {"a": 31, "b": 17, "c": 40}  # rows, 5 per file; the tokens of a row are its corpus and number
FIRST = {"a": 1000, "b": 2000, "c": 3000}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("corpora")
    return {name: seal_rows(root, name, numbered_rows(FIRST[name], size)).folder for name, size in SIZES.items()}


@pytest.fixture(scope="module")
def reader(folders: dict[str, Path]) -> MixtureReader:
    return MixtureReader(folders, WEIGHTS, seed=1)


def read_all(reader: MixtureReader) -> list[int]:
    """Return the order in which the reader reads rows."""
    return [FIRST[reader[place].corpus] + reader[place].row for place in range(len(reader))]


def test_each_position_has_the_row_that_it_names(reader: MixtureReader) -> None:
    assert len(reader) == 57  # c has a row for each fifth place; a would need its 32nd row at position 63, b its 18th
    for place in range(len(reader)):
        tokens, corpus, row = reader[place]
        assert tokens.tolist() == [FIRST[corpus] + row] * 4
    assert reader[-1][1:] == reader[56][1:]
    with pytest.raises(IndexError):
        reader[len(reader)]


def test_without_weights_every_row_is_read_once(folders: dict[str, Path]) -> None:
    reader = MixtureReader(folders, None, seed=1)

    assert sorted(read_all(reader)) == sorted(FIRST[name] + row for name, size in SIZES.items() for row in range(size))


def test_with_more_rows_than_exist_an_epoch_ends_before_a_row_repeats(folders: dict[str, Path]) -> None:
    reader = MixtureReader(folders, WEIGHTS, seed=1, rows=200)

    times = Counter(read_all(reader))
    assert {times[FIRST["b"] + row] for row in range(17)} == {3, 4}  # 60 of 17
    assert {times[FIRST["c"] + row] for row in range(40)} == {1}


def test_each_seed_gives_another_order(folders: dict[str, Path]) -> None:
    assert read_all(MixtureReader(folders, WEIGHTS, seed=1)) != read_all(MixtureReader(folders, WEIGHTS, seed=2))


def test_the_order_of_the_arguments_does_not_matter(folders: dict[str, Path], reader: MixtureReader) -> None:
    reversed_reader = MixtureReader(dict(reversed(folders.items())), dict(reversed(WEIGHTS.items())), seed=1)

    assert read_all(reversed_reader) == read_all(reader)


def test_only_rows_within_the_ranges_are_read(folders: dict[str, Path]) -> None:
    ranges = {"a": range(3, 9), "b": range(2), "c": range(30, 40)}

    reader = MixtureReader(folders, None, seed=1, ranges=ranges)

    assert sorted(read_all(reader)) == sorted(FIRST[name] + row for name, rows in ranges.items() for row in rows)


@settings(deadline=None)
@example(ranks=70, batch=1, step=0, deal={"padding": True}, group_bytes=1)
@given(
    ranks=st.integers(1, 5) | st.integers(1, 70),
    batch=st.integers(1, 9),
    step=st.integers(0, 4),
    deal=st.sampled_from([{}, {"drop_last": True}, {"padding": True}]),
    group_bytes=st.integers(1, 400),
)
def test_ranks_and_resumed_ranks_read_each_row_of_the_order_once_or_repeat_the_first_as_padding(
    reader: MixtureReader, ranks: int, batch: int, step: int, deal: dict[str, bool], group_bytes: int
) -> None:
    order, stride = read_all(reader), ranks * batch if "drop_last" in deal else ranks
    dealt = (order * 2)[: len(order) + -len(order) % ranks] if "padding" in deal else order[: 57 - 57 % stride]
    assume(dealt)

    def read_ranks(step: int) -> list[list[list[int]]]:
        return [
            [rows[:, 0].tolist() for rows in reader.batches(batch, rank, ranks, step, **deal)] for rank in range(ranks)
        ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "_GROUP_BYTES", group_bytes)
        batches = read_ranks(0)
        step = min(step, len(batches[0]))
        resumed = read_ranks(step)

    assert {tuple(map(len, steps)) for steps in batches} == {tuple(map(len, batches[0]))}
    assert resumed == [steps[step:] for steps in batches]
    at_steps = [sorted(row for steps in batches for row in steps[at]) for at in range(len(batches[0]))]
    assert at_steps == [sorted(dealt[at : at + ranks * batch]) for at in range(0, len(dealt), ranks * batch)]


def test_batches_keep_the_dtype_and_log_unread_rows(reader: MixtureReader, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "corpusmill"):
        batches = [*reader.batches(10, drop_last=True)]

    assert {(rows.shape, rows.dtype) for rows in batches} == {((10, 4), np.dtype("uint16"))}
    [record] = caplog.records
    assert record.levelname == "WARNING"  # a trainer that configures no logging shows it
    assert record.message == "the order: drop_last skips the last 7 of 57 rows"


def test_rows_beyond_a_multiple_of_the_ranks_are_logged_once(
    reader: MixtureReader, caplog: pytest.LogCaptureFixture
) -> None:
    dealt = [row for rank in range(2) for batch in reader.batches(4, rank, 2) for row in batch[:, 0].tolist()]

    assert sorted(dealt) == sorted(read_all(reader)[:56])
    assert [(record.levelname, record.message.partition(";")[0]) for record in caplog.records] == [
        ("WARNING", "the order: 2 ranks do not read the last 1 of 57 rows")
    ]


def test_padding_and_drop_last_exclude_each_other(reader: MixtureReader) -> None:
    with pytest.raises(ValueError, match="drop_last and padding exclude each other"):
        reader.batches(4, 0, 2, drop_last=True, padding=True)


def test_a_step_after_the_order_is_refused(reader: MixtureReader) -> None:
    assert [*reader.batches(4, step=15)] == []

    with pytest.raises(ValueError, match=r"^step must be at most 15, the batches of an epoch, got 16: count from"):
        reader.batches(4, step=16)


@pytest.mark.parametrize("wrong", [{"drop_last": "no"}, {"padding": "no"}, {"step": True}, {"rank": "0"}])
def test_batches_refuse_arguments_of_another_type(reader: MixtureReader, wrong: dict[str, object]) -> None:
    [(name, value)] = wrong.items()

    with pytest.raises(UsageError, match=f"{name}: must be .*, got {value!r}; correct it"):
        reader.batches(4, **wrong)  # type: ignore[arg-type]


def test_an_unpickled_reader_reads_the_same_rows(folders: dict[str, Path]) -> None:
    reader = MixtureReader(folders, WEIGHTS, 3, rows=30, ranges={"a": range(9), "b": range(4, 9), "c": range(7)})

    unpickled = pickle.loads(pickle.dumps(reader))

    assert read_all(unpickled) == read_all(reader)
    assert len(pickle.dumps(reader)) < 2000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"weights": {"a": "0.5", "b": "0.5"}}, r"weights must name the corpora \['a', 'b', 'c'\], got \['a', 'b'\]"),
        ({"ranges": {"a": range(2)}}, r"ranges must name the corpora .*, got \['a'\]"),
        (
            {"ranges": {"a": range(2), "b": range(9, 18), "c": range(1)}},
            r"range of b must be within its rows 0 to 16, got range\(9, 18\)",
        ),
        (
            {"ranges": {"a": range(2), "b": range(0), "c": range(1)}},
            r"must be within its rows 0 to 16, got range\(0, 0\)",
        ),
        ({"weights": {"a": 0.6, "b": 0.3, "c": 0.2}}, "weights must sum to 1, got 11/10"),
        (
            {"ranges": {"a": (0, 2), "b": range(1), "c": range(1)}},
            r"range of a must be within its rows 0 to \d+, got \(0, 2\)",
        ),
        ({"digests": {"a": None, "d": ""}}, r"digests must name corpora of \['a', 'b', 'c'\], got \['d'\]"),
        ({"rows": -1}, "rows must be at least 1, got -1"),
        ({"folders": {}, "weights": None}, "at least one corpus is required"),
    ],
)
def test_arguments_that_do_not_fit_the_corpora_are_refused(
    folders: dict[str, Path], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        MixtureReader(**{"folders": folders, "weights": WEIGHTS, "seed": 1} | arguments)


def test_corpora_with_unequal_row_lengths_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    longer = seal_rows(tmp_path, "d", numbered_rows(1, 3, seq_len=8)).folder

    with pytest.raises(ValueError, match="seq_len of d is 8, but of a 4: read them separately"):
        MixtureReader({"a": folders["a"], "d": longer}, None, seed=1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("deal", [{}, {"drop_last": True}, {"padding": True}])
def test_a_torch_loader_gives_the_same_batches(reader: MixtureReader, workers: int, deal: dict[str, bool]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from pipeline_assets.corpus.batching import loader

    for rank in range(2):
        batches = loader(reader, 4, rank=rank, ranks=2, step=1, workers=workers, **deal)
        state, length = batches.state_dict(), len(batches)
        loaded = [(tokens.tolist(), places.tolist()) for tokens, places in batches]
        assert [tokens for tokens, _ in loaded] == [rows.tolist() for rows in reader.batches(4, rank, 2, 1, **deal)]
        assert length == len(loaded) + 1
        assert [[FIRST[reader[place].corpus] + reader[place].row for place in places] for _, places in loaded] == [
            [row[0] for row in tokens] for tokens, _ in loaded
        ]
        resumed = loader(reader, 4, rank=rank, ranks=2, **deal)
        resumed.load_state_dict(state)
        assert [places.tolist() for _, places in resumed] == [places for _, places in loaded]


def test_a_state_of_another_mixture_is_refused(folders: dict[str, Path], reader: MixtureReader) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from pipeline_assets.corpus.batching import loader

    state = loader(reader, 4).state_dict()
    loader(MixtureReader(dict(reversed(folders.items())), WEIGHTS, seed=1), 4).load_state_dict(state)
    for changes in ({"seed": 2}, {"rows": 30}, {"weights": None}):
        with pytest.raises(ValueError, match="load a state that this loader saved"):
            loader(MixtureReader(**{"folders": folders, "weights": WEIGHTS, "seed": 1} | changes), 4).load_state_dict(
                state
            )


def test_numpy_integers_give_the_state_of_python_integers_and_other_types_are_refused(folders: dict[str, Path]) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from pipeline_assets.corpus.batching import loader

    plain, saved = loader(MixtureReader(folders, WEIGHTS, seed=1, rows=30), 4, seed=2, epoch=3), io.BytesIO()
    reader = MixtureReader(folders, WEIGHTS, seed=np.int64(1), rows=np.int64(30))
    torch.save(loader(reader, np.int64(4), seed=np.int64(2), epoch=np.int64(3)).state_dict(), saved)

    saved.seek(0)
    assert torch.load(saved, weights_only=True) == plain.state_dict()
    for seed in ("1", 1.0, None, True):
        with pytest.raises(UsageError, match=f"^seed: must be an integer, got {seed!r}; correct it$"):
            MixtureReader(folders, WEIGHTS, seed=seed)
    with pytest.raises(UsageError, match=r"^folder: must not be empty; correct it$"):
        MixtureReader(folders | {"a": ""}, WEIGHTS, seed=1)


def test_small_numpy_integers_do_not_overflow(folders: dict[str, Path]) -> None:
    reader = MixtureReader(folders, WEIGHTS, seed=1, rows=200)

    ints, small_ints = (
        [rows.tolist() for rows in reader.batches(number(8), step=number(20))] for number in (int, np.int8)
    )

    assert [len(ints), len(small_ints)] == [5, 5]
    assert ints == small_ints
    assert [len(rows) for rows in reader.batches(np.int8(100))] == [100, 100]

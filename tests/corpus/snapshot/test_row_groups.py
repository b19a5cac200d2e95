"""The draw of row groups: in passes over ranked files, from as few footers as possible, the same on every machine."""

import hashlib
import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_parquet import RowGroup
from pipeline_assets.corpus.snapshot.draw import choose_pieces
from pipeline_assets.corpus.snapshot.recipe import Amount
from pipeline_assets.spine.files import seeded_sort_key

ROWS, TEXT_BYTES = 10, 1000


class Footers:
    """Made footers, each row group of 10 rows and 1,000 bytes of text.

    Attributes:
        read: how often each was read.
        together: how many were asked for at a time.
    """

    def __init__(self, groups: dict[str, int]) -> None:
        self.groups = groups
        self.read: Counter[str] = Counter()
        self.together: list[int] = []

    @property
    def files(self) -> list[HubFile]:
        return [HubFile(path, 1, "sha256:0") for path in self.groups]

    def __call__(self, files: Sequence[HubFile]) -> Iterator[list[RowGroup]]:
        self.together.append(len(files))
        for file in files:
            self.read[file.path] += 1
            numbers = range(self.groups[file.path])
            yield [RowGroup(file, number, number * ROWS, ROWS, number, number + 1, TEXT_BYTES) for number in numbers]


def sha256(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()


def slow_order(groups: dict[str, int], seed: str) -> list[tuple[str, int]]:
    """Every row group in the order of the draw: sorted by how many of its file come before it, then by file rank."""
    keyed = []
    for path, count in groups.items():
        ranked = sorted(range(count), key=lambda number, path=path: sha256(seed, path, number))
        keyed += [((turn, sha256(seed, path)), (path, number)) for turn, number in enumerate(ranked)]
    return [place for _, place in sorted(keyed)]


def drawn(footers: Footers, limit: tuple[str, int], seed: str = "seed") -> list[tuple[str, int]]:
    pieces = choose_pieces(footers.files, footers, seed, limit)  # type: ignore[arg-type]
    return [(piece.group.file.path, piece.group.number) for piece in pieces]


def test_rank_is_the_sha256_of_seed_and_parts_joined_by_nul() -> None:
    # printf 'seed\0a.parquet\0' | sha256sum, with the row group's number after the last NUL
    assert seeded_sort_key("seed", "a.parquet").hex() == (
        "bdc987891cb18260170bb665e787e150b2babe7bb0817657e8f0851ba737b5e3"
    )
    assert seeded_sort_key("seed", "a.parquet", 7).hex() == (
        "5429e6351fe5e8a05a70ac3dc42441d8a1148acad4e29ac5e36e8ef238496f1d"
    )


def test_a_known_draw_takes_the_best_row_group_of_each_file_before_the_second_of_any() -> None:
    footers = Footers({"a": 3, "b": 1, "c": 2})

    assert drawn(footers, ("documents", 60)) == [("a", 1), ("c", 0), ("b", 0), ("a", 0), ("c", 1), ("a", 2)]


@given(
    groups=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 4), min_size=1),
    seed=st.text(max_size=3),
    limit=st.integers(1, 40),
)
def test_a_draw_is_the_slow_orders_shortest_start_to_the_limit(groups: dict[str, int], seed: str, limit: int) -> None:
    order = slow_order(groups, seed)

    assert drawn(Footers(groups), ("text_bytes", limit * 500), seed) == order[: -(-limit * 500 // TEXT_BYTES)]
    assert drawn(Footers(groups), ("documents", limit * 5), seed) == order[: -(-limit * 5 // ROWS)]


def test_a_sample_over_many_files_reads_most_footers_together() -> None:
    footers = Footers({str(number): 5 for number in range(100)})

    drawn(footers, ("documents", 600))

    assert footers.together[:2] == [1, 39]  # of the 59 to come, two thirds: the next groups may be larger
    assert sum(footers.together) == 60


def test_the_order_of_the_listing_has_no_part_in_it() -> None:
    groups = {f"data/{number}.parquet": 2 for number in range(20)}
    shuffled = list(groups.items())
    random.Random(0).shuffle(shuffled)

    assert drawn(Footers(dict(shuffled)), ("documents", 250)) == drawn(Footers(groups), ("documents", 250))


@pytest.mark.parametrize(
    ("limit", "rows"),
    [(("documents", 25), [10, 10, 5]), (("documents", 20), [10, 10]), (("text_bytes", 1001), [10, 10])],
)
def test_a_limit_of_documents_cuts_the_last_row_group_and_one_of_text_bytes_takes_it_whole(
    limit: tuple[str, int], rows: list[int]
) -> None:
    footers = Footers({"a": 2, "b": 2})

    pieces = choose_pieces(footers.files, footers, "seed", limit)  # type: ignore[arg-type]

    assert [piece.rows for piece in pieces] == rows
    assert {piece.group.rows for piece in pieces} == {10}


def test_files_come_whole_and_in_file_order_the_first_in_rank() -> None:
    footers = Footers({"a": 3, "b": 2, "c": 1})
    ranked = sorted("abc", key=lambda path: sha256("seed", path))

    chosen = drawn(footers, ("files", 2))

    assert ranked == ["a", "c", "b"]
    assert chosen == [("a", 0), ("a", 1), ("a", 2), ("c", 0)]


@pytest.mark.parametrize("limit", [("files", 100), ("documents", 10**9), ("text_bytes", 10**12)])
def test_a_limit_beyond_all_there_is_takes_all_there_is_once(limit: tuple[str, int]) -> None:
    footers = Footers({"a": 3, "b": 0, "c": 2})

    chosen = drawn(footers, limit)

    assert sorted(chosen) == [("a", 0), ("a", 1), ("a", 2), ("c", 0), ("c", 1)]


def test_only_the_footers_that_the_sample_reaches_are_read_and_each_once() -> None:
    small = Footers({f"{number}.parquet": 5 for number in range(100)})
    large = Footers({f"{number}.parquet": 5 for number in range(100)})

    drawn(small, ("documents", 30))
    drawn(large, ("documents", 4000))

    assert len(small.read) == 3
    assert set(large.read.values()) == {1} and len(large.read) == 100


@pytest.mark.parametrize("limit", [("files", 3), ("documents", 1000), ("text_bytes", 5)])
def test_an_amount_says_what_is_counted_and_how_many(limit: tuple[str, int]) -> None:
    assert Amount.model_validate(dict([limit])).limit == limit


@pytest.mark.parametrize(
    ("amount", "complaint"),
    [
        ({}, "set exactly one of files, documents, text_bytes"),
        ({"files": 1, "documents": 1}, "set exactly one of files, documents, text_bytes"),
        ({"files": 0}, "Input should be greater than 0"),
        ({"documents": -1}, "Input should be greater than 0"),
        ({"files": 1.5}, "Input should be a valid integer"),
        ({"rows": 5, "files": 1}, "Extra inputs are not permitted"),
    ],
)
def test_an_amount_that_is_not_one_unit_in_range_is_refused(amount: dict[str, object], complaint: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=complaint):
        Amount.model_validate(amount)

"""The draw of row groups: passes over ranked files, with few footers read."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_sample import sha256

from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_parquet import RowGroup
from pipeline_assets.corpus.snapshot.draw import choose_pieces
from pipeline_assets.corpus.snapshot.recipe import Amount
from pipeline_assets.spine.files import seeded_sort_key

ROWS, TEXT_BYTES = 10, 1000


class Footers:
    """Synthetic footers, each row group with 10 rows and 1,000 bytes of text.

    Attributes: read: the number of reads of each footer. batch_sizes: the number of footers requested at a time.
    """

    def __init__(self, groups: dict[str, int]) -> None:
        self.groups = groups
        self.read: Counter[str] = Counter()
        self.batch_sizes: list[int] = []

    @property
    def files(self) -> list[HubFile]:
        return [HubFile(path, 1, "sha256:0") for path in self.groups]

    def __call__(self, files: Sequence[HubFile]) -> Iterator[list[RowGroup]]:
        self.batch_sizes.append(len(files))
        for file in files:
            self.read[file.path] += 1
            numbers = range(self.groups[file.path])
            yield [RowGroup(file, number, number * ROWS, ROWS, number, number + 1, TEXT_BYTES) for number in numbers]


def slow_order(groups: dict[str, int], seed: str) -> list[tuple[str, int]]:
    """Sort row groups as the draw does: by rank within a file, then by file rank."""
    keyed = []
    for path, count in groups.items():
        ranked = sorted(range(count), key=lambda number, path=path: sha256(seed, path, number))
        keyed += [((turn, sha256(seed, path)), (path, number)) for turn, number in enumerate(ranked)]
    return [row_group for _, row_group in sorted(keyed)]


def draw(footers: Footers, limit: tuple[str, int], seed: str = "seed") -> list[tuple[str, int]]:
    pieces = choose_pieces(footers.files, footers, seed, limit)  # type: ignore[arg-type]
    return [(piece.group.file.path, piece.group.number) for piece in pieces]


def test_rank_is_the_sha256_of_seed_and_parts_joined_by_nul() -> None:
    # printf 'seed\0a.parquet\0' | sha256sum, with the row group's number after the last NUL
    whole = "bdc987891cb18260170bb665e787e150b2babe7bb0817657e8f0851ba737b5e3"
    of_group = "5429e6351fe5e8a05a70ac3dc42441d8a1148acad4e29ac5e36e8ef238496f1d"

    assert seeded_sort_key("seed", "a.parquet").hex() == whole
    assert seeded_sort_key("seed", "a.parquet", 7).hex() == of_group


def test_a_known_draw_has_the_best_row_group_of_each_file_before_any_second() -> None:
    footers = Footers({"a": 3, "b": 1, "c": 2})

    assert draw(footers, ("documents", 60)) == [("a", 1), ("c", 0), ("b", 0), ("a", 0), ("c", 1), ("a", 2)]


@given(
    groups=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 4), min_size=1),
    seed=st.text(max_size=3),
    limit=st.integers(1, 40),
)
def test_a_draw_is_the_start_of_the_slow_order_up_to_the_limit(groups: dict[str, int], seed: str, limit: int) -> None:
    order = slow_order(groups, seed)

    assert draw(Footers(groups), ("text_bytes", limit * 500), seed) == order[: -(-limit * 500 // TEXT_BYTES)]
    assert draw(Footers(groups), ("documents", limit * 5), seed) == order[: -(-limit * 5 // ROWS)]


def test_a_sample_over_many_files_reads_most_footers_together() -> None:
    footers = Footers({str(number): 5 for number in range(100)})

    draw(footers, ("documents", 600))

    assert footers.batch_sizes[:2] == [1, 39]  # of the 59 to come, two thirds: the next groups may be larger
    assert sum(footers.batch_sizes) == 60


@pytest.mark.parametrize(
    ("limit", "rows"),
    [(("documents", 25), [10, 10, 5]), (("documents", 20), [10, 10]), (("text_bytes", 1001), [10, 10])],
)
def test_only_a_limit_of_documents_cuts_the_last_row_group(limit: tuple[str, int], rows: list[int]) -> None:
    footers = Footers({"a": 2, "b": 2})

    pieces = choose_pieces(footers.files, footers, "seed", limit)  # type: ignore[arg-type]

    assert [piece.rows for piece in pieces] == rows
    assert {piece.group.rows for piece in pieces} == {10}


def test_a_limit_of_files_draws_the_first_ranked_files_whole() -> None:
    footers = Footers({"a": 3, "b": 2, "c": 1})

    assert sorted("abc", key=lambda path: sha256("seed", path)) == ["a", "c", "b"]
    assert draw(footers, ("files", 2)) == [("a", 0), ("a", 1), ("a", 2), ("c", 0)]
    assert draw(footers, ("files", 100)) == [("a", 0), ("a", 1), ("a", 2), ("c", 0), ("b", 0), ("b", 1)]


def test_only_footers_that_the_sample_needs_are_read_each_once() -> None:
    small = Footers({f"{number}.parquet": 5 for number in range(100)})
    large = Footers({f"{number}.parquet": 5 for number in range(100)})

    draw(small, ("documents", 30))
    draw(large, ("documents", 4000))

    assert len(small.read) == 3
    assert set(large.read.values()) == {1} and len(large.read) == 100


@pytest.mark.parametrize(
    ("amount", "message"),
    [
        ({}, "set exactly one of files, documents, text_bytes"),
        ({"files": 1, "documents": 1}, "set exactly one of files, documents, text_bytes"),
        ({"documents": 0}, "Input should be greater than 0"),
    ],
)
def test_an_amount_that_is_not_one_unit_in_range_is_refused(amount: dict[str, object], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        Amount.model_validate(amount)

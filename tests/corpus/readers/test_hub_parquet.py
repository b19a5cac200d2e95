"""Parquet on a hub: footer and row groups by range, errors for missing bytes."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faulty_hub import FaultyHub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numbered_pages import large_pages
from refusals import refusal

from pipeline_assets.corpus.readers.hub_cache import Span
from pipeline_assets.corpus.readers.hub_files import HubFiles
from pipeline_assets.corpus.readers.hub_listing import HubFile
from pipeline_assets.corpus.readers.hub_parquet import (
    RowGroup,
    SpanFile,
    list_row_groups,
    open_row_groups,
    read_footer,
)

DATASET = "maker/pages"
DAMAGED = "the file is damaged: pin another commit"
Publish = Callable[..., "Published"]


@dataclass
class Published:
    """A listed file and its fetched spans."""

    hub: HubFiles
    commit: str
    file: HubFile

    def footer(self) -> tuple[pq.FileMetaData, tuple[Span, ...]]:
        return read_footer(self.hub, DATASET, self.commit, self.file)

    def row_groups(self) -> list[RowGroup]:
        return list_row_groups(self.footer()[0], self.file, "text")


@pytest.fixture
def published(publish: Callable[..., str], hub_files: HubFiles) -> Callable[..., Published]:
    def write(content: bytes | pa.Table, rows_per_group: int = 50) -> Published:
        commit = publish({"a.parquet": content}, rows_per_group)
        return Published(hub_files, commit, hub_files.list_files(DATASET, commit)[0])

    return write


def content_bytes(hub: FaultyHub) -> int:
    return sum(request.bytes_sent for request in hub.requests if request.origin == "storage")


def test_a_footer_needs_64_KiB_of_a_large_file(published: Publish, hub: FaultyHub) -> None:  # noqa: N802
    large = published(large_pages(0, 1000), rows_per_group=100)

    metadata, spans = large.footer()

    assert (metadata.num_rows, metadata.num_row_groups) == (1000, 10)
    assert large.file.size - spans[0].start == content_bytes(hub) == 65_536 < large.file.size


def test_a_footer_longer_than_64_KiB_needs_a_second_range(published: Publish, hub: FaultyHub) -> None:  # noqa: N802
    long_footer = published(large_pages(0, 2000, words=5), rows_per_group=2)

    metadata, spans = long_footer.footer()

    assert metadata.num_row_groups == 1000
    assert content_bytes(hub) == long_footer.file.size - spans[0].start > 65_536


def test_row_groups_have_rows_byte_range_and_text_size(published: Publish) -> None:
    file = published(large_pages(0, 25, words=1), rows_per_group=10)

    groups = file.row_groups()

    assert [(group.number, group.first_row, group.rows) for group in groups] == [(0, 0, 10), (1, 10, 10), (2, 20, 5)]
    # The first group starts after the magic PAR1, each other one at the end of the last.
    assert groups[0].start == 4
    assert [group.start for group in groups[1:]] == [group.stop for group in groups[:-1]]
    metadata, _ = file.footer()
    sizes = [metadata.row_group(number).column(1).total_uncompressed_size for number in range(3)]
    assert [group.text_bytes for group in groups] == sizes


def test_a_row_group_is_read_from_its_own_bytes_and_the_footer(published: Publish, hub: FaultyHub) -> None:
    table = large_pages(0, 1000)
    large = published(table, rows_per_group=100)
    (_, footer), group = large.footer(), large.row_groups()[3]
    span = large.hub.fetch(DATASET, large.commit, large.file, group.start, group.stop)

    with open_row_groups(large.file, [*footer, span]) as parquet:
        rows = parquet.read_row_group(3)

    assert rows == table.slice(300, 100)
    assert content_bytes(hub) == 65_536 + group.stop - group.start
    with open_row_groups(large.file, footer) as parquet, pytest.raises(OSError, match="were not fetched"):
        parquet.read_row_group(0)


@pytest.mark.parametrize(
    ("content", "message", "fix"),
    [
        (b"", "the file is not Parquet", "correct `files` in the recipe"),
        (b"PAR1", "the file is not Parquet", "correct `files` in the recipe"),
        (b"no Parquet at all, but longer than twelve", "the file is not Parquet", "correct `files` in the recipe"),
        (b"PAR1____\xff\xff\xff\x7fPAR1", "the Parquet footer is longer than the file", DAMAGED),
        (b"PAR1" + b"\xff" * 40 + b"\x20\0\0\0PAR1", "the Parquet footer cannot be read (", DAMAGED),
    ],
    ids=["empty", "short", "text", "long footer", "broken footer"],
)
def test_an_incomplete_parquet_file_is_refused(published: Publish, content: bytes, message: str, fix: str) -> None:
    file = published(content)

    line = refusal(file.footer)

    assert line.startswith(f"maker/pages@{file.commit}:a.parquet: {message}") and line.endswith(f"; {fix}")


def write_spans(folder: Path, content: bytes, cuts: list[int]) -> list[Span]:
    """Write the content as adjacent spans and return them in reverse order."""
    bounds = [0, *sorted(set(cuts)), len(content)]
    spans = []
    for start, stop in itertools.pairwise(bounds):
        (folder / f"{start}").write_bytes(content[start:stop])
        spans.append(Span(start, stop, folder / f"{start}"))
    return spans[::-1]


@given(
    cuts=st.lists(st.integers(1, 99), max_size=4),
    start=st.integers(0, 110),
    size=st.one_of(st.none(), st.integers(0, 110)),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_adjacent_spans_are_read_as_one_file(tmp_path: Path, cuts: list[int], start: int, size: int | None) -> None:
    content = bytes(range(100))

    with SpanFile(100, write_spans(tmp_path, content, cuts)) as file:
        file.seek(start)
        data = file.read(-1 if size is None else size)
        from_end = (file.seek(-8, 2), file.read(2), file.seek(3, 1), file.tell())

    assert data == (content[start:] if size is None else content[start : start + size])
    assert from_end == (92, content[92:94], 97, 97)


def test_a_gap_between_spans_is_an_error(tmp_path: Path) -> None:
    first, *_, last = reversed(write_spans(tmp_path, bytes(100), [10, 20]))

    with SpanFile(100, [first, last]) as file, pytest.raises(OSError, match="bytes 10 to 30 were not fetched"):
        file.seek(5)
        file.read(25)


def test_a_span_truncated_after_its_check_is_a_read_error(tmp_path: Path) -> None:
    [span] = write_spans(tmp_path, bytes(range(100)), [])
    with SpanFile(100, [span]) as file:
        span.path.write_bytes(bytes(range(40)))

        with pytest.raises(OSError, match=f"{span.path.name} was cut while it was read"):
            file.read(60)

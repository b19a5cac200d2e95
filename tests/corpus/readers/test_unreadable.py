"""Unreadable files of a source: how much of it may be lost."""

import pytest
from refusals import refusal

from pipeline_assets.corpus.readers.unreadable import UnreadableFiles


def lost(size: int, source: int, files: int, names: int = 2) -> UnreadableFiles:
    return UnreadableFiles({f"{number}.gz": "truncated" for number in range(names)}, size, source, files)


@pytest.mark.parametrize(
    ("size", "source", "files", "names", "max_fraction"),
    [
        (10, 100, 9, 2, "0.1"),  # exactly the limit
        (0, 0, 2, 2, "0"),
        (1, 3, 3, 1, "0.001"),  # one file, exactly a third of the bytes and of the files
    ],
)
def test_as_much_as_the_limit_may_be_lost(size: int, source: int, files: int, names: int, max_fraction: str) -> None:
    lost(size, source, files, names).raise_if_above_limit(max_fraction, "here")


@pytest.mark.parametrize(
    ("size", "source", "files", "names", "max_fraction", "part"),
    [
        (11, 100, 9, 2, "0.1", "2 of 9 files cannot be read, 11.0% of the bytes, above `max_reject_fraction` 0.1"),
        (1, 3, 3, 1, "0", "1 of 3 files cannot be read, 33.3% of the bytes"),
        (34, 100, 9, 1, "0.1", "1 of 9 files cannot be read, 34.0% of the bytes"),
        (1, 100, 2, 1, "0.001", "1 of 2 files cannot be read, 1.0% of the bytes"),
    ],
)
def test_more_than_the_limit_may_not_be_lost(
    size: int, source: int, files: int, names: int, max_fraction: str, part: str
) -> None:
    assert part in refusal(lambda: lost(size, source, files, names).raise_if_above_limit(max_fraction, "here"))

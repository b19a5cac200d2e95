"""Unreadable files of a source: the limit of their share."""

import pytest
from refusals import refusal

from pipeline_assets.corpus.readers.unreadable import UnreadableFiles


def unreadable(size: int, source: int, files: int, names: int = 2) -> UnreadableFiles:
    return UnreadableFiles({f"{number}.gz": "truncated" for number in range(names)}, size, source, files)


@pytest.mark.parametrize(
    ("size", "source", "files", "names", "max_fraction"),
    [
        (10, 100, 9, 2, "0.1"),  # exactly the limit
        (0, 0, 2, 2, "0"),
        (1, 3, 3, 1, "0.001"),  # one file, exactly a third of the bytes and of the files
    ],
)
def test_losses_up_to_the_limit_are_accepted(size: int, source: int, files: int, names: int, max_fraction: str) -> None:
    unreadable(size, source, files, names).raise_if_above_limit(max_fraction, "here")


@pytest.mark.parametrize(
    ("size", "source", "files", "names", "max_fraction", "message"),
    [
        (11, 100, 9, 2, "0.1", "2 of 9 files cannot be read, 11.0% of the bytes, above `max_reject_fraction` 0.1"),
        (1, 3, 3, 1, "0", "1 of 3 files cannot be read, 33.3% of the bytes"),
        (34, 100, 9, 1, "0.1", "1 of 9 files cannot be read, 34.0% of the bytes"),
        (1, 100, 2, 1, "0.001", "1 of 2 files cannot be read, 1.0% of the bytes"),
    ],
)
def test_losses_above_the_limit_are_an_error(
    size: int, source: int, files: int, names: int, max_fraction: str, message: str
) -> None:
    assert message in refusal(lambda: unreadable(size, source, files, names).raise_if_above_limit(max_fraction, "here"))

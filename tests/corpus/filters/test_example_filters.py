"""Example filters of docs/filters.md keep ordinary prose in any layout."""

import pytest
from plain_filters import ENGLISH_PROSE, ENGLISH_WEB

from pipeline_assets.corpus.filters.verdict import evaluate

MANUAL = """\
NAME
       tar-split - divide an archive into parts that fit on a disk

SYNOPSIS
       tar-split [-b BYTES] [--prefix={name}] ARCHIVE

DESCRIPTION
       The program reads an archive and writes it to several files, each of
       which has at most the given number of bytes. The parts have the name
       of the archive and a number, and they can be joined again with cat.

       A part begins with the first byte that is not in the part before it,
       so that no byte of the archive is lost or repeated

OPTIONS
       -b BYTES
              The size of a part in bytes. With a letter k, m or g behind it
              the number is multiplied by a thousand, a million or a billion

       --prefix={name}
              Write the parts to files that begin with this name instead of
              the name of the archive.

EXIT STATUS
       The status is 0 if all parts were written, and 1 if one of them was
       not, for example because the disk is full.
"""
ARTICLE = (
    "The village lies at the end of a valley that the sun reaches for two hours in winter. Its people say that the "
    "first of them came to mine copper, and that the copper was gone before the church had a roof. What remained were "
    "the meadows, and a road that nobody wanted to walk twice. My grandmother walked it every week with eggs to sell. "
    "She counted the steps aloud so that we would learn our numbers, and to be heard by the bears."
)
TABLE = "\n".join(f"U+{n:04X} glyph{n} original" for n in range(200))
COPIES = "The page that you have opened is not available to you.\n" * 40


@pytest.mark.parametrize(
    "text", [MANUAL, ARTICLE, ARTICLE.replace(". ", ".\n"), f"{ARTICLE}\n\n    if (x) {{ return; }}\n"]
)
def test_ordinary_prose_is_kept(text: str) -> None:
    verdict = evaluate(text, {}, ENGLISH_PROSE)

    assert (verdict.reason, verdict.text) == (None, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [(TABLE, "stop_words"), (COPIES, "duplicate_line_characters"), ("Home\nMenu\nThe end.", "few_words")],
)
def test_tables_copies_and_scraps_are_dropped(text: str, reason: str) -> None:
    assert evaluate(text, {}, ENGLISH_PROSE).reason == reason


def test_the_list_for_web_pages_drops_a_manual() -> None:
    assert evaluate(MANUAL, {}, ENGLISH_WEB).reason == "document_phrase"

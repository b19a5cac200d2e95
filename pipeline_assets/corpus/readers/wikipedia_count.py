"""How many pages a wikiextractor file has, counted without reading them: what the reader's ledger must add up to."""

from collections.abc import Iterable
from dataclasses import dataclass

from pipeline_assets.corpus.readers.source_files import ByteRange
from pipeline_assets.corpus.readers.source_lines import lines_of
from pipeline_assets.corpus.readers.wikipedia_pages import open_extraction
from pipeline_assets.corpus.spine.errors import InputError


@dataclass(frozen=True)
class PageLedger:
    """Pages that went in, by a count of their first lines, and what the reader made of them."""

    pages: int
    articles: int
    rejects: int

    @property
    def adds_up(self) -> bool:
        """Every page is an article or a reject, and there is one."""
        return 0 < self.pages == self.articles + self.rejects

    def check(self, where: object) -> None:
        """
        Raises:
            InputError: it doesn't add up.
        """
        if self.pages == 0:
            fix = "extract again: wikiextractor finds pages only where each element of the dump is on a line of its own"
            raise InputError("there is no page in the whole extraction", where, fix)
        if not self.adds_up:
            raise InputError(f"pages are lost or made up: {self}", where, "report the file: the reader is wrong")

    def __str__(self) -> str:
        return f"{self.pages:,} pages in = {self.articles:,} articles + {self.rejects:,} rejected"


def count_pages(pieces: Iterable[ByteRange]) -> int:
    """Lines that begin a `<doc>` element, or lines of JSON, that begin in the ranges.

    Raises:
        InputError: as `open_extraction` does.
    """
    return sum(_count(piece) for piece in pieces)


def _count(piece: ByteRange) -> int:
    kind, blocks = open_extraction(piece)
    lines = (line for _, line in lines_of(blocks, piece.stop))
    if kind == "json":
        return sum(bool(line.strip()) for line in lines)
    return sum(line.startswith(b'<doc id="') and b'" url="' in line and b'" title="' in line for line in lines)

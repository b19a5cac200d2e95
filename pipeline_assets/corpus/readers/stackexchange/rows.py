"""A Posts.xml, fed block by block, to its rows. Memory: a block, and the longest row."""

import re
from collections.abc import Iterator
from typing import Literal
from xml.parsers import expat

import numpy as np

from pipeline_assets.corpus.eight_bytes import eight_bytes_at_each
from pipeline_assets.corpus.readers.stackexchange.arrays import Integers
from pipeline_assets.corpus.readers.stackexchange.escapes import escaped
from pipeline_assets.corpus.readers.stackexchange.row_scan import (
    BROKEN,
    COLUMNS,
    END,
    FULL,
    NO_ROW,
    PADDING,
    scan_rows,
)
from pipeline_assets.corpus.spine.errors import InputError

MOST_ROW_BYTES = 16 << 20
_MOST_MARGIN_BYTES = 1 << 16  # before the first row and after the last
_ROWS = 8192
_SHOWN_BYTES = 60
_COMMENTS = rb"(?:<!--(?:(?!--).)*-->\s*)*"
# A declaration that names a DTD elsewhere, or none, declares nothing here: it is passed over, and nothing is fetched.
_DECLARATION = rb"""<!DOCTYPE\s(?:[^\[\]<>"']|"[^"]*"|'[^']*')*"""
_PROLOG = re.compile(
    rb"\s*(?:<\?xml\s[^<>]*?\?>\s*)?%b(?:%b>\s*%b)?(?:<posts\s*(?P<empty>/)?>|(?P<dtd>%b\[))"
    % (_COMMENTS, _DECLARATION, _COMMENTS, _DECLARATION),
    re.DOTALL,
)
_WITHOUT_DTD = """perl -i.dtd -pe 'BEGIN{$/="]>"} if($.==1){s/<!DOCTYPE.*//s; $/="\\n"}' FILE"""
_ENCODING = re.compile(rb"""encoding\s*=\s*["']([^"']*)""")
_EPILOG = re.compile(rb"(?:</posts\s*>)?\s*\Z")
_UTF8_BOM, _UTF16_BOMS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")

Where = Literal["prolog", "rows", "epilog"]
ScannedRows = Integers  # as `scan_rows` has them


class PostsXml:
    """What was fed of a file, or of a part of one that begins and ends between rows.

    Args:
        where: the file, for errors.
        start: the part's first byte in it; 0 with the file's head.
        is_last: whether the part has the file's end.
    """

    def __init__(self, where: str, start: int = 0, is_last: bool = True) -> None:
        self._where = where
        self._at = start
        self._is_last = is_last
        self._state: Where = "rows" if start else "prolog"
        self._rest = b""
        self._rows = np.empty((_ROWS, COLUMNS), np.int64)

    def feed(self, block: bytes) -> Iterator[tuple[bytes, ScannedRows]]:
        """Rows that the block completes, in file order: (bytes, where the rows lie in them); both hold until the next.

        Raises:
            InputError: the file is none of posts, or broken (says at which byte).
        """
        data = b"".join((self._rest, block, PADDING))
        if self._state == "prolog":
            data = self._after_prolog(data)
        at, why = 0, FULL
        if self._state == "rows":
            view = np.frombuffer(data, np.uint8)
            eights = eight_bytes_at_each(view)
            while why == FULL:
                count, at, why = scan_rows(view, eights, at, self._rows)
                if count:
                    yield data, self._rows[:count]
        data = data[at : -len(PADDING)]
        self._at += at
        if why in (NO_ROW, BROKEN):
            self._refuse(data, 0, "no part of a row" if why == NO_ROW else "where a row is broken")
        if why == END:
            self._state = "epilog"
        self._rest = data
        limit = MOST_ROW_BYTES if self._state == "rows" else _MOST_MARGIN_BYTES
        if len(data) > limit:
            self._refuse(data, 0, f"where {limit:,} bytes begin that hold no whole row")

    def close(self) -> None:
        """
        Raises:
            InputError: the end is missing, or more follows it.
        """
        if self._state == "prolog":
            self._refuse(self._rest, 0, "not the head of a Posts.xml: <?xml …?><posts>")
        if self._state == "rows" and (self._is_last or self._rest.strip()):
            what = f"it is cut off: after byte {self._at:,} comes no whole row and no </posts>"
            raise InputError(what, self._where, "fetch it again; its size is on its page")
        if self._state == "epilog" and not (self._is_last and _EPILOG.match(self._rest)):
            self._refuse(self._rest, 0, "not the end of a Posts.xml: </posts>")

    def _after_prolog(self, data: bytes) -> bytes:
        if data.startswith(_UTF16_BOMS):
            raise InputError("it is UTF-16", self._where, "convert it to UTF-8, which the dumps are in")
        bom = len(_UTF8_BOM) if data.startswith(_UTF8_BOM) else 0
        match = _PROLOG.match(data, bom)
        if match is None:
            return data
        if match["dtd"]:
            raise InputError(
                "it has a DTD of its own, which no dump has", self._where, f"take it out of the file: {_WITHOUT_DTD}"
            )
        encoding = _ENCODING.search(match[0])
        if encoding is not None and encoding[1].lower() not in (b"utf-8", b"utf8", b"us-ascii", b"ascii"):
            what = f"its encoding is {encoding[1].decode('ascii', 'replace')}"
            raise InputError(what, self._where, "convert it to UTF-8, which the dumps are in")
        self._state = "epilog" if match["empty"] else "rows"
        self._at += match.end()
        return data[match.end() :]

    def _refuse(self, data: bytes, at: int, what: str) -> None:
        shown = data[at : at + _SHOWN_BYTES].decode("utf-8", "replace")
        fix = "fetch the file again; if it is so at its source, correct it there"
        raise InputError(f"byte {self._at + at:,} is {what}: {shown!r}", self._where, fix)


def as_dumped(attributes: bytes) -> tuple[bytes, ScannedRows]:
    """A row that is written otherwise than the dumps do, rewritten: its attributes; its columns, shape (COLUMNS,)."""
    found: dict[str, str] = {}
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = lambda _, values: found.update(values)
    parser.Parse(b"<row " + attributes + b"/>", True)
    line = " ".join(f'{name}="{escaped(value)}"' for name, value in found.items()).encode()
    columns = np.empty((1, COLUMNS), np.int64)
    row = np.frombuffer(b"<row " + line + b"/>" + PADDING, np.uint8)
    scan_rows(row, eight_bytes_at_each(row), 0, columns)
    return line, columns[0]

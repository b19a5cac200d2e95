"""A Posts.xml, fed block by block, to its rows, and a row to a post. Memory: a block, and the longest row.

Between `<posts>` and `</posts>` stand empty elements `<row … />` and white space. No value has a `<` in it: a row lasts
to the next one. Where all rows of a block are written as the dumps write them, letter for letter, they are split at
their quotes; else expat reads each as an XML document of its own. Such a one has no DTD, so no entities, and a row with
a character that XML doesn't have is rejected alone.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple, NoReturn
from xml.parsers import expat

import msgspec
import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.corpus.spine.errors import InputError

MOST_ROW_BYTES = 16 << 20
QUESTION, ANSWER = 1, 2
_MOST_PROLOG_BYTES = 1 << 16
_SHOWN_BYTES = 60
_COMMENTS = rb"(?:<!--(?:(?!--).)*-->\s*)*"
# A declaration that names a DTD elsewhere, or none, declares nothing here: it is passed over, and nothing is fetched.
_DECLARATION = rb"""<!DOCTYPE\s(?:[^\[\]<>"']|"[^"]*"|'[^']*')*"""
_PROLOG = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml\s[^<>]*?\?>\s*)?%b(?:%b>\s*%b)?(?:<posts\s*(?P<empty>/)?>|(?P<dtd>%b\[))"
    % (_COMMENTS, _DECLARATION, _COMMENTS, _DECLARATION),
    re.DOTALL,
)
_WITHOUT_DTD = """perl -i.dtd -pe 'BEGIN{$/="]>"} if($.==1){s/<!DOCTYPE.*//s; $/="\\n"}' FILE"""
_ENCODING = re.compile(rb"""encoding\s*=\s*["']([^"']*)""")
_UTF16_BOMS = b"\xff\xfe", b"\xfe\xff"
_ROW, _END = re.compile(rb"<row[\s/]"), re.compile(rb"</posts\s*>\s*")
_NO_HEAD, _NO_END = "not the head of a Posts.xml: <?xml …?><posts>", "not the end of a Posts.xml: </posts>"
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|&#(?:[0-9]+|x[0-9a-fA-F]+);")
_NO_REFERENCE = re.compile(rb"&(?!(?:lt|gt|amp|quot|apos|#[0-9]+|#x[0-9a-fA-F]+);)")
_MOST_DIGITS = 15
_are_integers = re.compile("-?[0-9]{1,15}(\0-?[0-9]{1,15})*").fullmatch
_is_date = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}").match
_MOST_PLAIN_BYTES = 1 << 20
_QUOTE_MARK, _ROW_MARK = 0, 1  # characters that XML doesn't have, in place of `"` and `<`
_MARKS = bytes.maketrans(b'"<', bytes((_QUOTE_MARK, _ROW_MARK)))
_REFERENCES = {b"&lt;": "<", b"&gt;": ">", b"&amp;": "&", b"&quot;": '"', b"&#xA;": "\n", b"&#xD;": "\r"}
_WINDOW_BYTES = 8
_PLAIN_ENDS = {f" />{white}": f'" />{white}'.encode() for white in ("", "\n", "\n  ", "\r\n", "\r\n  ")}
_NO_XML = Fault("invalid_character", "one that XML does not have")
_OF_ANSWERS = ("Score", "CreationDate", "Body")
_OF_QUESTIONS = (*_OF_ANSWERS, "Title")


class Post(msgspec.Struct, array_like=True, rename="pascal", gc=False):
    """A question or an answer, by the dump's names. Names of users are never read.

    Attributes:
        row: its number in the file.
    """

    post_type_id: int
    id: int
    parent_id: int | None
    accepted_answer_id: int | None
    score: int
    view_count: int | None
    owner_user_id: int | None
    answer_count: int | None
    comment_count: int | None
    favorite_count: int | None
    creation_date: str
    body: str
    title: str | None
    tags: str | None
    last_edit_date: str | None
    last_activity_date: str | None
    closed_date: str | None
    community_owned_date: str | None
    content_license: str | None
    row: int = 0


_THREAD = {QUESTION: "Id", ANSWER: "ParentId"}
_NAMES = Post.__struct_encode_fields__[:-1]
_UNUSED_NAMES = ("OwnerDisplayName", "LastEditorUserId", "LastEditorDisplayName")
_PLAIN_NAMES = {"row Id=": "Id"} | {f" {name}=": name for name in (*_NAMES, *_UNUSED_NAMES)}
_INTEGERS, _TEXTS = _NAMES[: _NAMES.index("CreationDate")], _NAMES[_NAMES.index("CreationDate") :]


class Row(NamedTuple):
    """A row of the file.

    Attributes:
        attributes: with U+FFFD for each character that can't be there, of which `fault` tells.
        size: bytes from the first name to the last quote.
    """

    attributes: dict[str, str]
    size: int
    fault: Fault | None

    def number(self, name: str) -> int:
        """A number above 0 of up to 15 digits; 0 if the attribute is none."""
        value = self.attributes.get(name, "")
        return int(value) if value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS else 0

    def thread(self) -> int:
        """The id of the question that it belongs to; 0 if it is no question or answer, or doesn't say."""
        name = _THREAD.get(self.number("PostTypeId"))
        return self.number(name) if name and self.number("Id") else 0

    def post(self) -> Post | Fault:
        """What the row of a thread says; or the first thing that it lacks, or says in no way that can be read."""
        values = self.attributes
        integers = [values.get(name) for name in _INTEGERS]
        if not _are_integers("\0".join([value for value in integers if value is not None])):  # NUL is in no value
            wrong = next(name for name in _INTEGERS if name in values and not _are_integers(values[name]))
            return Fault("wrong_type", f"{wrong} is no integer")
        numbers = [None if value is None else int(value) for value in integers]
        for name in _OF_QUESTIONS if numbers[0] == QUESTION else _OF_ANSWERS:
            if name not in values:
                return Fault("missing_attribute", name)
        if not _is_date(values["CreationDate"]):
            return Fault("wrong_type", "CreationDate is no date and time")
        return msgspec.convert([*numbers, *map(values.get, _TEXTS)], Post)


class PostsXml:
    """What was fed of a file, or of a part of one that begins and ends between rows.

    Args:
        where: the file, for errors.
        start: the part's first byte in it; 0 with the file's head.
        is_last: whether the part has the file's end.
    """

    def __init__(self, where: str, start: int = 0, is_last: bool = True) -> None:
        self._where, self._is_last = where, is_last
        self._is_prolog = start == 0
        self._left, self._at = b"", start  # what was fed and isn't read yet; where in the file it begins

    def feed(self, block: bytes) -> Iterator[Row]:
        """Rows that the block completes, in file order.

        Raises:
            InputError: the file is none of posts, or broken (says at which byte).
        """
        self._left += block
        if self._is_prolog:
            self._pass_prolog()
            if self._is_prolog:
                return
        self._pass(len(self._left) - len(self._left.lstrip()))
        if self._left and not self._left.startswith(b"<"):
            self._refuse(0, "no part of a row")
        at, stop = 0, max(self._left.rfind(b"<"), 0)
        rows = _plain_rows(self._left[:stop])
        if rows is not None:
            yield from rows
        else:
            while at < stop:
                end = self._left.find(b"<", at + 1)
                yield self._row(at, end)
                at = end
        self._pass(stop)
        if len(self._left) > MOST_ROW_BYTES:
            self._refuse(0, f"where {MOST_ROW_BYTES:,} bytes begin that hold no whole row")

    def close(self) -> Iterator[Row]:
        """The last row of a part that others follow.

        Raises:
            InputError: the end is missing, or more follows it.
        """
        if self._is_prolog:
            self._refuse(0, _NO_HEAD)
        if not self._is_last:
            yield self._row(0, len(self._left))
        elif not self._left.startswith(b"</"):
            is_whole = self._left.rstrip().endswith(b"/>")
            at = self._at + (len(self._left) if is_whole else 0)
            what = f"it is cut off: after byte {at:,} comes no whole row and no </posts>"
            raise InputError(what, self._where, "fetch it again; its size is on its page")
        elif not _END.fullmatch(self._left):
            self._refuse(0, _NO_END)

    def _pass(self, size: int) -> None:
        self._left = self._left[size:]
        self._at += size

    def _pass_prolog(self) -> None:
        if self._left.startswith(_UTF16_BOMS):
            raise InputError("it is UTF-16", self._where, "convert it to UTF-8, which the dumps are in")
        match = _PROLOG.match(self._left)
        if match is None:
            if len(self._left) > _MOST_PROLOG_BYTES:
                self._refuse(0, _NO_HEAD)
            return
        if match["dtd"]:
            fix = f"take it out of the file: {_WITHOUT_DTD}"
            raise InputError("it has a DTD of its own, which no dump has", self._where, fix)
        encoding = _ENCODING.search(match[0])
        if encoding is not None and encoding[1].lower() not in (b"utf-8", b"utf8", b"us-ascii", b"ascii"):
            what = f"its encoding is {encoding[1].decode('ascii', 'replace')}"
            raise InputError(what, self._where, "convert it to UTF-8, which the dumps are in")
        self._is_prolog = False
        self._pass(match.end())
        if match["empty"]:  # which says the same as `<posts></posts>`
            self._left = b"</posts>" + self._left
            self._at -= len(b"</posts>")

    def _row(self, start: int, end: int) -> Row:
        """The row in these bytes of what is left."""
        row, fault = self._left[start:end], None
        if not _ROW.match(row):
            self._refuse(start, _NO_END if row.startswith(b"</") else "no part of a row")
        attributes, broken_at = _read(row)
        if broken_at is not None:
            text = row.decode("utf-8", "replace")
            attributes, still_broken_at = _read(_FORBIDDEN.sub("\ufffd", text).encode())
            if still_broken_at is not None:
                is_behind = broken_at < len(row) and row[:broken_at].rstrip().endswith(b"/>")
                self._refuse(start + broken_at, "no part of a row" if is_behind else "where a row is broken")
            is_utf8 = text.encode() == row
            fault = _NO_XML if is_utf8 else Fault("invalid_utf8", "a value is no UTF-8")
        return Row(attributes, len(row.rstrip()[len(b"<row") : -len(b"/>")].strip()), fault)

    def _refuse(self, at: int, what: str) -> NoReturn:
        shown = self._left[at : at + _SHOWN_BYTES].decode("utf-8", "replace")
        fix = "fetch the file again; if it is so at its source, correct it there"
        raise InputError(f"byte {self._at + at:,} is {what}: {shown!r}", self._where, fix)


def _plain_rows(rows: bytes) -> list[Row] | None:
    """Rows that are written as the dumps write them, without a parser: half the time. None if one isn't.

    Such a row is a line of known attributes, one space before each, their values in double quotes, with no characters
    but those that XML has, and no references but `_REFERENCES`.
    """
    if len(rows) > _MOST_PLAIN_BYTES:
        return None
    marked = np.frombuffer(bytearray(rows.translate(_MARKS)) + bytes(_WINDOW_BYTES), np.uint8)
    starts = np.flatnonzero(marked == _ROW_MARK).tolist()
    text = _unescaped(marked, len(rows))
    if text is None or "\ufffe" in text or "\uffff" in text:
        return None
    found, controls = list[Row](), 0
    for row, (start, stop) in zip(text.split(chr(_ROW_MARK))[1:], pairwise([*starts, len(rows)]), strict=True):
        parts = row.split(chr(_QUOTE_MARK))
        try:
            end = _PLAIN_ENDS[parts.pop()]
            attributes = dict(zip(map(_PLAIN_NAMES.__getitem__, parts[::2]), parts[1::2], strict=False))
        except KeyError:
            return None
        if 2 * len(attributes) != len(parts) or not rows.endswith(end, start, stop):
            return None
        controls += end.count(b"\n") + end.count(b"\r")
        found.append(Row(attributes, stop - start - len(b"<row ") - len(end) + len(b'"'), None))
    return found if controls == np.count_nonzero(np.frombuffer(rows, np.uint8) < ord(" ")) else None


def _unescaped(marked: NDArray[np.uint8], size: int) -> str | None:
    """The text of so many bytes; None if they are no UTF-8, or have other references. The bytes change."""
    at = np.flatnonzero(marked == ord("&"))
    windows = np.ndarray(size, "<u8", marked, strides=(1,))[at]
    is_kept, unread = np.ones(size, bool), len(at)
    for reference, character in _REFERENCES.items():
        found = at[windows & ((1 << 8 * len(reference)) - 1) == int.from_bytes(reference, "little")]
        marked[found] = ord(character)
        for offset in range(1, len(reference)):
            is_kept[found + offset] = False
        unread -= len(found)
    try:
        return None if unread else marked[:size][is_kept].tobytes().decode()
    except UnicodeDecodeError:
        return None


def _read(row: bytes) -> tuple[dict[str, str], int | None]:
    """The attributes of a row; where it stops to be one, None if it doesn't."""
    attributes: dict[str, str] = {}
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = lambda _, values: attributes.update(values)
    try:
        parser.Parse(row, True)
    except expat.ExpatError:
        unsound = _NO_REFERENCE.search(row)
        # expat says 0 if the row has no end, and if it has a reference to an entity.
        return attributes, min(parser.ErrorByteIndex or len(row), unsound.start() if unsound else len(row))
    return attributes, None

"""A Posts.xml, block by block, to its rows, and a row to a post. Memory: a block, and the longest row.

Between `<posts>` and `</posts>` stand empty elements `<row … />` and white space. No value has a `<` in it, so the file
is split there, and expat reads each row as an XML document of its own: it has no DTD, so no entities, and a row
that is no XML is rejected alone.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.parsers import expat

import msgspec

from pipeline_assets.corpus.readers.columns import Fault
from pipeline_assets.spine.errors import InputError

QUESTION, ANSWER = 1, 2
_MOST_ROW_BYTES = 16 << 20
_MOST_HEAD_BYTES = 1 << 16
_SHOWN_BYTES = 60
# A DOCTYPE without a DTD of its own declares nothing: it is passed over, and nothing is fetched.
_HEAD = re.compile(
    rb"""(?:\xef\xbb\xbf)?\s*
    (?:<\?xml\s+version\s*=\s*["'][0-9.]+["'](?:\s+encoding\s*=\s*["'](?:utf-?8|(?:us-)?ascii)["'])?
    (?:\s+standalone\s*=\s*["'][a-z]+["'])?\s*\?>\s*)?
    (?:<!--(?:(?!--).)*+-->\s*|<!DOCTYPE\s(?:[^\[\]<>"']|"[^"]*+"|'[^']*+')*+>\s*)*+
    <posts\s*>\s*(?=<)""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ROW, _END = re.compile(rb"<row(?=[\s/]).*/>\s*", re.DOTALL), re.compile(rb"</posts\s*>\s*")
_FORBIDDEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|&#(?:[0-9]+|x[0-9a-fA-F]+);")
_is_integer = re.compile("-?[0-9]{1,15}").fullmatch
_is_date = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}").match


class Post(msgspec.Struct, array_like=True, rename="pascal", gc=False):
    """A question or an answer, by the dump's names. Names of users are never read.

    Attributes:
        row: its number in the file.
    """

    post_type_id: int
    id: int
    parent_id: int | None
    creation_date: str
    body: str
    title: str | None
    tags: str | None
    score: int
    view_count: int | None
    answer_count: int | None
    comment_count: int | None
    favorite_count: int | None
    accepted_answer_id: int | None
    owner_user_id: int | None
    last_edit_date: str | None
    last_activity_date: str | None
    closed_date: str | None
    community_owned_date: str | None
    content_license: str | None
    row: int = 0


_NAMES = Post.__struct_encode_fields__[:-1]
_INTEGERS = [field.encode_name for field in msgspec.structs.fields(Post)[:-1] if field.type in (int, int | None)]


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
        """Return an attribute as a number above 0 of up to 15 digits; 0 if it is none."""
        value = self.attributes.get(name, "")
        return max(int(value), 0) if _is_integer(value) else 0

    def to_post(self) -> tuple[int, Post | Fault]:
        """Return the id of the row's question, 0 if none can be told, and the post or what is wrong with it."""
        values, kind = self.attributes, self.number("PostTypeId")
        name = {QUESTION: "Id", ANSWER: "ParentId"}.get(kind)
        thread = self.number(name) if name and self.number("Id") else 0
        if self.fault is not None or not thread:
            return 0, self.fault or Fault("missing_attribute", "no number in Id, PostTypeId or ParentId")
        for name in _INTEGERS:
            if name in values and not _is_integer(values[name]):
                return thread, Fault("wrong_type", f"{name} is no integer")
        for name in ("Score", "CreationDate", "Body", "Title"):
            if name not in values and (name != "Title" or kind == QUESTION):
                return thread, Fault("missing_attribute", name)
        if not _is_date(values["CreationDate"]):
            return thread, Fault("wrong_type", "CreationDate is no date and time")
        typed = values | {name: int(values[name]) for name in _INTEGERS if name in values}
        return thread, msgspec.convert([typed.get(name) for name in _NAMES], Post)


def read_rows(blocks: Iterable[bytes], where: str, start: int = 0, is_last: bool = True) -> Iterator[Row]:
    """Yield the rows of a file, or of a part of one that begins and ends between rows, in file order.

    Args:
        where: the file, for errors.
        start: the part's first byte in it; 0 with the file's head.
        is_last: whether the part has the file's end.
    Raises:
        InputError: the file is none of posts, has something other than rows (says at which byte), or is cut off.
    """
    left, at, has_head = b"", start, start > 0  # what isn't read yet, and where in the file it begins
    for block in blocks:
        left += block
        if not has_head:
            head = _HEAD.match(left)
            if head is None and len(left) > _MOST_HEAD_BYTES:
                break
            if head is None:
                continue
            has_head, left, at = True, left[head.end() :], head.end()
        *rows, last = left.split(b"<")[1:]
        for row in rows:
            yield _row(b"<" + row, where, at)
            at += len(row) + 1
        left = b"<" + last
        if len(left) > _MOST_ROW_BYTES:
            raise _refusal(f"where {_MOST_ROW_BYTES:,} bytes begin that hold no whole row", left, where, at)
    if not has_head:
        raise _refusal(
            "not the head of a Posts.xml in UTF-8: <?xml …?><posts>, without a DTD of its own", left, where, 0
        )
    if not is_last:
        yield _row(left, where, at)
    elif not left.startswith(b"</"):
        what = f"it is cut off: no </posts> follows the row at byte {at:,}"
        raise InputError(what, where, "fetch it again; its size is on its page")
    elif not _END.fullmatch(left):
        raise _refusal("not the end of a Posts.xml: </posts>", left, where, at)


def _row(row: bytes, where: str, at: int) -> Row:
    whole = _ROW.match(row)
    if whole is None or whole.end() < len(row):
        sound = whole.end() if whole else 0
        raise _refusal("no part of a whole row", row[sound:], where, at + sound)
    attributes, fault = _attributes(row), None
    if attributes is None:
        text = row.decode("utf-8", "replace")
        attributes = _attributes(_FORBIDDEN.sub("\ufffd", text).encode())
        if attributes is None:
            attributes, fault = {}, Fault("malformed_row", "it is no XML")
        elif text.encode() == row:
            fault = Fault("invalid_character", "one that XML does not have")
        else:
            fault = Fault("invalid_utf8", "a value is no UTF-8")
    return Row(attributes, len(row.rstrip()[len(b"<row") : -len(b"/>")].strip()), fault)


def _refusal(what: str, left: bytes, where: str, at: int) -> InputError:
    shown = left[:_SHOWN_BYTES].decode("utf-8", "replace")
    fix = "fetch the file again; if it is so at its source, correct it there"
    return InputError(f"byte {at:,} is {what}: {shown!r}", where, fix)


def _attributes(row: bytes) -> dict[str, str] | None:
    """Return the attributes of a row, with the names that it writes, of namespaces too; None if it is no XML."""
    attributes: dict[str, str] = {}
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = lambda _, values: attributes.update(values)
    try:
        parser.Parse(row, True)
    except expat.ExpatError:
        return None
    return attributes

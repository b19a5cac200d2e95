"""Rows and posts of a Posts.xml.

`<posts>` contains only empty elements `<row … />` and white space, and values contain no `<`. So each row is parsed as
an XML document of its own, without DTD or entities. Each malformed row is rejected. Memory: a block and the longest
row.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from xml.parsers import expat

import msgspec

from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.typed_values import convert

QUESTION, ANSWER = 1, 2
_MAX_ROW_BYTES = 16 << 20
_MAX_HEAD_BYTES = 1 << 16
_PREVIEW_BYTES = 60
# A DOCTYPE without an internal DTD declares nothing: it is skipped, and nothing is fetched.
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
    """Question or answer: attributes of its row, without user names and editor ids."""

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
    row: int = 0  # number in the file


_ATTRIBUTES = Post.__struct_encode_fields__[:-1]
_INTEGERS = [field.encode_name for field in msgspec.structs.fields(Post)[:-1] if field.type in (int, int | None)]


class PostRow(NamedTuple):
    """`<row … />` of a Posts.xml, with its attributes by name."""

    attributes: dict[str, str]  # U+FFFD replaces an invalid character, which `fault` reports
    size: int  # bytes from the first attribute name to the last quote
    fault: Fault | None

    def positive_integer(self, name: str) -> int:
        """Return an attribute of up to 15 digits; 0 if missing, negative or not a number."""
        value = self.attributes.get(name, "")
        return max(int(value), 0) if _is_integer(value) else 0

    def to_post(self) -> tuple[int, Post | Fault]:
        """Return the id of the post's question, and the post or the row's fault.

        The id is 0 if the row has a `fault`, is neither question nor answer, or lacks a valid own id or question id.
        """
        values, kind = self.attributes, self.positive_integer("PostTypeId")
        name = {QUESTION: "Id", ANSWER: "ParentId"}.get(kind)
        thread = self.positive_integer(name) if name and self.positive_integer("Id") else 0
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
        return thread, convert([typed.get(name) for name in _ATTRIBUTES], Post)


def read_rows(blocks: Iterable[bytes], where: str, start: int = 0, is_last_part: bool = True) -> Iterator[PostRow]:
    """Yield the rows of a Posts.xml, or of a part of it, in file order.

    `blocks` are the bytes of the part. The part begins at byte `start`: 0 or the start of a row. The last part
    (`is_last_part`) ends at the end of the file, any other part between two rows. Raise InputError, naming `where` and
    the byte, if the file is truncated or not a Posts.xml.
    """
    pending, offset, has_head = b"", start, start > 0  # unread bytes, and their offset in the file
    for block in blocks:
        pending += block
        if not has_head:
            head = _HEAD.match(pending)
            if head is None and len(pending) > _MAX_HEAD_BYTES:
                break
            if head is None:
                continue
            has_head, pending, offset = True, pending[head.end() :], head.end()
        *complete, last = pending.split(b"<")[1:]
        for row in complete:
            yield _parse_row(b"<" + row, where, offset)
            offset += len(row) + 1
        pending = b"<" + last
        if len(pending) > _MAX_ROW_BYTES:
            what = f"the start of {_MAX_ROW_BYTES:,} bytes without a complete row"
            raise _byte_error(what, pending, where, offset)
    if not has_head:
        what = "not the head of a Posts.xml in UTF-8: <?xml …?><posts>, without an internal DTD"
        raise _byte_error(what, pending, where, 0)
    if not is_last_part:
        yield _parse_row(pending, where, offset)
    elif not pending.startswith(b"</"):
        what = f"the file is truncated: no </posts> follows the row at byte {offset:,}"
        raise InputError(what, where, "fetch it again, and compare its size with the one on the download page")
    elif not _END.fullmatch(pending):
        raise _byte_error("not the end of a Posts.xml: </posts>", pending, where, offset)


def _parse_row(row: bytes, where: str, offset: int) -> PostRow:
    """Parse the bytes of exactly one row; raise InputError for any other bytes."""
    match = _ROW.match(row)
    if match is None or match.end() < len(row):
        length = match.end() if match else 0
        raise _byte_error("not part of a complete row", row[length:], where, offset + length)
    attributes, fault = _parse_attributes(row), None
    if attributes is None:
        text = row.decode("utf-8", "replace")
        attributes = _parse_attributes(_FORBIDDEN.sub("\ufffd", text).encode())
        if attributes is None:
            attributes, fault = {}, Fault("malformed_row", "it is no XML")
        elif text.encode() == row:
            fault = Fault("invalid_character", "one that XML does not have")
        else:
            fault = Fault("invalid_utf8", "a value is no UTF-8")
    return PostRow(attributes, len(row.rstrip()[len(b"<row") : -len(b"/>")].strip()), fault)


def _byte_error(what: str, content: bytes, where: str, offset: int) -> InputError:
    preview = content[:_PREVIEW_BYTES].decode("utf-8", "replace")
    fix = "fetch the file again; if its source has the same error, correct it there"
    return InputError(f"byte {offset:,} is {what}: {preview!r}", where, fix)


def _parse_attributes(row: bytes) -> dict[str, str] | None:
    """Return the attributes of a row by name; None if the row is not XML."""
    attributes: dict[str, str] = {}
    parser = expat.ParserCreate("utf-8")
    parser.StartElementHandler = lambda _, values: attributes.update(values)
    try:
        parser.Parse(row, True)
    except expat.ExpatError:
        return None
    return attributes

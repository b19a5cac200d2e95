"""Pages in wikiextractor's output files: `<doc …>` elements or JSON lines.

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
    Anarchism

    Anarchism is …

    </doc>

    {"id": "12", "revid": "99", "url": "…", "title": "Anarchism", "text": "Anarchism is …"}

Behaviour of wikiextractor 2.66 to 3.1.0, in six real files of three languages:

- The `<doc>` format is not XML: text and title may be unescaped, and a title may contain `"`. So a page is the text
  between two header lines, and a header line must match the whole pattern.
- 3.x passes text through `html.escape` by default; older versions and `--html-safe ''` do not.
- `<doc>` and JSON of 2.x repeat the title above the text; JSON of 3.x does not.
- AA/wiki_00 is empty if a page is larger than `--bytes`, or if the extraction found no pages (for example in a dump
  without line breaks). Any other empty file comes from an extraction that was killed.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from pipeline_assets.corpus.readers.faults import Fault, utf8_fault
from pipeline_assets.corpus.readers.json_lines import json_rows
from pipeline_assets.corpus.readers.lines import MAX_LINE_BYTES, line_blocks, split_lines
from pipeline_assets.corpus.readers.row_positions import format_row_position
from pipeline_assets.corpus.readers.source_folder import ByteRange
from pipeline_assets.spine.errors import InputError

PageFormat = Literal["doc", "json"]
_HEADER = re.compile(  # at the beginning of a line
    rb'<doc id="(?<![^\n]<doc id=")(?P<id>[^"\n]+)"(?: revid="(?P<revid>[^"\n]*)")? url="(?P<url>[^"\n]*)"'
    rb' title="(?P<title>[^\n]*?)"'
    rb'(?: language="[^"\n]*" revision="(?P<revision>[^"\n]*)")?>\r?\n'
)
_HEADER_PREFIX = b'<doc id="'
_FIRST_FILE = re.compile(r"(^|/)AA/wiki_00(\.\w+)?$")
_END = b"</doc>"
_END_LINE = re.compile(rb"^</doc>[ \t\r]*$", re.MULTILINE)
_KEY_TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "id": (str, int), "url": (str,), "title": (str,)}


class Page(msgspec.Struct, frozen=True):
    """Page as wikiextractor wrote it."""

    id: str
    revid: str | None
    url: str
    title: str
    text: str  # with the title line if the file repeats it
    attributes: dict[str, Any]  # additional keys of a JSON line


def read_pages(piece: ByteRange) -> Iterator[tuple[int, Page | Fault]]:
    """Yield each page that begins in a range, or its fault, with its byte offset.

    The last page is read to its end, even beyond the range. A `<doc>` page with invalid UTF-8 or an inner line `</doc>`
    (`unclear_end`) is a fault. A JSON line is a fault if `parse_row` finds one, or if a key is missing or mistyped.
    Raise InputError for an unclosed `<doc>` page, and for a first JSON line that lacks a key.
    """
    format_, blocks = open_extraction(piece)
    return _json_pages(piece, blocks) if format_ == "json" else _doc_pages(piece, blocks)


def open_extraction(piece: ByteRange) -> tuple[PageFormat, Iterator[tuple[int, bytes]]]:
    """Return a file's format, and its blocks of whole lines with their byte offsets.

    The blocks reach from the start of the range to the end of the file.
    """
    if piece.start > 0:
        _, first = next(line_blocks(piece.file), (0, b""))
        return _detect_format(first, piece), line_blocks(piece.file, piece.start)
    blocks = line_blocks(piece.file)
    head = next(blocks, (0, b""))
    return _detect_format(head[1], piece), itertools.chain([head], blocks)


def _detect_format(block: bytes, piece: ByteRange) -> PageFormat:
    """Detect a file's format from its first block; raise InputError if unknown."""
    beginning = block.lstrip()
    if beginning.startswith((b"{", b"[")):  # the reader of JSON lines rejects an array, with a fix
        return "json"
    path = piece.file.path
    header = _HEADER.search(block)
    if header is not None and header.start() == len(block) - len(beginning):
        return "doc"
    if not beginning:
        if _FIRST_FILE.search(path.as_posix()):
            return "doc"
        raise InputError("the file is empty, as after a killed extraction", path, "extract again")
    if beginning.startswith((b"<mediawiki", b"<?xml")):
        raise InputError("the file is a dump, not an extraction", path, "run wikiextractor on it, and read its output")
    first_line = ascii(beginning.split(b"\n", 1)[0][:60].decode("utf-8", "replace"))
    if beginning.startswith(_HEADER_PREFIX):
        fix = 'pass files whose pages begin with a line <doc id="…" url="…" title="…">'
        raise InputError(f"the first line, {first_line}, is not a header of wikiextractor", path, fix)
    what = f"the first line, {first_line}, is neither <doc id=…> nor JSON"
    raise InputError(what, path, "pass output of wikiextractor, written without --text")


def _doc_pages(piece: ByteRange, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Page | Fault]]:
    """Yield each `<doc>` page, or its fault, with its byte offset."""
    header: re.Match[bytes] | None = None
    begin = 0
    body: list[bytes] = []
    for offset, block in blocks:
        position = 0
        for match in _HEADER.finditer(block):
            if header is not None:
                content = b"".join([*body, block[position : match.start()]])
                yield begin, _doc_page(header, content, False, piece, begin)
            if piece.stop is not None and offset + match.start() >= piece.stop:
                return
            header, begin, body, position = match, offset + match.start(), [], match.end()
        if header is None:
            if piece.stop is not None and offset + len(block) >= piece.stop:
                return
            continue
        body.append(block[position:])
        if offset + len(block) - begin > MAX_LINE_BYTES:
            what = f"the page at byte {begin:,} is longer than {MAX_LINE_BYTES >> 20} MiB"
            raise InputError(what, piece.file.path, "extract again: no page is this long")
    if header is not None:
        yield begin, _doc_page(header, b"".join(body), True, piece, begin)


def _doc_page(header: re.Match[bytes], body: bytes, is_last_page: bool, piece: ByteRange, offset: int) -> Page | Fault:
    """Parse a `<doc>` page; raise InputError if its `</doc>` is missing."""
    closed = body.rstrip()
    is_closed = closed == _END or closed.endswith(b"\n" + _END)
    content = closed.removesuffix(_END) if is_closed else body
    has_end_inside = _END in content and _END_LINE.search(content) is not None
    if not is_closed and (is_last_page or not has_end_inside):
        what = "the page is not closed" + (": the file is truncated" if is_last_page else " before the next")
        where = f"{piece.file.path} {format_row_position(piece.file.name, offset, piece.file)}"
        raise InputError(what, where, "extract again, or omit the file in `files`")
    if has_end_inside:
        return Fault("unclear_end", "a line `</doc>` inside the page")
    if header[0].endswith(b"\r\n"):  # an extraction on Windows
        content = content.replace(b"\r\n", b"\n")
    try:
        id_, url, title = (header[name].decode("utf-8") for name in ("id", "url", "title"))
        revid = (header["revid"] or header["revision"] or b"").decode("utf-8")
        return Page(id_, revid or None, url, title, content.decode("utf-8"), {})
    except UnicodeDecodeError as error:
        return utf8_fault(error)


def _json_pages(piece: ByteRange, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Page | Fault]]:
    """Yield each page of JSON lines, or its fault, with its byte offset."""
    is_first = piece.start == 0
    for offset, row in json_rows(piece, split_lines(blocks, piece.stop)):
        if is_first and isinstance(row, dict) and not row.keys() >= _KEY_TYPES.keys():
            missing = ", ".join(key for key in _KEY_TYPES if key not in row)
            what = f"keys not found in the first line: {missing}; it has {', '.join(row) or 'none'}"
            raise InputError(what, piece.file.path, "pass JSON lines of wikiextractor, or read them as local files")
        is_first = False
        yield offset, row if isinstance(row, Fault) else _json_page(row)


def _json_page(row: dict[str, Any]) -> Page | Fault:
    values = {key: row.pop(key, None) for key in _KEY_TYPES}
    if values["text"] is None:
        return Fault("no_text", "null")
    for name, value in values.items():
        if type(value) not in _KEY_TYPES[name]:
            return Fault("wrong_type", f"{name} is {type(value).__name__}")
    revid, id_ = row.pop("revid", None), values.pop("id")
    return Page(str(id_), None if revid in (None, "") else str(revid), attributes=row, **values)


def count_pages(piece: ByteRange) -> int:
    """Count the lines in a range that begin a page: `<doc>` headers or JSON lines."""
    format_, blocks = open_extraction(piece)
    lines = (line for _, line in split_lines(blocks, piece.stop))
    if format_ == "json":
        return sum(bool(line.strip()) for line in lines)
    return sum(line.startswith(_HEADER_PREFIX) and b'" url="' in line and b'" title="' in line for line in lines)

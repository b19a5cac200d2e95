"""wikiextractor's files, of `<doc …>` elements or JSON lines as what they begin with tells → Documents, a page each.

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
    Anarchism

    Anarchism is …

    </doc>

    {"id": "12", "revid": "99", "url": "…", "title": "Anarchism", "text": "Anarchism is …"}

Facts that shape the code (wikiextractor 2.66 to 3.1.0, six real files in three languages):

- The `<doc>` format is no XML: nothing says that text and title are escaped, a `"` may stand in a title. So a page is
  what lies between two header lines, and a line is a header if it has the whole shape.
- 3.x writes text through `html.escape` by default, older versions and `--html-safe ''` don't.
- `<doc>` repeats the title above the text, JSON of 2.x does, JSON of 3.x doesn't.
- An extraction that found no page, as of a dump without line breaks, is an empty file AA/wiki_00, and ends well. With
  pages larger than `--bytes` (0, say) AA/wiki_00 is empty too, and others follow. An empty file of another name is what
  an extraction leaves that was killed.

What becomes of a page:

- text: the title, a blank line, and the page without newlines at both ends (up to 14 are left where wikiextractor
  removed sections), whether or not the file repeats the title above it; with `title: none` the page alone. `title` of
  `meta` has the title too.
- text that is what `html.escape` writes (`AT&amp;T`, and nowhere a bare `&`, `<` or `>`) is unescaped once, which loses
  nothing; other text, and all markup that wikiextractor left (`<nowiki>`, `<ref name=…>`, `__NOEDITSECTION__`), stays
  as it came. Titles are escaped as in the dump, and unescaped.
- doc_id: `wikipedia:<language>:<page id>`, the same for every version of a page. The language is that of the url.
- a page with nothing but its title is rejected, `title_only`: what redirects and pages made of templates come to, a
  half of some real files.
- revid in `meta` is what the file says. wikiextractor 3.1 writes there the last id before the text, which is the id of
  the editor where the dump names one.
"""

import datetime
import html
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, Self

import msgspec
import pydantic

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.readers.column_recipe import Patterns
from pipeline_assets.corpus.readers.columns import Fault, utf8_fault
from pipeline_assets.corpus.readers.lines import MAX_LINE_BYTES, format_row, json_rows, line_blocks, read_lines
from pipeline_assets.corpus.readers.source_folder import ByteRange
from pipeline_assets.spine.errors import IN_RECIPE, InputError, key
from pipeline_assets.spine.ledger import Reject
from pipeline_assets.spine.section import Option, RecipeSection

Format = Literal["doc", "json"]
_HEADER = re.compile(  # at the beginning of a line
    rb'<doc id="(?<![^\n]<doc id=")(?P<id>[^"\n]+)"(?: revid="(?P<revid>[^"\n]*)")? url="(?P<url>[^"\n]*)"'
    rb' title="(?P<title>[^\n]*?)"'
    rb'(?: language="[^"\n]*" revision="(?P<revision>[^"\n]*)")?>\r?\n'
)
_PREFIX = b'<doc id="'
_FIRST_FILE = re.compile(r"(^|/)AA/wiki_00(\.\w+)?$")
_END = b"</doc>"
_END_LINE = re.compile(rb"^</doc>[ \t\r]*$", re.MULTILINE)
_TYPES: dict[str, tuple[type, ...]] = {"text": (str,), "id": (str, int), "url": (str,), "title": (str,)}
_URL = re.compile(r"https?://(?P<language>[a-z0-9-]+)\.(?:m\.)?wikipedia\.org/")
_TITLE_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#039;", "'"), ("&amp;", "&"))
# From when on text was offered under which licence: Wikimedia's licensing update of 2009 and terms of use of 2023.
_LICENCES = (
    (datetime.date(2023, 6, 7), "cc-by-sa-4.0"),
    (datetime.date(2009, 6, 15), "cc-by-sa-3.0"),
    (datetime.date.min, "gfdl-1.2-or-later"),
)


class Page(msgspec.Struct, frozen=True):
    """A page as the file has it.

    Attributes:
        text: with the title line above it, where the file repeats that.
        attributes: further keys of a JSON line.
    """

    id: str
    revid: str | None
    url: str
    title: str
    text: str
    attributes: dict[str, Any]


def pages(piece: ByteRange) -> Iterator[tuple[int, Page | Fault]]:
    """(place of its first line, page or fault) of the pages that begin in the range, each to its end.

    Faults: those of `json_rows` and of missing or mistyped keys; `unclear_end`: a `<doc>` page with a line `</doc>` in
    its midst, which may be text, or what is left where files were joined; bytes that are no UTF-8.

    Raises:
        InputError: from `open_extraction`, or the file is cut off: a page isn't closed where the file ends or the next
            page begins.
    """
    kind, blocks = open_extraction(piece)
    return _json_pages(piece, blocks) if kind == "json" else _doc_pages(piece, blocks)


def open_extraction(piece: ByteRange) -> tuple[Format, Iterator[tuple[int, bytes]]]:
    """Which of the two formats the file has, and its blocks of lines from the range on, see `line_blocks`.

    Raises:
        InputError: neither, or it is empty and not the first of an extraction, or it can't be read.
    """
    if piece.start > 0:
        _, first = next(line_blocks(piece.file), (0, b""))
        return _format(first, piece), line_blocks(piece.file, piece.start)
    blocks = line_blocks(piece.file)
    head = next(blocks, (0, b""))
    return _format(head[1], piece), itertools.chain([head], blocks)


def _format(block: bytes, piece: ByteRange) -> Format:
    beginning = block.lstrip()
    if beginning.startswith((b"{", b"[")):  # an array is refused by its reader, which knows the cure
        return "json"
    path = piece.file.path
    header = _HEADER.search(block)
    if header is not None and header.start() == len(block) - len(beginning):
        return "doc"
    if not beginning:
        if _FIRST_FILE.search(path.as_posix()):
            return "doc"
        raise InputError("it is empty, as a killed extraction leaves its last file", path, "extract again")
    if beginning.startswith((b"<mediawiki", b"<?xml")):
        raise InputError("it is a dump, not an extraction", path, "run wikiextractor on it, and read its output")
    first_line = ascii(beginning.split(b"\n", 1)[0][:60].decode("utf-8", "replace"))
    if beginning.startswith(_PREFIX):
        fix = 'give files whose pages begin with <doc id="…" url="…" title="…">, on a line of its own'
        raise InputError(f"its first line, {first_line}, is no header of wikiextractor", path, fix)
    what = f"its first line, {first_line}, is neither <doc id=…> nor JSON"
    raise InputError(what, path, "give what wikiextractor writes, without --text")


def _doc_pages(piece: ByteRange, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Page | Fault]]:
    """A page is a header line, and all up to the next one or the end of the file."""
    header: re.Match[bytes] | None = None
    begin = 0
    body: list[bytes] = []
    for place, block in blocks:
        position = 0
        for match in _HEADER.finditer(block):
            if header is not None:
                content = b"".join([*body, block[position : match.start()]])
                yield begin, _doc_page(header, content, False, piece, begin)
            if piece.stop is not None and place + match.start() >= piece.stop:
                return
            header, begin, body, position = match, place + match.start(), [], match.end()
        if header is None:
            if piece.stop is not None and place + len(block) >= piece.stop:
                return
            continue
        body.append(block[position:])
        if place + len(block) - begin > MAX_LINE_BYTES:
            what = f"the page at byte {begin:,} is longer than {MAX_LINE_BYTES >> 20} MiB"
            raise InputError(what, piece.file.path, "extract again: that is no page")
    if header is not None:
        yield begin, _doc_page(header, b"".join(body), True, piece, begin)


def _doc_page(header: re.Match[bytes], body: bytes, is_last: bool, piece: ByteRange, place: int) -> Page | Fault:
    """
    Raises:
        InputError: the page isn't closed.
    """
    closed = body.rstrip()
    is_closed = closed == _END or closed.endswith(b"\n" + _END)
    content = closed.removesuffix(_END) if is_closed else body
    has_end_inside = _END in content and _END_LINE.search(content) is not None
    if not is_closed and (is_last or not has_end_inside):
        what = "this page isn't closed, the file is cut off" if is_last else "this page isn't closed before the next"
        where = f"{piece.file.path} {format_row(piece.file.name, place, piece.file)}"
        raise InputError(what, where, "extract again, or leave the file out")
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
    is_first = piece.start == 0
    for place, row in json_rows(piece, read_lines(blocks, piece.stop)):
        if is_first and isinstance(row, dict) and not row.keys() >= _TYPES.keys():
            missing = ", ".join(key for key in _TYPES if key not in row)
            what = f"its first line has no {missing}; it has {', '.join(row) or 'nothing'}"
            raise InputError(what, piece.file.path, "give wikiextractor's JSON lines; others are read as local files")
        is_first = False
        yield place, row if isinstance(row, Fault) else _json_page(row)


def _json_page(row: dict[str, Any]) -> Page | Fault:
    values = {key: row.pop(key, None) for key in _TYPES}
    if values["text"] is None:
        return Fault("no_text", "null")
    for name, value in values.items():
        if type(value) not in _TYPES[name]:
            return Fault("wrong_type", f"{name} is {type(value).__name__}")
    revid, id_ = row.pop("revid", None), values.pop("id")
    return Page(str(id_), None if revid in (None, "") else str(revid), attributes=row, **values)


def count_pages(piece: ByteRange) -> int:
    """Lines that begin a `<doc>` element, or lines of JSON, that begin in the range."""
    kind, blocks = open_extraction(piece)
    lines = (line for _, line in read_lines(blocks, piece.stop))
    if kind == "json":
        return sum(bool(line.strip()) for line in lines)
    return sum(line.startswith(_PREFIX) and b'" url="' in line and b'" title="' in line for line in lines)


class WikipediaRecipe(RecipeSection):
    """Extractions of Wikipedia; the licence is that of the dump's date, or said outright: exactly one of the two.

    Attributes:
        language: of pages whose url has no host (`?curid=12`), as in the name of the wiki; others must agree with it.
        title: whether a Document begins with it, as a thread does.
    """

    files: Patterns = ("**/wiki_*",)
    source: str
    domain: Annotated[str, Option("What kind of text.")] = "encyclopedia"
    language: Annotated[str | None, Option("Where urls don't say it, such as en.")] = None
    dump_date: Annotated[str | None, Option("YYYY-MM-DD, in the dump's name: tells the licence.")] = None
    license_tag: Annotated[str | None, Option("Tag, such as cc-by-sa-4.0.", "license")] = None
    title: Literal["first_line", "none"] = "first_line"

    @pydantic.model_validator(mode="after")
    def _has_one_licence(self) -> Self:
        if (self.dump_date is None) == (self.license_tag is None):
            raise ValueError(f"give exactly one of {key('dump_date')}, {key('license_tag')}")
        return self

    @pydantic.field_validator("dump_date")
    @classmethod
    def _is_a_date(cls, dump_date: str | None) -> str | None:
        try:
            if dump_date is not None and datetime.date.fromisoformat(dump_date).isoformat() != dump_date:
                raise ValueError
        except ValueError:
            raise ValueError("write it as YYYY-MM-DD") from None
        return dump_date

    def licence(self) -> tuple[str, str]:
        """(tag, what it rests on)."""
        if self.license_tag is not None:
            return self.license_tag, "recipe"
        assert self.dump_date is not None, "checked above"
        dumped = datetime.date.fromisoformat(self.dump_date)
        return next(tag for since, tag in _LICENCES if dumped >= since), f"date: {self.dump_date}"


def read_wikipedia(piece: ByteRange, recipe: WikipediaRecipe) -> Iterator[Document | Reject]:
    """A Document or a Reject for every page that begins in the range, in file order, at the place of its first line.

    Raises:
        InputError: the file can't be trusted, see `pages`; a page of another wiki than Wikipedia or than the recipe's,
            or whose language nobody says.
    """
    name = piece.file.name
    licence = recipe.licence()
    for place, page in pages(piece):
        document = page if isinstance(page, Fault) else _document(page, recipe, licence, piece, place)
        yield document.rejected(name, place) if isinstance(document, Fault) else document


def _document(
    page: Page, recipe: WikipediaRecipe, licence: tuple[str, str], piece: ByteRange, place: int
) -> Document | Fault:
    body = _body(page)
    if not body.strip():
        return Fault("title_only", page.title)
    title = _unescaped_title(page.title)
    first = " ".join(title.split()) if recipe.title == "first_line" else ""
    language = _language(page.url, recipe.language, piece, place)
    columns = {"title": title, "url": page.url, "language": language, "revid": page.revid}
    return Document(
        text="\n\n".join(filter(None, (first, _unescaped(body)))),
        source=recipe.source,
        domain=recipe.domain,
        doc_id=f"wikipedia:{language}:{page.id}",
        license_tag=licence[0],
        created_at="",
        meta=Meta.from_mapping(piece.file.name, place, page.attributes | columns, licence[1]),
    )


def _body(page: Page) -> str:
    if page.text.rstrip() == page.title or page.text.startswith(f"{page.title}\n\n"):
        return page.text[len(page.title) :].strip("\n")
    return page.text.strip("\n")


def _unescaped(text: str) -> str:
    if "&" not in text:
        return text
    plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return plain if html.escape(plain, quote=False) == text else text


def _unescaped_title(title: str) -> str:
    for entity, character in _TITLE_ENTITIES if "&" in title else ():
        title = title.replace(entity, character)
    return title


def _language(url: str, language: str | None, piece: ByteRange, place: int) -> str:
    match = _URL.match(url)
    if match is not None and language in (None, match["language"]):
        return match["language"]
    if match is None and "://" not in url and language is not None:
        return language
    where = f"{piece.file.path} {format_row(piece.file.name, place, piece.file)}"
    if match is not None:
        wanted = key("language", "the recipe's `{}`,")
        what = f"the url {url} is of another wiki than {wanted} {language}"
        raise InputError(what, where, f"correct {key('language')}, or leave the file out")
    if "://" in url:
        raise InputError(f"the url {url} is not of Wikipedia", where, "read such pages as local files")
    raise InputError(f"the url {url} doesn't say the language", where, f"set {key('language', IN_RECIPE)}")

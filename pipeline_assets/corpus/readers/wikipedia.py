"""Output files of wikiextractor → one Document per page.

A file consists of `<doc …>` elements or of JSON lines; its first bytes show which.

    <doc id="12" url="https://en.wikipedia.org/wiki?curid=12" title="Anarchism">
    Anarchism

    Anarchism is …

    </doc>

    {"id": "12", "revid": "99", "url": "…", "title": "Anarchism", "text": "Anarchism is …"}

Facts that shape the code (wikiextractor 2.66 to 3.1.0, six real files in three languages):

- The `<doc>` format is not XML: text and title may be unescaped, and a title may contain `"`. So a page is the text
  between two header lines, and a header line must match the whole pattern.
- 3.x passes text through `html.escape` by default; older versions and `--html-safe ''` do not.
- `<doc>` and JSON of 2.x repeat the title above the text; JSON of 3.x does not.
- An extraction without pages (for example of a dump without line breaks) succeeds and consists of one empty file,
  AA/wiki_00. If pages are larger than `--bytes`, AA/wiki_00 is empty too and other files follow. An empty file with
  another name comes from an extraction that was killed.

Conversion of a page:

- text: the title, a blank line, and the page without leading and trailing newlines (up to 14 remain where wikiextractor
  removed sections), whether or not the file repeats the title; with `title: none`, the page alone. The title is also in
  `meta`.
- Text is unescaped once if it is output of `html.escape` (`AT&amp;T`, and no bare `&`, `<` or `>`), which loses
  nothing. Other text and remaining markup (`<nowiki>`, `<ref name=…>`, `__NOEDITSECTION__`) are unchanged. Titles are
  escaped as in the dump, and are unescaped.
- doc_id: `wikipedia:<language>:<page id>`, equal for all versions of a page. The language comes from the url.
- A page that consists of its title is rejected as `title_only`. These are redirects and pages of templates only, half
  of the pages in some real files.
- revid in `meta` is copied from the file. wikiextractor 3.1 writes the last id before the text there, which is the id
  of the editor if the dump names one.
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
# Start dates of the licences: Wikimedia's licensing update of 2009 and terms of use of 2023.
_LICENCES = (
    (datetime.date(2023, 6, 7), "cc-by-sa-4.0"),
    (datetime.date(2009, 6, 15), "cc-by-sa-3.0"),
    (datetime.date.min, "gfdl-1.2-or-later"),
)


class Page(msgspec.Struct, frozen=True):
    """A page as stored in the file.

    Attributes:
        text: Text, with the title line if the file repeats it.
        attributes: Additional keys of a JSON line.

    """

    id: str
    revid: str | None
    url: str
    title: str
    text: str
    attributes: dict[str, Any]


def pages(piece: ByteRange) -> Iterator[tuple[int, Page | Fault]]:
    """Yield the pages that begin in the range, or their faults, with byte offsets.

    Pages are read to their ends. Faults: those of `json_rows`; missing or mistyped keys; invalid UTF-8; and
    `unclear_end`, a `<doc>` page that contains a line `</doc>`, which may be text or a trace of concatenated files.

    Raises:
        InputError: From `open_extraction`, or a page is not closed before the next page or the end of the file.

    """
    format_, blocks = open_extraction(piece)
    return _json_pages(piece, blocks) if format_ == "json" else _doc_pages(piece, blocks)


def open_extraction(piece: ByteRange) -> tuple[Format, Iterator[tuple[int, bytes]]]:
    """Return the format of the file, and its blocks of lines from the range on.

    Raises:
        InputError: The format is unknown, the file is empty and not the first of an extraction, or it cannot be read.

    """
    if piece.start > 0:
        _, first = next(line_blocks(piece.file), (0, b""))
        return _detect_format(first, piece), line_blocks(piece.file, piece.start)
    blocks = line_blocks(piece.file)
    head = next(blocks, (0, b""))
    return _detect_format(head[1], piece), itertools.chain([head], blocks)


def _detect_format(block: bytes, piece: ByteRange) -> Format:
    """Return the format of a file by the first bytes of its first block of lines."""
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
    if beginning.startswith(_PREFIX):
        fix = 'pass files whose pages begin with a line <doc id="…" url="…" title="…">'
        raise InputError(f"the first line, {first_line}, is not a header of wikiextractor", path, fix)
    what = f"the first line, {first_line}, is neither <doc id=…> nor JSON"
    raise InputError(what, path, "pass output of wikiextractor, written without --text")


def _doc_pages(piece: ByteRange, blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Page | Fault]]:
    """Yield the pages of a `<doc>` file.

    A page is a header line and the text up to the next header or the end.
    """
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


def _doc_page(header: re.Match[bytes], body: bytes, is_last: bool, piece: ByteRange, offset: int) -> Page | Fault:
    """Parse a `<doc>` page; raise InputError if it is not closed."""
    closed = body.rstrip()
    is_closed = closed == _END or closed.endswith(b"\n" + _END)
    content = closed.removesuffix(_END) if is_closed else body
    has_end_inside = _END in content and _END_LINE.search(content) is not None
    if not is_closed and (is_last or not has_end_inside):
        what = "the page is not closed: the file is truncated" if is_last else "the page is not closed before the next"
        where = f"{piece.file.path} {format_row(piece.file.name, offset, piece.file)}"
        raise InputError(what, where, "extract again, or exclude the file")
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
    """Yield the pages of JSON lines, after checking the keys of the first line."""
    is_first = piece.start == 0
    for offset, row in json_rows(piece, read_lines(blocks, piece.stop)):
        if is_first and isinstance(row, dict) and not row.keys() >= _TYPES.keys():
            missing = ", ".join(key for key in _TYPES if key not in row)
            what = f"keys not found in the first line: {missing}; it has {', '.join(row) or 'none'}"
            raise InputError(what, piece.file.path, "pass JSON lines of wikiextractor, or read them as local files")
        is_first = False
        yield offset, row if isinstance(row, Fault) else _json_page(row)


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
    """Count the `<doc>` headers or JSON lines that begin in the range."""
    format_, blocks = open_extraction(piece)
    lines = (line for _, line in read_lines(blocks, piece.stop))
    if format_ == "json":
        return sum(bool(line.strip()) for line in lines)
    return sum(line.startswith(_PREFIX) and b'" url="' in line and b'" title="' in line for line in lines)


class WikipediaRecipe(RecipeSection):
    """Extractions of Wikipedia.

    Exactly one of `dump_date`, which determines the licence, and `license_tag` must be set.

    Attributes:
        language: Language of pages whose url has no host (`?curid=12`), as in the name of the wiki; other urls must
            agree.
        title: Whether the text of a Document begins with the title.

    """

    files: Patterns = ("**/wiki_*",)
    source: str
    domain: Annotated[str, Option("Domain label of the documents.")] = "encyclopedia"
    language: Annotated[str | None, Option("Language if urls do not contain it, such as en.")] = None
    dump_date: Annotated[str | None, Option("Date of the dump, YYYY-MM-DD; sets the licence.")] = None
    license_tag: Annotated[str | None, Option("Licence tag, such as cc-by-sa-4.0.", "license")] = None
    title: Literal["first_line", "none"] = "first_line"

    @pydantic.model_validator(mode="after")
    def _check_licence(self) -> Self:
        if (self.dump_date is None) == (self.license_tag is None):
            raise ValueError(f"set exactly one of {key('dump_date')}, {key('license_tag')}")
        return self

    @pydantic.field_validator("dump_date")
    @classmethod
    def _check_date(cls, dump_date: str | None) -> str | None:
        try:
            if dump_date is not None and datetime.date.fromisoformat(dump_date).isoformat() != dump_date:
                raise ValueError
        except ValueError:
            raise ValueError("write the date as YYYY-MM-DD") from None
        return dump_date

    def licence(self) -> tuple[str, str]:
        """Return the licence tag and the evidence for it."""
        if self.license_tag is not None:
            return self.license_tag, "recipe"
        assert self.dump_date is not None, "checked above"
        dumped = datetime.date.fromisoformat(self.dump_date)
        return next(tag for since, tag in _LICENCES if dumped >= since), f"date: {self.dump_date}"


def read_wikipedia(piece: ByteRange, recipe: WikipediaRecipe) -> Iterator[Document | Reject]:
    """Yield a Document or a Reject for every page that begins in the range.

    They are in file order. The position of a page is the byte offset of its first line.

    Raises:
        InputError: The file is unusable (see `pages`); or a page belongs to another wiki than Wikipedia or than the
            recipe's language, or its language is unknown.

    """
    name = piece.file.name
    licence = recipe.licence()
    for offset, page in pages(piece):
        document = page if isinstance(page, Fault) else _document(page, recipe, licence, piece, offset)
        yield document.to_reject(name, offset) if isinstance(document, Fault) else document


def _document(
    page: Page, recipe: WikipediaRecipe, licence: tuple[str, str], piece: ByteRange, offset: int
) -> Document | Fault:
    """Convert a page to a Document; return a fault if it has no text."""
    body = _body(page)
    if not body.strip():
        return Fault("title_only", page.title)
    title = _unescape_title(page.title)
    first = " ".join(title.split()) if recipe.title == "first_line" else ""
    language = _language(page.url, recipe.language, piece, offset)
    columns = {"title": title, "url": page.url, "language": language, "revid": page.revid}
    return Document(
        text="\n\n".join(filter(None, (first, _unescape(body)))),
        source=recipe.source,
        domain=recipe.domain,
        doc_id=f"wikipedia:{language}:{page.id}",
        license_tag=licence[0],
        created_at="",
        meta=Meta.from_mapping(piece.file.name, offset, page.attributes | columns, licence[1]),
    )


def _body(page: Page) -> str:
    """Return the text of a page without the repeated title and without outer newlines."""
    if page.text.rstrip() == page.title or page.text.startswith(f"{page.title}\n\n"):
        return page.text[len(page.title) :].strip("\n")
    return page.text.strip("\n")


def _unescape(text: str) -> str:
    """Unescape a text once if `html.escape` would restore it exactly."""
    if "&" not in text:
        return text
    plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return plain if html.escape(plain, quote=False) == text else text


def _unescape_title(title: str) -> str:
    """Replace the five entities that MediaWiki writes in titles."""
    for entity, character in _TITLE_ENTITIES if "&" in title else ():
        title = title.replace(entity, character)
    return title


def _language(url: str, language: str | None, piece: ByteRange, offset: int) -> str:
    """Return the language of a page according to its url, or else to the recipe."""
    match = _URL.match(url)
    if match is not None and language in (None, match["language"]):
        return match["language"]
    if match is None and "://" not in url and language is not None:
        return language
    where = f"{piece.file.path} {format_row(piece.file.name, offset, piece.file)}"
    if match is not None:
        expected = key("language", "the recipe's `{}`,")
        what = f"the url {url} belongs to another wiki than {expected} {language}"
        raise InputError(what, where, f"correct {key('language')}, or exclude the file")
    if "://" in url:
        raise InputError(f"the url {url} is not on Wikipedia", where, "read such pages as local files")
    raise InputError(f"the url {url} has no language", where, f"set {key('language', IN_RECIPE)}")

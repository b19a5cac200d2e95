"""Pages that wikiextractor wrote → Documents.

- The text is the title, a blank line, and the page without outer newlines; with `title: none`, the page alone. The
  title is also in `meta`.
- If page text looks like the output of `html.escape`, with entities (`AT&amp;T`) but no bare `&`, `<` or `>`, it is
  unescaped once. Other text and remaining markup (`<nowiki>`, `<ref name=…>`, `__NOEDITSECTION__`) are unchanged.
  Titles are always unescaped.
- doc_id: `wikipedia:<language>:<page id>`, equal for all versions of a page. The language comes from the url, or from
  the recipe if the url has no host.
- A page without text other than its title is rejected as `title_only`. Such pages are redirects, or contain only
  templates.
- `revid` in `meta` is copied from the file. With wikiextractor 3.1, it is the editor's id if the dump names an editor.
"""

import datetime
import html
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

import pydantic

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.readers.faults import Fault
from pipeline_assets.corpus.readers.row_positions import format_row_position
from pipeline_assets.corpus.readers.source_folder import ByteRange
from pipeline_assets.corpus.readers.wikipedia_pages import Page, read_pages
from pipeline_assets.spine.command_option import Option
from pipeline_assets.spine.errors import InputError
from pipeline_assets.spine.key_types import Patterns
from pipeline_assets.spine.rejects import Reject
from pipeline_assets.spine.section import RecipeSection

_URL = re.compile(r"https?://(?P<language>[a-z0-9-]+)\.(?:m\.)?wikipedia\.org/")
_TITLE_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#039;", "'"), ("&amp;", "&"))
# Start dates of the licences: Wikimedia's licensing update of 2009 and terms of use of 2023.
_LICENCES = (
    (datetime.date(2023, 6, 7), "cc-by-sa-4.0"),
    (datetime.date(2009, 6, 15), "cc-by-sa-3.0"),
    (datetime.date.min, "gfdl-1.2-or-later"),
)


class WikipediaRecipe(RecipeSection):
    """Output files of wikiextractor for a dump of Wikipedia, and their conversion.

    Exactly one of `license_tag` and `dump_date` must be set; a date determines the licence.

    Attributes:
        language: Language, such as `en`, of pages whose url has no host (`?curid=12`). If set, urls with a host must
            agree.
        title: `first_line` if the text of a Document begins with the title, otherwise `none`.
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
            raise ValueError("the licence must have one source; set exactly one of `dump_date`, `license_tag`")
        return self

    @pydantic.field_validator("dump_date")
    @classmethod
    def _check_date(cls, dump_date: str | None) -> str | None:
        try:
            if dump_date is not None and datetime.date.fromisoformat(dump_date).isoformat() != dump_date:
                raise ValueError
        except ValueError:
            raise ValueError(f"must be a date YYYY-MM-DD, got {dump_date!r}") from None
        return dump_date

    def licence(self) -> tuple[str, str]:
        """Return the licence tag and the evidence for it."""
        if self.license_tag is not None:
            return self.license_tag, "recipe"
        assert self.dump_date is not None, "checked above"
        dumped = datetime.date.fromisoformat(self.dump_date)
        return next(tag for since, tag in _LICENCES if dumped >= since), f"date: {self.dump_date}"


def read_wikipedia(piece: ByteRange, recipe: WikipediaRecipe) -> Iterator[Document | Reject]:
    """Yield a Document or a Reject for each page that begins in a range, in order.

    The position of a page is the byte offset of its first line. A page with text raises InputError if its url is not on
    Wikipedia, if url and recipe state different languages, or if neither states a language.
    """
    name = piece.file.name
    licence = recipe.licence()
    for offset, page in read_pages(piece):
        document = page if isinstance(page, Fault) else _build_document(page, recipe, licence, piece, offset)
        yield document.to_reject(name, offset) if isinstance(document, Fault) else document


def _build_document(
    page: Page, recipe: WikipediaRecipe, licence: tuple[str, str], piece: ByteRange, offset: int
) -> Document | Fault:
    """Convert a page to a Document; return a fault for a page with only a title."""
    body = _page_body(page)
    if not body.strip():
        return Fault("title_only", page.title)
    title = _unescape_title(page.title)
    first = " ".join(title.split()) if recipe.title == "first_line" else ""
    language = _page_language(page.url, recipe.language, piece, offset)
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


def _page_body(page: Page) -> str:
    """Return a page's text without outer newlines and without the repeated title."""
    if page.text.rstrip() == page.title or page.text.startswith(f"{page.title}\n\n"):
        return page.text[len(page.title) :].strip("\n")
    return page.text.strip("\n")


def _unescape(text: str) -> str:
    """Unescape a text once if `html.escape` would restore the same text."""
    if "&" not in text:
        return text
    plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return plain if html.escape(plain, quote=False) == text else text


def _unescape_title(title: str) -> str:
    """Unescape the HTML entities that MediaWiki writes in titles."""
    for entity, character in _TITLE_ENTITIES if "&" in title else ():
        title = title.replace(entity, character)
    return title


def is_on_other_site(url: str) -> bool:
    """Check whether a page's url is on a site other than Wikipedia."""
    return "://" in url and _URL.match(url) is None


def _page_language(url: str, language: str | None, piece: ByteRange, offset: int) -> str:
    """Return a page's language from its url or the recipe; InputError if unclear."""
    match = _URL.match(url)
    if match is not None and language in (None, match["language"]):
        return match["language"]
    if match is None and "://" not in url and language is not None:
        return language
    where = f"{piece.file.path} {format_row_position(piece.file.name, offset, piece.file)}"
    if match is not None:
        what = f"the url {url} belongs to a wiki other than `language` in the recipe, {language}"
        raise InputError(what, where, "correct `language`, or omit the file in `files`")
    if is_on_other_site(url):
        fix = "extract with --json, add .jsonl to the names of the files, and read them as a local source"
        raise InputError(f"the url {url} is not on Wikipedia", where, fix)
    raise InputError(f"the url {url} has no language", where, "set `language` in the recipe")

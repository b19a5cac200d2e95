"""wikiextractor's files → Documents, a page each.

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
import re
from collections.abc import Iterator
from typing import Annotated, Literal, Self

import pydantic

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.readers.columns import Fault, Patterns
from pipeline_assets.corpus.readers.lines import row_words
from pipeline_assets.corpus.readers.source_folder import ByteRange
from pipeline_assets.corpus.readers.wikipedia_pages import Page, pages
from pipeline_assets.corpus.spine.errors import IN_RECIPE, InputError, key
from pipeline_assets.corpus.spine.ledger import Reject
from pipeline_assets.corpus.spine.recipe import Option, RecipePart

_URL = re.compile(r"https?://(?P<language>[a-z0-9-]+)\.(?:m\.)?wikipedia\.org/")
_TITLE_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&#039;", "'"), ("&amp;", "&"))
# From when on text was offered under which licence: Wikimedia's licensing update of 2009 and terms of use of 2023.
_LICENCES = (
    (datetime.date(2023, 6, 7), "cc-by-sa-4.0"),
    (datetime.date(2009, 6, 15), "cc-by-sa-3.0"),
    (datetime.date.min, "gfdl-1.2-or-later"),
)


class WikipediaRecipe(RecipePart):
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
        meta=Meta.of(piece.file.name, place, page.others | columns, licence[1]),
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
    where = f"{piece.file.path} {row_words(piece.file.name, place, piece.file)}"
    if match is not None:
        wanted = key("language", "the recipe's `{}`,")
        what = f"the url {url} is of another wiki than {wanted} {language}"
        raise InputError(what, where, f"correct {key('language')}, or leave the file out")
    if "://" in url:
        raise InputError(f"the url {url} is not of Wikipedia", where, "read such pages as local files")
    raise InputError(f"the url {url} doesn't say the language", where, f"set {key('language', IN_RECIPE)}")

"""Output of the real wikiextractor is read back in every format it writes."""

import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

import pytest

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.readers.source_folder import list_files, split_byte_ranges
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia
from pipeline_assets.corpus.readers.wikipedia_pages import count_pages
from pipeline_assets.spine.rejects import Reject

pytest.importorskip("wikiextractor", reason="wikiextractor is not installed")

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en">
  <siteinfo>
    <base>https://en.wikipedia.org/wiki/Main_Page</base>
    <namespaces>
      <namespace key="10" case="first-letter">Template</namespace>
    </namespaces>
  </siteinfo>
"""
PAGE = """  <page>
    <title>{title}</title>
    <ns>{ns}</ns>
    <id>{id}</id>{redirect}
    <revision>
      <id>{revision}</id>
      <contributor>
        <username>Editor</username>
        <id>4</id>
      </contributor>
      <text bytes="1" xml:space="preserve">{text}</text>
    </revision>
  </page>
"""
ARTICLES = {
    'AT&T "in" <short>': "'''AT&amp;T''' says 1 &lt; 2.\n\n== Early & late ==\nIt [[was|began]] early.\n",
    "Numbers": "\n".join(f"Number {number} comes before number {number + 1}." for number in range(300)),
    "Only a template": "{{Foo}}",
    "糜文開": "'''糜文開'''，生於中國江蘇無錫。",
}
EXPECTED = {
    'AT&T "in" <short>': "AT&T says 1 < 2.\nEarly & late.\nIt began early.",
    "Numbers": ARTICLES["Numbers"],
    "糜文開": "糜文開，生於中國江蘇無錫。",
}
Extract = Callable[..., Path]


@pytest.fixture
def extract(tmp_path: Path) -> Extract:
    """Return a function that extracts a dump of the articles to a folder."""

    def run(*options: str) -> Path:
        pages = [
            PAGE.format(id=id_, ns=0, redirect="", revision=100 + id_, title=escape(title), text=escape(text))
            for id_, (title, text) in enumerate(ARTICLES.items(), 1)
        ]
        redirect = '\n    <redirect title="X" />'
        pages.insert(1, PAGE.format(id=50, ns=0, redirect=redirect, revision=1, title="R", text=""))
        pages.insert(2, PAGE.format(id=51, ns=1, redirect="", revision=1, title="Talk:X", text="Talk."))
        (tmp_path / "dump.xml").write_text(HEAD + "".join(pages) + "</mediawiki>\n", encoding="utf-8")
        command = [sys.executable, "-m", "wikiextractor.WikiExtractor", "--no-templates", "--quiet", "--processes", "1"]
        target = tmp_path / "extracted"
        subprocess.run([*command, *options, "-o", target, tmp_path / "dump.xml"], check=True, capture_output=True)
        return target

    return run


def read_folder(folder: Path) -> tuple[list[Document], list[Reject], int]:
    values = {"source": "wikipedia", "domain": "encyclopedia", "language": None, "license_tag": None}
    recipe = WikipediaRecipe.model_validate(values | {"files": ["**/wiki_*"], "dump_date": "2024-03-01"})
    pieces = [piece for file in list_files(folder, recipe.files) for piece in split_byte_ranges(file, 5000)]
    rows = [row for piece in pieces for row in read_wikipedia(piece, recipe)]
    documents = [row for row in rows if isinstance(row, Document)]
    rejects = [row for row in rows if isinstance(row, Reject)]
    return documents, rejects, sum(map(count_pages, pieces))


@pytest.mark.parametrize(
    "options", ["", "--json", "--compress", "--json --compress", "--html-safe=", "--json --html-safe=", "--bytes 0"]
)
def test_every_article_of_the_dump_is_read_back(extract: Extract, options: str) -> None:
    documents, rejects, pages = read_folder(extract(*options.split()))

    expected = {title: f"{title}\n\n{text}" for title, text in EXPECTED.items()}
    assert {document.meta.title: document.text for document in documents} == expected
    assert [document.doc_id for document in documents] == ["wikipedia:en:1", "wikipedia:en:2", "wikipedia:en:4"]
    assert [(reject.reason, reject.detail) for reject in rejects] == [("title_only", "Only a template")]
    assert pages == 4

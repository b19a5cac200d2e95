"""Wikipedia pages become Documents: titles, entities, languages and licences."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pydantic
import pytest
from refusals import refusal
from synthetic_samples import PAGES

from pipeline_assets.corpus.document import Document, Meta
from pipeline_assets.corpus.readers.source_folder import SourceFile, list_files, split_byte_ranges
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia
from pipeline_assets.corpus.readers.wikipedia_pages import count_pages
from pipeline_assets.spine.rejects import Reject

Source = Callable[..., SourceFile]
EN = "https://en.wikipedia.org/wiki?curid=12"


def recipe(**changes: str | None) -> WikipediaRecipe:
    values = {"source": "wikipedia", "files": ["**/*"], "dump_date": "2021-01-20", "title": "none"}
    return WikipediaRecipe.model_validate(values | changes)


def read_rows(file: SourceFile, range_bytes: int = 1 << 30, **changes: str | None) -> list[Document | Reject]:
    return [row for piece in split_byte_ranges(file, range_bytes) for row in read_wikipedia(piece, recipe(**changes))]


def parse(source: Source, text: str, title: str = "Title", url: str = EN, **changes: str | None) -> Document | Reject:
    """Read a page of one line of JSON."""
    content = json.dumps({"id": "12", "url": url, "title": title, "text": text}) + "\n"
    (row,) = read_rows(source(content), **changes)
    return row


def parse_article(*arguments: object, **changes: object) -> Document:
    row = parse(*arguments, **changes)  # type: ignore[arg-type]
    assert isinstance(row, Document), row
    return row


@pytest.fixture
def extraction(real_data: Path) -> Callable[[str], SourceFile]:
    """Return a function that finds a real extraction by its name."""
    return lambda name: list_files(real_data / "wikipedia", [name])[0]


@pytest.mark.parametrize(
    ("name", "language", "articles", "title_only"),
    [
        ("en_doc/AA/wiki_00", None, 37, 0),
        ("en_doc/AB/wiki_00", None, 66, 0),
        ("en_json/AA/wiki_00", None, 35, 0),
        ("en_stub/AA/wiki_00", "en", 620, 910),
        ("zh_doc/AA/wiki_18", None, 512, 533),
        ("vi_json_revid/AA/wiki_00", None, 2, 2),
    ],
)
def test_extractions_are_read_to_the_last_page_in_any_ranges(
    shared_data: Path, real: bool, name: str, language: str | None, articles: int, title_only: int
) -> None:
    """The counts are of real files; a synthetic one has one title alone in five pages."""
    [file] = list_files(shared_data / "wikipedia", [name])
    articles, title_only = (articles, title_only) if real else (PAGES * 4 // 5, PAGES // 5)

    rows = read_rows(file, language=language)

    reasons = Counter(row.reason if isinstance(row, Reject) else "article" for row in rows)
    assert reasons == Counter({"article": articles, "title_only": title_only})
    assert sum(map(count_pages, split_byte_ranges(file, 100_000))) == articles + title_only
    assert read_rows(file, 3_000, language=language) == read_rows(file, 3_000_000, language=language) == rows


def test_a_real_page_of_a_doc_file_has_this_text_and_metadata(extraction: Callable[[str], SourceFile]) -> None:
    stub, document, *_ = read_rows(extraction("en_stub/AA/wiki_00"), language="en")

    assert stub == Reject("en_stub/AA/wiki_00", 0, "title_only", "Marcus Claudius Tacitus")
    assert document == Document(
        text="Jarred Shaw (born September 28, 1990) is an American professional basketball player for Trouville of the "
        "Liga Uruguaya de Básquetbol (LUB).\nProfessional career.\nOn October 31, 2015, Shaw was selected by the Santa "
        "Cruz Warriors with the 18th overall pick in the 2015 NBA Development League Draft. He signed for Dorados de "
        "Chihuahua of the Liga Nacional de Baloncesto Profesional (LNBP) in August 2019. In February 2020 he signed "
        "for Club Trouville of Montevideo, Uruguay, and played during the 2019–20 LUB season.",
        source="wikipedia",
        domain="encyclopedia",
        doc_id="wikipedia:en:56564559",
        license_tag="cc-by-sa-3.0",
        created_at="",
        meta=Meta(
            source_file="en_stub/AA/wiki_00",
            source_row=107,
            license_evidence="date: 2021-01-20",
            title="Jarred Shaw",
            url="?curid=56564559",
            language="en",
            extra='{"revid":null}',
        ),
    )


def test_a_page_in_both_formats_is_the_same_document(source: Source) -> None:
    text = "Tea & milk.\nHistory.\nTea is older than milk in tea."
    doc = f'<doc id="12" url="{EN}" title="Tea">\nTea\n\n{text}\n\n</doc>\n'
    page = {"id": 12, "revid": "77", "url": EN, "title": "Tea", "text": text, "views": 5, "source_row": 1}

    [from_doc], [from_line] = read_rows(source(doc)), read_rows(source(json.dumps(page) + "\n"))

    assert from_doc == Document(
        text=text,
        source="wikipedia",
        domain="encyclopedia",
        doc_id="wikipedia:en:12",
        license_tag="cc-by-sa-3.0",
        created_at="",
        meta=Meta("file", 0, "date: 2021-01-20", title="Tea", url=EN, language="en", extra='{"revid":null}'),
    )
    assert isinstance(from_line, Document)
    assert (from_line.text, from_line.doc_id, from_line.meta.source_row) == (from_doc.text, from_doc.doc_id, 0)
    assert from_line.meta.extra == '{"views":5,"source_row":1,"revid":"77"}'


def test_real_vietnamese_json_pages_are_documents_or_title_only_rejects(
    extraction: Callable[[str], SourceFile],
) -> None:
    alexandre, home, internet, vietnam = read_rows(extraction("vi_json_revid/AA/wiki_00"), dump_date="2023-06-07")

    assert isinstance(alexandre, Reject) and isinstance(vietnam, Reject)
    assert (alexandre.reason, vietnam.detail) == ("title_only", "ISOC Vietnam")
    assert isinstance(home, Document) and isinstance(internet, Document)
    assert home.text == '<templatestyles src="Wiki2021/styles.css" />__NOEDITSECTION__\n \n \n '
    assert internet.doc_id == "wikipedia:vi:4"
    assert internet.license_tag == "cc-by-sa-4.0"
    assert internet.text.startswith("Internet Society hay ISOC là một tổ chức quốc tế hoạt động phi lợi nhuận")
    assert internet.text.endswith("việc phục vụ cộng đồng dữ liệu truyền thông.")
    assert (internet.meta.title, internet.meta.extra) == ("Internet Society", '{"revid":"1008748"}')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Title\n\nBody.\n\n\n\n", "Body."),
        ("Title\n\n\n\nBody.", "Body."),
        ("Body.\nTitle\n\nBody.", "Body.\nTitle\n\nBody."),
        ("Title\nis its first word.", "Title\nis its first word."),
        ("Titles are many.", "Titles are many."),
        ("\n  Indented.\n\n\n\nAnd far.\n \n", "  Indented.\n\n\n\nAnd far.\n "),
    ],
)
def test_the_title_above_the_text_and_outer_newlines_are_removed(source: Source, text: str, expected: str) -> None:
    assert parse_article(source, text).text == expected


def test_a_document_starts_with_its_title_by_default(source: Source) -> None:
    file = source(
        f'<doc id="1" url="{EN}" title="A&amp;B">\nA&amp;B\n\nBody.\n\n</doc>\n'
        f'<doc id="2" url="{EN}" title="Untold">\nBody alone.\n</doc>\n'
    )

    first_lines = [row.text for row in read_rows(file, title="first_line") if isinstance(row, Document)]
    unchanged = [row.text for row in read_rows(file, title="none") if isinstance(row, Document)]

    assert first_lines == ["A&B\n\nBody.", "Untold\n\nBody alone."]
    assert unchanged == ["Body.", "Body alone."]
    assert WikipediaRecipe.model_fields["title"].default == "first_line"


@pytest.mark.parametrize("text", ["", "\n \n", "Title", "Title\n\n\n\n", "Title\n\n \n"])
def test_a_page_with_only_a_title_is_rejected(source: Source, text: str) -> None:
    assert parse(source, text) == Reject("file", 0, "title_only", "Title")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AT&amp;T &lt;br&gt;", "AT&T <br>"),
        ("write &amp;amp; for &amp;", "write &amp; for &"),
        ("a &quot;quote&quot;", "a &quot;quote&quot;"),
        ("AT&T and &amp;", "AT&T and &amp;"),
        ("1 < 2 &amp;", "1 < 2 &amp;"),
        ("x&#772; &nbsp;", "x&#772; &nbsp;"),
    ],
)
def test_only_entities_of_html_escape_are_unescaped(source: Source, text: str, expected: str) -> None:
    title = "&quot;Q&amp;A&quot; &lt;&#039;&amp;lt;&#039;&gt;"

    document = parse_article(source, f"{title}\n\n{text}", title)

    assert (document.text, document.meta.title) == (expected, "\"Q&A\" <'&lt;'>")


@pytest.mark.parametrize(
    ("url", "language", "doc_id"),
    [
        ("https://zh-min-nan.wikipedia.org/wiki?curid=12", None, "wikipedia:zh-min-nan:12"),
        ("http://en.m.wikipedia.org/wiki/Title", None, "wikipedia:en:12"),
        ("https://simple.wikipedia.org/wiki?curid=12", "simple", "wikipedia:simple:12"),
        ("?curid=12", "en", "wikipedia:en:12"),
    ],
)
def test_the_id_names_the_wiki_of_url_or_recipe(source: Source, url: str, language: str | None, doc_id: str) -> None:
    document = parse_article(source, "Body.", url=url, language=language)

    assert (document.doc_id, document.meta.url) == (doc_id, url)


WIKTIONARY = "https://en.wiktionary.org/wiki?curid=12"


@pytest.mark.parametrize(
    ("url", "language", "message"),
    [
        ("?curid=12", None, "has no language; set `language` in the recipe"),
        (EN, "vi", "belongs to a wiki other than `language` in the recipe, vi; correct `language`, or omit the file"),
        (WIKTIONARY, "en", "is not on Wikipedia; extract with --json, add .jsonl to"),
    ],
)
def test_a_page_of_no_or_another_wiki_is_an_error(source: Source, url: str, language: str | None, message: str) -> None:
    line = refusal(lambda: parse(source, "Body.", url=url, language=language))

    assert line.split(" line 1 (byte 0): ")[1].startswith(f"the url {url} {message}")


@pytest.mark.parametrize(
    ("dump_date", "tag"),
    [
        ("2009-06-14", "gfdl-1.2-or-later"),
        ("2009-06-15", "cc-by-sa-3.0"),
        ("2023-06-06", "cc-by-sa-3.0"),
        ("2023-06-07", "cc-by-sa-4.0"),
    ],
)
def test_the_licence_follows_from_the_date_of_the_dump(dump_date: str, tag: str) -> None:
    assert recipe(dump_date=dump_date).licence() == (tag, f"date: {dump_date}")
    assert recipe(dump_date=None, license_tag=tag).licence() == (tag, "recipe")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dump_date": None}, "set exactly one of .*dump_date.*license_tag"),
        ({"license_tag": "cc-by-sa-4.0"}, "set exactly one of .*dump_date.*license_tag"),
        ({"dump_date": "20240301"}, "must be a date YYYY-MM-DD, got '20240301'"),
    ],
)
def test_a_recipe_without_exactly_one_licence_is_refused(changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(pydantic.ValidationError, match=message):
        recipe(**changes)

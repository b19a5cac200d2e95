"""The report is one page that says every number, loads nothing, and runs nothing of what it shows."""

import re
from html.parser import HTMLParser

import pytest

from pipeline_assets.corpus.corpus_report import Example, Report, SourceLedger
from pipeline_assets.corpus.profile import LENGTH_BINS, Counts, Group
from pipeline_assets.corpus.spine.ledger import Ledger


def counts(documents: int, tokens: int, **lengths: int) -> Counts:
    bins = [0] * LENGTH_BINS
    for name, count in lengths.items():
        bins[int(name.removeprefix("bin"))] = count
    return Counts(documents, tokens * 4, tokens * 5, tokens, tuple(bins))


PROFILE = {
    Group("fineweb", "web", "odc-by"): counts(1200, 900_000, bin9=1000, bin12=200),
    Group("scraps", "web", "unknown"): counts(3, 100_000, bin0=1, bin15=2),
}
LEDGER = SourceLedger(
    "fineweb",
    "filtered",
    Ledger(1500, 1200, {"ascii_ratio": 290}, {"no_text": 10}),
    {"ascii_ratio": [Example("id<1>", "0.43 < 0.8", "<script>alert('x')</script> & more")]},
)


@pytest.fixture(scope="module")
def page() -> str:
    return Report("My corpus <v1>", PROFILE, [LEDGER], "fineweb: Open Data Commons & co").to_html()


class Tags(HTMLParser):
    """Every tag with its attributes, and what is left open."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def words(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_every_number_is_said_by_source_domain_and_licence(page: str) -> None:
    said = words(page)

    assert "documents tokens in the sources 1,203 1,000,000 " in said
    assert "fineweb 1,200 4,500,000 900,000 90.0 %" in said
    assert "web 1,203 5,000,000 1,000,000 100.0 %" in said
    assert "unknown 3 500,000 100,000 10.0 %" in said
    assert "in 1,500 out 1,200 dropped: ascii_ratio 290 rejected: no_text 10" in said


def test_an_unknown_licence_stands_out(page: str) -> None:
    assert "<span class='unknown'>unknown</span>" in page


def test_a_bar_for_each_length_between_the_shortest_and_the_longest(page: str) -> None:
    heights = [float(height) for height in re.findall(r"<rect class='bar'[^>]*height='([\d.]+)'", page)]

    assert heights[:4] == [120.0, 0.0, 0.0, 24.0]
    assert len(heights) == 4 + 16
    assert "<title>200 documents of 4,096 to 8,191 tokens</title>" in page


def test_what_comes_from_the_corpus_is_shown_and_not_run(page: str) -> None:
    tags = Tags()
    tags.feed(page)

    assert tags.open == []
    assert "script" not in [tag for tag, _ in tags.seen]
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; more" in page
    assert "id&lt;1&gt;" in page
    assert "My corpus &lt;v1&gt;" in page


def test_whatever_texts_say_the_page_has_the_same_tags() -> None:
    def tags_of(text: str) -> list[tuple[str, dict[str, str | None]]]:
        ledger = SourceLedger(text, text, Ledger(2, 1, {text: 1}, {text: 1}), {text: [Example(text, text, text)]})
        tags = Tags()
        tags.feed(Report(text, {Group(text, text, text): counts(1, 9, bin3=1)}, [ledger], text).to_html())
        return tags.seen

    for text in ("</pre><img src=x>", "'><a href='http://evil.example'>", "<!--", "]]>", "&lt;b&gt;", "\0<\0b>"):
        assert tags_of(text) == tags_of("text")


def test_the_page_loads_nothing(page: str) -> None:
    tags = Tags()
    tags.feed(page)

    assert not [attributes for _, attributes in tags.seen if {"src", "href"} & attributes.keys()]
    assert "url(" not in page
    assert "@import" not in page


def test_long_ids_and_words_are_broken_where_the_table_of_examples_ends(page: str) -> None:
    style = page.partition("<style>")[2].partition("</style>")[0]

    assert "<table class='examples'>" in page
    assert ".examples { table-layout: fixed; width: 100% }" in style
    assert "td, pre { overflow-wrap: anywhere }" in style


def test_an_empty_corpus_has_a_page_too() -> None:
    assert "documents tokens in the sources 0 0 " in words(Report("nothing", {}, [], "").to_html())

"""Page of a report on a corpus, with its escaped texts."""

import json
import re
from collections import defaultdict
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from corpus_reports import words

from pipeline_assets.corpus.corpus_report import build_report, ledger_entry
from pipeline_assets.corpus.evidence import Example
from pipeline_assets.corpus.licences import licence_table
from pipeline_assets.corpus.pages import render_report
from pipeline_assets.corpus.profile import DocumentGroup, Profile, ProfileCounts
from pipeline_assets.corpus.token_sample import LENGTH_BINS, WEIGHT_ONE, SampleSums
from pipeline_assets.spine.ledger import Ledger
from pipeline_assets.spine.manifest import Identity, Manifest, StageVersion


def profile_counts(documents: int, tokens: int, **lengths: int) -> ProfileCounts:
    bins = [0] * LENGTH_BINS
    for name, count in lengths.items():
        bins[int(name.removeprefix("bin"))] = count
    return ProfileCounts(
        documents, tokens * 4, tokens * 5, tokens, tuple(bins), SampleSums(documents, weights=documents * WEIGHT_ONE)
    )


PROFILE = {
    DocumentGroup("fineweb", "web", "odc-by"): profile_counts(1200, 900_000, bin9=1000, bin12=200),
    DocumentGroup("scraps", "web", "unknown"): profile_counts(3, 100_000, bin0=1, bin15=2),
}
LEDGER = ledger_entry(
    "fineweb",
    "filtered",
    Ledger(1500, 1200, {"ascii_ratio": 290}, {"no_text": 10}),
    {"ascii_ratio": [Example("id<1>", "0.43 < 0.8", "<script>alert('x')</script> & more", "a.jsonl row 7")]},
)


def render_page(name: str, profile: Profile, ledgers: list[dict[str, Any]], attribution: str, **parts: object) -> str:
    licences = defaultdict(lambda: licence_table()["unknown"])
    identity = Identity(StageVersion("report", 1), {}, [], None, {}, {}, [])
    built = {"started_at_utc": "2026-11-25T12:00:00+00:00", "command": {"typed": f"corpusmill run {name}"}}
    report = json.loads(msgspec.json.encode(build_report(profile, ledgers, licences, attribution)))
    return render_report(report | parts, Manifest("stage_a/report", name, identity, [], built))


@pytest.fixture(scope="module")
def page() -> str:
    return render_page("My corpus <v1>", PROFILE, [LEDGER], "fineweb: Open Data Commons & co")


class Tags(HTMLParser):
    """Parser of every tag and its attributes, and of the tags that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.start_tags: list[tuple[str, dict[str, str | None]]] = []
        self.open_tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.start_tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open_tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag


def test_the_page_has_every_number_by_source_domain_and_licence(page: str) -> None:
    text = words(page)

    assert "step documents tokens in the sources 1,203 1,000,000 " in text
    assert "fineweb 1,200 4,500,000 900,000 90.0 %" in text
    assert "web 1,203 5,000,000 1,000,000 100.0 %" in text
    assert "unknown 3 500,000 100,000 10.0 %" in text
    assert "in out merged dropped rejected fineweb filtered 1,500 1,200 0 ascii_ratio 290 no_text 10" in text


def test_the_page_has_its_provenance(page: str) -> None:
    facts = dict(re.findall(r"<dt>(\w+)</dt><dd>(.*?)</dd>", page))

    assert re.fullmatch("<code>sha256:[0-9a-f]{64}</code>", facts.pop("digest"))
    assert facts == {
        "recipe": "My corpus &lt;v1&gt;",
        "built": "2026-11-25T12:00:00+00:00",
        "command": "<code>corpusmill run My corpus &lt;v1&gt;</code>",
    }


def test_the_title_names_the_recipe(page: str) -> None:
    assert "<title>My corpus &lt;v1&gt;: report on 2 sources</title>" in page
    assert "<h1>My corpus &lt;v1&gt;: report on 2 sources</h1>" in page


def test_columns_without_an_example_are_omitted() -> None:
    reject = {"no_text": [Example("", "null", "", "a.jsonl row 7")]}
    ledger = ledger_entry("fineweb", "normalized", Ledger(10, 9, {}, {"no_text": 1}), reject)

    assert " no_text source row measured a.jsonl row 7 null " in words(render_page("web", PROFILE, [ledger], ""))


def test_duplicate_groups_and_their_search_are_described() -> None:
    first = {"doc_id": "a", "source": "fineweb", "beginning": "One."}
    groups = [{"gone": count, "kept": first, "samples": [first | {"doc_id": "b"}]} for count in (1, 1234)]
    duplicates = {"by_source": {}, "comparisons": {"edges": 3, "buckets": 1500}, "groups": groups, "near": []}

    text = words(render_page("web", PROFILE, [], "", duplicates=duplicates))

    assert (
        " How duplicates were searched: counted number buckets: groups of documents that may be near duplicates 1,500 "
        "pairs of near duplicates 3 " in text
    )
    assert " 1 duplicate of the first document was dropped: document source text a fineweb One. " in text
    assert " 1,234 duplicates of the first document were dropped: " in text


def test_the_page_explains_that_packed_tokens_include_ends_of_documents() -> None:
    sizes = {"documents": 9, "tokens": 90, "by_source": {}, "lost_text": {}, "rejected": {}, "license_tokens": {}}
    ends = "Tokens of the packed set include the token that ends each document; those of the other steps do not."

    assert ends in render_page("web", PROFILE, [], "", packed=sizes)
    assert ends not in render_page("web", PROFILE, [], "")


def test_control_characters_are_visible() -> None:
    assert "<dd>red␛[31m</dd>" in render_page("red\x1b[31m", {}, [], "")


def test_each_length_between_the_shortest_and_the_longest_has_a_bar(page: str) -> None:
    heights = [float(height) for height in re.findall(r"<rect class='bar'[^>]*height='([\d.]+)'", page)]

    assert heights[:4] == [120.0, 0.0, 0.0, 24.0]
    assert len(heights) == 4 + 16
    assert "<title>200 documents of 4,096 to 8,191 tokens</title>" in page


def test_hostile_content_of_the_corpus_is_escaped(page: str) -> None:
    tags = Tags()
    tags.feed(page)

    assert tags.open_tags == []
    assert "script" not in [tag for tag, _ in tags.start_tags]
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; more" in page
    assert "id&lt;1&gt;" in page
    assert "My corpus &lt;v1&gt;" in page


def test_no_text_changes_the_tags_of_the_page() -> None:
    def read_tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
        ledger = ledger_entry(text, text, Ledger(2, 1, {text: 1}, {text: 1}), {text: [Example(text, text, text, text)]})
        tags = Tags()
        tags.feed(render_page(text, {DocumentGroup(text, text, text): profile_counts(1, 9, bin3=1)}, [ledger], text))
        return tags.start_tags

    for text in ("</pre><img src=x>", "'><a href='http://evil.example'>", "<!--", "]]>", "&lt;b&gt;", "\0<\0b>"):
        assert read_tags(text) == read_tags("text")


def test_the_page_loads_nothing(page: str) -> None:
    tags = Tags()
    tags.feed(page)

    links = [attributes["href"] for _, attributes in tags.start_tags if "href" in attributes]
    assert links == [f"#s{number}" for number in range(1, page.count("<h2>") + 1)]
    assert not [attributes for _, attributes in tags.start_tags if "src" in attributes]
    assert "url(" not in page
    assert "@import" not in page


def test_an_empty_corpus_has_a_page() -> None:
    assert "documents tokens in the sources 0 0 " in words(render_page("nothing", {}, [], ""))

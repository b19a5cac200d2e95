"""Blocklists of domains, URLs and words: matches, and errors that name the line."""

import re
import unicodedata
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.filters.filter import Candidate
from pipeline_assets.corpus.filters.hashed_words import (
    build_table,
    find_first_phrases,
    hash_phrase_prefixes,
    word_classes,
)
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.text_batch import join_texts
from pipeline_assets.corpus.filters.verdict import apply_filters, evaluate
from pipeline_assets.corpus.urls import list_domains

Reason = Callable[..., str | None]


@pytest.fixture
def recipe(tmp_path: Path) -> Callable[..., FilterRecipe]:
    """Return a function that writes lists by kind and name, and builds the recipe."""

    def write(**kinds: Mapping[str, str]) -> FilterRecipe:
        section: dict[str, Any] = {}
        for kind, lists in kinds.items():
            for name, content in lists.items():
                path = tmp_path / f"{kind}-{name}.txt"
                path.write_text(content, encoding="utf-8")
                section.setdefault(kind, {})[name] = {"path": str(path), "sha256": f"{abs(hash(content)):064x}"}
        return FilterRecipe.model_validate({"blocklist": section})

    return write


@pytest.fixture
def reason(recipe: Callable[..., FilterRecipe]) -> Reason:
    """Return a function that finds the measurement that drops a text or URL."""

    def find(text: str = "", url: object = None, column: str = "url", **kinds: Mapping[str, str]) -> str | None:
        meta = {} if url is None else {column: url}
        measurements = evaluate(text, meta, recipe(**kinds)).measurements
        return next((str(measurement) for measurement in measurements if measurement.is_failed), None)

    return find


def test_a_text_of_dots_in_place_of_a_url_has_no_more_parents_than_a_name() -> None:
    domains = list_domains("http://" + "a." * 5_000 + "example.com")  # all parents together have 50 MB

    assert [len(domain) for domain in domains[:2]] == [10_011, 251]
    assert domains[-2:] == ["example.com", "com"]


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://example.com", "example.com"),
        ("https://user:pw@WWW.Example.COM.:8080/a?b#c", "example.com"),
        ("http://me@mail.org:p@w@example.com/", "example.com"),
        ("http://example.org/@example.com", None),
        ("//example.com/x", "example.com"),
        ("example.com/x", "example.com"),
        (" http://a.b.example.com ", "example.com"),
        ("http://sub.site.org/", "sub.site.org"),
        ("http://x.sub.site.org/", "sub.site.org"),
        ("http://BÜCHER.example/", "xn--bcher-kva.example"),
        ("http://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("http://[::1]:80/", "[::1]"),
        ("http://10.0.0.1/", "10.0.0.1"),
        ("http://notexample.com", None),
        ("http://example.com.evil.org", None),
        ("http://example.org/example.com", None),
        ("http://site.org/", None),
        ("http://com/", None),
        ("mailto:me@example.net", None),
        ("", None),
        ("http://", None),
        ("not a url", None),
        (3, None),
    ],
)
def test_a_domain_matches_its_host_and_subdomains(url: object, entry: str | None, reason: Reason) -> None:
    listed = "# spam\n\nexample.com\n*.sub.site.org\r\nhttp://Bücher.example/ignored\n[::1]\n10.0.0.1"

    assert reason(url=url, domains={"spam": listed}) == (entry and f"blocklist_domain:spam {entry}")


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://a.org/x", "a.org/x"),
        ("HTTPS://A.org:443/x/#part", "a.org/x"),
        ("http://a.org/X", None),
        ("http://www.a.org/x", None),
        ("http://a.org:8080/x", None),
        ("http://a.org/x?y=1", None),
        ("http://a.org/q/?y=1", "a.org/q?y=1"),
        ("http://a.org/q?y=2", None),
        ("http://a.org:8080/p", "a.org:8080/p"),
        ("http://b.org", "b.org"),
        ("http://b.org/?", "b.org?"),
        ("http://b.org/index", None),
    ],
)
def test_urls_match_without_scheme_user_fragment_port_and_slash(url: str, entry: str | None, reason: Reason) -> None:
    listed = "http://a.org/x/\na.org/q?y=1#z\na.org:8080/p\nhttps://u@b.org/\nb.org?"

    assert reason(url=url, urls={"pages": listed}) == (entry and f"blocklist_url:pages {entry}")


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("a BAD thing", "bad"),
        ("bad", "bad"),
        ("(bad)", "bad"),
        ("badly, unbad, bad_1, bad2, bäd", None),
        ("b-a-d", None),
        ("much worse, words", "worse, words"),
        ("WORSE\n\nWORDS.", "worse\n\nwords"),
        ("worsewords; worse of words", None),
        ("worse bad words", "bad"),
        ("an die Straße", "strasse"),
        ("STRASSE", "strasse"),
        ("ПЛОХО!", "плохо"),
        ("这是色情网站", "色情"),
        ("色，情", None),
        ("色 情", None),
        ("คำหยาบคายมาก", "หยาบ"),
        ("हिन्दी में", "हिन्दी"),
        ("हिन्द में", None),
        ("人々ABC", "人々"),
        ("二〇abc", "二〇"),
        ("ｶﾞabc", "ｶﾞ"),
        ("々abc", "abc"),
        ("", None),
    ],
)
def test_words_match_whole_words_in_any_script_and_case(text: str, entry: str | None, reason: Reason) -> None:
    listed = "# words\nBad\nworse words\nStrasse\nплохо\n色情\nหยาบ\nहिन्दी\n人々\n二〇\nｶﾞ\nabc\n"

    assert reason(text, words={"rude": listed}) == (entry and f"blocklist_word:rude {entry}")


def test_the_first_list_by_kind_and_name_is_the_reason(reason: Reason) -> None:
    lists = {"words": {"w": "word"}, "domains": {"b": "a.org", "a": "a.org\nb.org"}, "urls": {"u": "a.org/x"}}

    assert reason("word", "http://a.org/x", **lists) == "blocklist_domain:a a.org"
    assert reason("word", "http://c.org/x", **lists) == "blocklist_word:w word"


def test_batch_has_the_verdict_of_each_document_and_counts_missing_urls(recipe: Callable[..., FilterRecipe]) -> None:
    urls = ["http://x.org", None, "http://bad.org", "", "http://y.bad.org/z", "http://z.org"]
    candidates = [Candidate(b"a rude text" if url == "" else b"text", {"url": url}) for url in urls]

    apply_filters(candidates, recipe(domains={"d": "bad.org"}, words={"w": "rude"}))

    reasons = [candidate.failure and candidate.failure.reason for candidate in candidates]
    assert reasons == [None, None, "blocklist_domain:d", "blocklist_word:w", "blocklist_domain:d", None]
    assert [candidate.changes for candidate in candidates] == [{}, {"without_url": 1}, {}, {}, {}, {}]


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        ("domains", "", "the list has no entry"),
        ("words", "# only\n\n#comments\n", "the list has no entry"),
        ("domains", "a.org\n\nhttp:///path\n", "line 3 has no host"),
        ("urls", "?", "line 1 has no host"),
        ("words", "good\n...\n", "line 2 has no word"),
        ("words", "don't\nété\nहिन्दी\na$$\n", "line 4 begins or ends with a character that is in no word"),
        ("words", "good\nflag\U000e007f\n", "line 2 begins or ends with a character that is in no word"),
        ("words", "good\n$hit\n", "line 2 begins or ends with a character that is in no word"),
        ("domains", "# hosts\n0.0.0.0 a.org\n", "line 2 is not one host or URL, without anything else"),
        ("domains", "a.org # note\n", "line 1 is not one host or URL, without anything else"),
        ("domains", "||a.org^\n", "line 1 is not one host or URL, without anything else"),
        ("urls", "a.org/x\nhttp://a.org/y # note\n", "line 2 is not one host or URL, without anything else"),
    ],
)
def test_list_without_entries_or_with_an_invalid_entry_is_refused(
    kind: str, content: str, problem: str, reason: Reason, tmp_path: Path
) -> None:
    line = refusal(lambda: reason("text", **{kind: {"x": content}}))

    assert line == f"{tmp_path / kind}-x.txt: {problem}; correct the list, and pin its new sha256"


def test_a_list_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"a.org\nb\xff.org\n")
    lists = {"words": {"x": {"path": str(tmp_path / "list"), "sha256": "0" * 64}}}

    line = refusal(lambda: evaluate("", {}, FilterRecipe.model_validate({"blocklist": lists})))

    assert line.startswith(f"{tmp_path}/list: the list is not UTF-8 (") and "position 7" in line


ALONE = re.compile(r"[\u0e00-\u0eff\u3000-\u312f\u4e00-\u9fff\uff66-\uff9f]")
PIECES = [*"abß.-_ \n1É色情々〇ﾞかがก😀。\u093f\u0301", "ab", "か\u3099", "กั", "e\u0301"]
pieces = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def plain_words(text: str) -> list[tuple[str, bool]]:
    """Split case-folded text into words, each with True if a gap precedes it."""
    words: list[tuple[str, bool]] = []
    is_open = is_apart = False
    for character in text.casefold():
        is_mark = unicodedata.category(character)[0] == "M"
        is_word = character.isalnum() or character == "_" or is_mark
        is_alone = bool(ALONE.match(character)) and is_word and not is_mark
        joins = is_open and (is_mark or not (is_alone or ALONE.match(words[-1][0][0])))
        if is_word and joins:
            words[-1] = (words[-1][0] + character, words[-1][1])
        elif is_word:
            words.append((character, is_apart))
        is_apart = not is_word
        is_open = is_word
    return words


def plain_contains(text: str, phrase: str) -> bool:
    words, listed = plain_words(text), plain_words(phrase)
    starts = range(len(words) - len(listed) + 1)
    windows = [words[start : start + len(listed)] for start in starts]
    return any(window[0][0] == listed[0][0] and window[1:] == listed[1:] for window in windows)


@settings(max_examples=400, deadline=None)
@given(text=pieces | st.text(max_size=20), phrases=st.lists(pieces, min_size=1, max_size=4))
@example(text="色情", phrases=["色 情", "情"])
@example(text="a b c", phrases=["a b d", "b c"])
def test_phrases_are_found_where_a_slow_search_finds_them(text: str, phrases: list[str]) -> None:
    listed = [phrase for phrase in phrases if plain_words(phrase)]
    batch = join_texts([phrase.casefold().encode() for phrase in listed])
    table = build_table(*hash_phrase_prefixes(batch, word_classes())[:2])
    folded = text.encode("utf-8", "ignore").decode().casefold()

    [[start, stop]] = find_first_phrases(join_texts([folded.encode()]), word_classes(), table).tolist()

    assert (stop > 0) == any(plain_contains(folded, phrase) for phrase in listed)
    if stop > 0:
        match = [word for word, _ in plain_words(folded.encode()[start:stop].decode())]
        assert any(match == [word for word, _ in plain_words(phrase)] for phrase in listed)


def test_three_hundred_thousand_words_take_four_megabytes() -> None:
    words = [f"word{number}" for number in range(300_000)]
    hashes, is_whole, _ = hash_phrase_prefixes(join_texts([word.encode() for word in words]), word_classes())

    table = build_table(hashes, is_whole)

    assert sum(array.nbytes for array in table) < 5 << 20
    assert len(np.unique(table.hashes)) == len(words)
    text = join_texts([b"word299999", b"word300000", b"xword7", b"see word7."])
    assert (find_first_phrases(text, word_classes(), table)[:, 1] > 0).tolist() == [True, False, False, True]

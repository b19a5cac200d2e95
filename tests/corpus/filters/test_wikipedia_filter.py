"""Wikipedia pages: markup is removed and counted, and pages without text dropped."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.filters.filter import Candidate
from pipeline_assets.corpus.filters.recipe import FilterRecipe, WikipediaFilterRecipe
from pipeline_assets.corpus.filters.verdict import FilterVerdict, apply_filters, evaluate
from pipeline_assets.corpus.filters.wikipedia import remove_emptied_brackets
from pipeline_assets.corpus.readers.source_folder import list_files, split_byte_ranges
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia
from pipeline_assets.spine.errors import UsageError

Verdicts = Callable[..., FilterVerdict]
ALONE = {"min_running_lines": None}
LINES = "running_lines"
MARKUP = "(（)）,;，；：:、 /-–'\"《》「」<>ref/br{}[]|_=!formula_1 zh\nA學"


@pytest.mark.parametrize(
    ("line", "kept", "times"),
    [
        ("Albedo () is a measure.", "Albedo is a measure.", 1),
        ("Algeria ( ; , ; ), officially", "Algeria, officially", 1),
        ("Upper Galilee () and Lower Galilee ().", "Upper Galilee and Lower Galilee.", 2),
        ("糜文開（），生於中國", "糜文開，生於中國", 1),
        ("瑞恩·泰德（，）是一名", "瑞恩·泰德是一名", 1),
        ("2015年冠軍賽 （） 是", "2015年冠軍賽 是", 1),
        ("大馬士革 （）是", "大馬士革 是", 1),
        ("() begins the line", "begins the line", 1),
        ("（学名：）旧称", "旧称", 1),
        ("劳滕（德顿语：；英语等其他语言：）是", "劳滕是", 1),
        ('紋背鱉（學名：""）是', "紋背鱉是", 1),
        ('not certain (Linear B: ), "pa-ja"', 'not certain, "pa-ja"', 1),
        ("廣德（，代號J17）是", "廣德（代號J17）是", 1),
        ("Ann (; born 1 April 1947) is", "Ann (born 1 April 1947) is", 1),
        ("白蘭特（Danny Blind，）是", "白蘭特（Danny Blind）是", 1),
        ('Gdynia ( , ; , 1939 "Gotenhafen"; ) is', 'Gdynia (1939 "Gotenhafen") is', 1),
        ("由《》改編，「」演出", "由改編，演出", 2),
        ("甲（乙（），丙）", "甲（乙，丙）", 1),
        ("甲（（））丁", "甲丁", 2),
    ],
)
def test_emptied_brackets_are_removed_with_the_blanks_before_them(line: str, kept: str, times: int) -> None:
    assert remove_emptied_brackets(line) == (kept, times)


@pytest.mark.parametrize(
    "line",
    [
        "It calls main() and f_().",
        "the comma (,), the colon (:) and the quote (')",
        "the Gothic was (...) a counterbalance",
        "a tuple (1,) of one, (e.g.,)",
        "小明（1990年）與《論語》",
        "an open ( paren, and a closed ) one",
        "（\n）",
    ],
)
def test_brackets_that_were_not_emptied_are_kept(line: str) -> None:
    assert remove_emptied_brackets(line) == (line, 0)


@pytest.mark.parametrize(
    ("text", "kept", "changes"),
    [
        ('in 1966.<ref name="a"></ref> She', "in 1966. She", {"tags": 1}),
        ('in 1966.<ref name="a" /> She<ref>Miller <i>et al.</i>,\np. 4</ref>.', "in 1966. She.", {"tags": 2}),
        ("first.<br>Second.<BR clear=all />", "first.\nSecond.", {"tags": 2}),
        ("<nowiki>*</nowiki>Interim <b>coaches</b>", "*Interim coaches", {"tags": 4}),
        ("It is <math>\\frac{{a}}{b}</math> long.", "It is  long.", {"tags": 1}),
        ("Score:\n<score lang=x>\n{ c' }\n</score>\nand <mapframe>{}</mapframe>map.", "Score:\nand map.", {"tags": 2}),
        ("a<includeonly>b<ref>c</includeonly>d</ref>e", "ade", {"tags": 2}),
        ("a <ref>b <ref>c</ref> d", "a b  d", {"tags": 2}),
        ("a </ref> b <ref> c", "a  b  c", {"tags": 2}),
        ("a <math>" + "b" * 10_000 + "</math> c", "a " + "b" * 10_000 + " c", {"tags": 2}),
        ("a song <District 9>, 1 < 2, if a <b and c> d", "a song <District 9>, 1 < 2, if a <b and c> d", {}),
        ("Born __NOTOC__in {{circa|{{year}}}} Rome", "Born in  Rome", {"templates": 2}),
        ("{{Infobox\n| name = {{{1|Rome}}}\n}}\nRome is old.}}", "Rome is old.", {"templates": 2}),
        ("Rome{{refn|<ref>a}}</ref> is {{old.", "Rome is old.", {"templates": 2, "tags": 1}),
        ("(<ref>a</ref>) and ({{IPA|a}}; ) b", " and b", {"tags": 1, "templates": 1, "emptied_brackets": 2}),
    ],
)
def test_removed_tags_and_templates_count(text: str, kept: str, changes: dict[str, int], verdict: Verdicts) -> None:
    result = verdict(text, wikipedia=ALONE)

    assert (result.reason, result.text) == (None, kept)
    assert result.changes == {f"removed/{name}": times for name, times in changes.items()}


@pytest.mark.parametrize("line", ["<onlyinclude></onlyinclude>", "{{stub}}", "__NOTOC__ ", "<br/><br/>", "（）"])
def test_line_of_markup_is_removed_with_its_line_feed(line: str, verdict: Verdicts) -> None:
    assert verdict(f"Before.\n\n{line}\nAfter.", wikipedia=ALONE).text == "Before.\n\nAfter."


@pytest.mark.parametrize(
    "text", ["-{zh-hans:甲;zh-tw:乙}-", "[[Rome|the city]]", "formula_8 and codice_1", "{| class=x\n|-\n! a || b"]
)
def test_other_markup_is_kept(text: str, verdict: Verdicts) -> None:
    assert verdict(text, wikipedia=ALONE).text == text


@pytest.mark.parametrize("key", ["emptied_brackets", "tags", "templates", "tables", "choices", "links", "placeholders"])
def test_removed_key_is_refused_with_the_current_behaviour(key: str) -> None:
    content = {"wikipedia": {key: "repair", "min_running_lines": 1}}

    assert refusal(lambda: FilterRecipe.from_mapping(content, "recipe.yaml"), UsageError) == (
        f"recipe.yaml: `wikipedia`: `{key}` was removed; `wikipedia: {{}}` removes tags, templates and "
        "emptied brackets, and keeps other markup"
    )


@pytest.mark.parametrize(
    "body",
    [
        "GM or Gm may refer to:",
        "馬希納可指：",
        "Career.\nAwards.\nRome\nMilan",
        "#REDIRECT [[Rome]]",
        '<templatestyles src="Wiki2021/styles.css" />__NOEDITSECTION__\n \n \n ',
    ],
)
def test_page_without_running_text_is_dropped(body: str) -> None:
    title = "A title that is as long as a sentence. And ends like one."
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe())

    result = evaluate(f"{title}\n\n{body}", {"title": title}, recipe)

    assert (result.reason, str(result.measurements[0])) == ("running_lines", "running_lines 0 < 1")
    assert evaluate(f"{title}\n\n{body}\nFoo is a village in Poland.", {"title": title}, recipe).reason is None
    assert evaluate(f"{title}\n\n{body}\n糜文開，生於中國江蘇無錫。", {"title": title}, recipe).reason is None
    assert evaluate(f"{title}\n\n{body}\n" + "ประเทศไทย" * 5, {"title": title}, recipe).reason is None


def test_later_filters_see_the_repaired_text(verdict: Verdicts) -> None:
    text = "Seven words (; ) are in this line here."

    assert verdict(text, wikipedia={}, length={"max_words": 7}).reason is None
    assert verdict(text, length={"max_words": 7}).reason == "many_words"


def test_unchanged_page_keeps_its_bytes() -> None:
    text = "One line of a page.\r\n\n\n\u3000Another (one), 《二》 [3] {4} | and 5 < 6.\n\n"
    candidate = Candidate(text.encode(), {})

    apply_filters([candidate], FilterRecipe(wikipedia=WikipediaFilterRecipe()))

    assert (candidate.failure, candidate.text, candidate.changes) == (None, text.encode(), {})


@given(st.text(MARKUP, max_size=60))
def test_rules_remove_characters_and_add_only_line_feeds(text: str) -> None:
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe(min_running_lines=None))

    kept = evaluate(text, {}, recipe).text

    assert len(kept.replace("\n", "")) <= len(text.replace("\n", ""))
    assert set(kept) <= set(text) | {"\n"}


MARKS = [
    *"(（《'\u3000",
    "(,",
    "，）",
    "( ",
    "(a:",
    "<ref",
    "<ref>",
    "<br",
    "{{",
    "}}",
    "{{}",
    "<math>{{",
    "__A",
    "<b =",
    "<i ",
]


@pytest.mark.parametrize("mark", [*MARKS, "<!--", "(" * 9 + ")" * 9, "a."])
def test_half_a_megabyte_of_any_mark_in_one_line_is_filtered(mark: str) -> None:
    """Linear time is a second; in quadratic time this test would take hours."""
    page = mark * (500_000 // len(mark))
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe(min_running_lines=None))

    result = evaluate(page, {}, recipe)

    assert result.reason is None and len(result.text) <= len(page)


def counts_by_rule(samples: Path, name: str, language: str | None) -> dict[str, int]:
    """Count the sample documents that each rule changes or drops."""
    labels = {"source": "w", "domain": "d", "dump_date": None, "license_tag": "cc-by-sa-4.0"}
    page_recipe = WikipediaRecipe.model_validate({"files": ["**/*"], "language": language} | labels)
    pieces = [piece for file in list_files(samples / "wikipedia", [name]) for piece in split_byte_ranges(file, 1 << 30)]
    pages = [row for piece in pieces for row in read_wikipedia(piece, page_recipe) if isinstance(row, Document)]
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe())
    verdicts = [evaluate(page.text, page.meta.columns(), recipe) for page in pages]

    changed = Counter(name for verdict in verdicts if verdict.reason is None for name in verdict.changes)
    dropped = Counter(verdict.reason for verdict in verdicts if verdict.reason)
    return {name.removeprefix("removed/"): pages for name, pages in (changed + dropped).items()}


@pytest.mark.parametrize(
    ("name", "language", "counts"),
    [
        ("zh_doc/AA/wiki_18", None, {"emptied_brackets": 229, "tags": 4, LINES: 18}),
        ("en_doc/*/wiki_00", None, {"emptied_brackets": 33, "tags": 5, LINES: 8}),
        ("en_stub/AA/wiki_00", "en", {"emptied_brackets": 51, "tags": 5, LINES: 20}),
    ],
)
def test_real_pages_by_rule(real_data: Path, name: str, language: str | None, counts: dict[str, int]) -> None:
    assert counts_by_rule(real_data, name, language) == counts


def test_synthetic_pages_by_rule(synthetic_data: Path) -> None:
    assert counts_by_rule(synthetic_data, "en_doc/*/wiki_00", None) == {"emptied_brackets": 8, "tags": 16}

"""Pages of Wikipedia: markup that an extraction left is taken out and counted, and pages of nothing else go."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline_assets.corpus.document import Document
from pipeline_assets.corpus.filters.recipe import FilterRecipe, WikipediaFilterRecipe
from pipeline_assets.corpus.filters.verdict import Candidate, Verdict, apply_filters, judge
from pipeline_assets.corpus.filters.wikipedia import RULES, without_emptied_brackets
from pipeline_assets.corpus.readers.source_folder import byte_ranges, list_files
from pipeline_assets.corpus.readers.wikipedia import WikipediaRecipe, read_wikipedia

Verdicts = Callable[..., Verdict]
ALONE = {"min_running_lines": None}
LINES = "running_lines"
MARKUP = "(（)）,;，；：:、 /-–'\"《》「」<>ref/br{}[]|_=!formula_1 zh\nA學"


@pytest.mark.parametrize(
    ("line", "left", "times"),
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
def test_what_templates_left_empty_goes_with_the_blanks_before_it(line: str, left: str, times: int) -> None:
    assert without_emptied_brackets(line) == (left, times)


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
def test_brackets_with_words_and_those_that_are_meant_stay(line: str) -> None:
    assert without_emptied_brackets(line) == (line, 0)


@pytest.mark.parametrize(
    ("line", "left", "changes"),
    [
        ('in 1966.<ref name="a"></ref> She', "in 1966. She", {"tags": 1}),
        ('in 1966.<ref name="a" /> She<ref>Miller, p. 4</ref>.', "in 1966. She.", {"tags": 2}),
        ("first.<br>Second.", "first.\nSecond.", {"tags": 1}),
        ("<nowiki>*</nowiki>Interim coaches", "*Interim coaches", {"tags": 2}),
        ("a song <District 9>, 1 < 2", "a song <District 9>, 1 < 2", {}),
        ("Born __NOTOC__in {{circa|{{year}}}} Rome", "Born in  Rome", {"templates": 3}),
        ("電影-{zh-hans:偷自行车的人;zh-tw:單車失竊記;}-之", "電影偷自行车的人之", {"choices": 1}),
        ("字-{于}-阳-{}--{H|zh-cn:甲;zh-tw:乙}-", "字于阳", {"choices": 3}),
        ("of [[Rome|the city]] and [[Italy]][[Category:Towns]]", "of the city and Italy", {"links": 3}),
        (
            "where formula_8 is the albedo, codice_1, x_formula_2",
            "where is the albedo,, x_formula_2",
            {"placeholders": 2},
        ),
    ],
)
def test_other_markup_is_taken_out_and_counted(
    line: str, left: str, changes: dict[str, int], verdict: Verdicts
) -> None:
    seen = verdict(line, wikipedia=ALONE)

    assert (seen.reason, seen.text) == (None, left)
    assert seen.changes == {f"removed/{name}": times for name, times in changes.items()}


@pytest.mark.parametrize(
    "line",
    [
        '! colspan="13" style="background:#DCDCDC" | Goalkeepers',
        "!colspan=2|平均收視||2.30 ||-||未含空白處",
        "{| class=wikitable",
        "|-",
        "| name = Rome",
        "formula_7,",
        "<onlyinclude></onlyinclude>",
        "[[Category:2001年建立的獎項]]",
    ],
)
def test_a_line_of_markup_alone_goes_with_its_line_feed(line: str, verdict: Verdicts) -> None:
    assert verdict(f"Before.\n{line}\nAfter.", wikipedia=ALONE).text == "Before.\nAfter."


def test_each_rule_may_keep_what_it_finds_or_drop_the_page_for_it(verdict: Verdicts) -> None:
    text = "Albedo () where formula_1 is it.<br>"

    kept = verdict(text, wikipedia=ALONE | dict.fromkeys(RULES, "keep"))
    dropped = verdict(text, wikipedia=ALONE | {"placeholders": "drop", "tags": "keep"})

    assert (kept.text, kept.changes, kept.measurements) == (text, {}, ())
    assert (dropped.reason, [str(seen) for seen in dropped.measurements]) == ("placeholders", ["placeholders 1 > 0"])
    assert verdict("Albedo is it.", wikipedia=ALONE | {"placeholders": "drop"}).is_kept


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
def test_a_page_without_running_text_goes(body: str) -> None:
    title = "A title that is as long as a sentence. And ends like one."
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe())

    seen = judge(f"{title}\n\n{body}", {"title": title}, recipe)

    assert (seen.reason, str(seen.measurements[0])) == ("running_lines", "running_lines 0 < 1")
    assert judge(f"{title}\n\n{body}\nFoo is a village in Poland.", {"title": title}, recipe).is_kept
    assert judge(f"{title}\n\n{body}\n糜文開，生於中國江蘇無錫。", {"title": title}, recipe).is_kept
    assert judge(f"{title}\n\n{body}\n" + "ประเทศไทย" * 5, {"title": title}, recipe).is_kept


def test_later_filters_see_the_repaired_text(verdict: Verdicts) -> None:
    text = "Seven words (; ) are in this line here."

    assert verdict(text, wikipedia={}, length={"max_words": 7}).is_kept
    assert verdict(text, length={"max_words": 7}).reason == "many_words"


def test_a_page_that_nothing_changes_keeps_its_bytes() -> None:
    text = "One line of a page.\r\n\n\n\u3000Another (one), 《二》 [3] {4} | and 5 < 6.\n\n"
    candidate = Candidate(text.encode(), {})

    apply_filters([candidate], FilterRecipe(wikipedia=WikipediaFilterRecipe()))

    assert (candidate.failure, candidate.text, candidate.changes) == (None, text.encode(), {})


@given(st.text(MARKUP, max_size=60))
def test_rules_take_away_and_add_nothing_but_line_feeds(text: str) -> None:
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe(min_running_lines=None))

    left = judge(text, {}, recipe).text

    assert len(left.replace("\n", "")) <= len(text.replace("\n", ""))
    assert set(left) <= set(text) | {"\n"}


ATTACKS = [
    "(",
    "（",
    "(,",
    "，）",
    "( ",
    "《",
    "<ref",
    "<ref>",
    "<br",
    "{{",
    "}}",
    "[[",
    "[[a|",
    "-{",
    "__A",
    "formula_",
]


@pytest.mark.parametrize("mark", [*ATTACKS, "(a:", "! a ", "|a", "<!--", "(" * 9 + ")" * 9, "'", "\u3000", "a."])
def test_half_a_megabyte_of_any_mark_in_one_line_is_judged(mark: str) -> None:
    """In linear time a second; in quadratic time this test would not end today."""
    page = mark * (500_000 // len(mark))
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe(min_running_lines=None))

    seen = judge(page, {}, recipe)

    assert seen.is_kept and len(seen.text) <= len(page)


@pytest.fixture
def pages() -> Callable[[Path, str, str | None], Iterator[Document]]:
    """The Documents of an extraction in a folder of samples."""

    def read(samples: Path, name: str, language: str | None) -> Iterator[Document]:
        labels = {"source": "w", "domain": "d", "dump_date": None, "license_tag": "cc-by-sa-4.0"}
        recipe = WikipediaRecipe.model_validate({"files": ["**/*"], "language": language} | labels)
        for file in list_files(samples / "wikipedia", [name]):
            for piece in byte_ranges(file, 1 << 30):
                yield from (row for row in read_wikipedia(piece, recipe) if isinstance(row, Document))

    return read


@pytest.mark.parametrize(
    ("name", "language", "counts"),
    [
        (
            "zh_doc/AA/wiki_18",
            None,
            {"emptied_brackets": 229, "choices": 17, "tags": 4, "placeholders": 3, "tables": 2, "links": 1, LINES: 18},
        ),
        ("en_doc/*/wiki_00", None, {"emptied_brackets": 33, "placeholders": 7, "tags": 5, LINES: 8}),
        ("en_stub/AA/wiki_00", "en", {"emptied_brackets": 51, "tables": 14, "tags": 5, LINES: 20}),
    ],
)
def test_real_pages_by_rule(
    pages: Callable[[Path, str, str | None], Iterator[Document]],
    real_data: Path,
    name: str,
    language: str | None,
    counts: dict[str, int],
) -> None:
    assert counts_by_rule(pages(real_data, name, language)) == counts


def test_made_pages_by_rule(pages: Callable[[Path, str, str | None], Iterator[Document]], made_data: Path) -> None:
    assert counts_by_rule(pages(made_data, "en_doc/*/wiki_00", None)) == {
        "emptied_brackets": 8,
        "tags": 16,
        "placeholders": 8,
        "tables": 8,
    }


def counts_by_rule(documents: Iterator[Document]) -> dict[str, int]:
    """Count the documents that each rule changes or drops."""
    recipe = FilterRecipe(wikipedia=WikipediaFilterRecipe())
    verdicts = [judge(page.text, page.meta.columns(), recipe) for page in documents]

    changed = Counter(name for verdict in verdicts if verdict.is_kept for name in verdict.changes)
    dropped = Counter(verdict.reason for verdict in verdicts if not verdict.is_kept)
    return {name.removeprefix("removed/"): pages for name, pages in (changed + dropped).items()}

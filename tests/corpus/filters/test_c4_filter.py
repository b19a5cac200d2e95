"""C4's rules: which lines stay, what is counted for those that go, and for what a whole document goes."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_filters import CITATION, ENGLISH_WEB, kept_lines

from pipeline_assets.corpus.filters.recipe import C4Recipe, FilterRecipe
from pipeline_assets.corpus.filters.verdict import FilterVerdict, evaluate

Verdicts = Callable[..., FilterVerdict]
LINES = {"remove_lines": True, "terminal_punctuation": '.?!"”'}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Five words and no stop", "no_terminal_punctuation"),
        ("Five words and an ellipsis…", "no_terminal_punctuation"),
        ("Only four words here.", "few_words"),
        ("Please enable JavaScript to go on.", "phrase"),
        ("By going on you accept our Privacy Policy.", "phrase"),
        ("Here is a word of " + "x" * 1001 + " letters.", "long_word"),
        ("Four words " + "x" * 1001 + " and", "long_word"),  # the first reason of several
    ],
)
def test_other_lines_go_and_are_counted_by_reason(line: str, reason: str, verdict: Verdicts) -> None:
    phrases = ["javascript", "privacy policy"]
    seen = verdict(
        f"This line is a good one.\n{line}\n\nAnd so is this last one.",
        c4={**LINES, "min_words_per_line": 5, "max_word_characters": 1000, "remove_lines_with": phrases},
    )

    assert seen.text == "This line is a good one.\nAnd so is this last one."
    assert seen.changes == {f"removed_lines/{reason}": 1}


def test_nothing_that_is_not_asked_is_removed_but_blanks_around_lines(verdict: Verdicts) -> None:
    seen = verdict(" one \n\n\ttwo\n", c4={"remove_lines": True})

    assert (seen.reason, seen.text, seen.changes) == (None, "one\ntwo", {})


def test_without_remove_lines_the_text_stays_and_sentences_are_those_of_good_lines(verdict: Verdicts) -> None:
    text = "A heading\nOne sentence. And another.\n"

    seen = verdict(text, c4={**LINES, "remove_lines": False, "min_sentences": 3})

    assert (seen.text, seen.changes, seen.reason) == (text, {}, "few_sentences")
    assert [str(measurement) for measurement in seen.measurements] == ["few_sentences 2 < 3"]


def test_citation_markers_go_before_lines_are_looked_at(verdict: Verdicts) -> None:
    seen = verdict("It is so.[1][citation needed] [edit]\nAs [12] said: [x].[]", c4={**LINES, "remove_citations": True})

    assert seen.text == "It is so.\nAs  said: [x]."
    assert seen.changes == {"removed/citation": 5}


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("One. Two! Three?", 3),
        ("Version 1.5 of example.org is one.", 1),
        ("Really?! Yes.", 2),
        ('He said "No." Then (he left.) And "so on"', 3),
        ('"Just a quotation"', 1),
        ("Wait... what? ... Nothing...", 3),
        ("これは文です。これも！？そう。", 3),
        ("A no-break space.\u00a0Then one more.", 2),
    ],
)
def test_a_sentence_ends_at_a_mark_before_a_blank_or_at_a_wide_one(
    line: str, sentences: int, measured: Callable[..., dict[str, object]]
) -> None:
    marks = '.?!"”。！？'

    seen = measured(line, c4={"remove_lines": False, "terminal_punctuation": marks, "min_sentences": 0})

    assert seen == {"few_sentences": sentences}


@pytest.mark.parametrize(
    ("text", "reason", "value"),
    [
        ("Lorem Ipsum dolor sit amet.", "document_phrase", "lorem ipsum"),
        ("A heading with { in it\nAnd a sentence of five words.", "document_phrase", "{"),  # though that line goes
        ("This has a Bad Word in it.", "bad_word", "bad word"),
        ("Badminton is a good word.", None, None),
    ],
)
def test_phrases_or_bad_words_drop_a_page(text: str, reason: str | None, value: str | None, verdict: Verdicts) -> None:
    seen = verdict(text, c4={**LINES, "drop_documents_with": ["lorem ipsum", "{"], "bad_words": ["bad word", "badly"]})

    assert seen.reason == reason
    assert [measurement.value for measurement in seen.measurements if measurement.is_failed] == [value] * (
        value is not None
    )


def test_a_document_without_a_line_left_is_dropped(verdict: Verdicts) -> None:
    assert verdict("Only headings\nAnd more", c4=LINES).reason == "lines_left"
    assert verdict("[1]\n[edit]", c4={"remove_lines": False, "remove_citations": True}).reason == "lines_left"


PIECES = ["word", "a", *'.!"”。？)»', "...", "JavaScript", "[3]", " ", " ", "\n", "\r\n", "\u3000"]


@given(text=st.lists(st.sampled_from(PIECES), max_size=200).map("".join) | st.text())
def test_it_is_what_slow_loops_find(text: str) -> None:
    web = ENGLISH_WEB.content()["c4"]
    recipe = C4Recipe.model_validate({**web, "min_words_per_line": 2, "terminal_punctuation": '.?!"”。？'})

    seen = evaluate(text, {}, FilterRecipe(c4=recipe))

    lines, removed, sentences = kept_lines(CITATION.sub("", text), recipe)
    assert seen.text == "\n".join(lines)
    assert {name: count for name, count in seen.changes.items() if name != "removed/citation"} == dict(removed)
    assert {m.reason: m.value for m in seen.measurements}["few_sentences"] == sentences

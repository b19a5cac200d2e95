"""C4's rules: removed lines, their counts, and dropped documents."""

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
def test_other_lines_are_removed_and_counted_by_reason(line: str, reason: str, verdict: Verdicts) -> None:
    phrases = ["javascript", "privacy policy"]
    result = verdict(
        f"This line is a good one.\n{line}\n\nAnd so is this last one.",
        c4={**LINES, "min_words_per_line": 5, "max_word_characters": 1000, "remove_lines_with": phrases},
    )

    assert result.text == "This line is a good one.\nAnd so is this last one."
    assert result.changes == {f"removed_lines/{reason}": 1}


def test_without_rules_only_blanks_around_lines_are_removed(verdict: Verdicts) -> None:
    result = verdict(" one \n\n\ttwo\n", c4={"remove_lines": True})

    assert (result.reason, result.text, result.changes) == (None, "one\ntwo", {})


def test_without_remove_lines_text_is_kept_and_sentences_of_good_lines_count(verdict: Verdicts) -> None:
    text = "A heading\nOne sentence. And another.\n"

    result = verdict(text, c4={**LINES, "remove_lines": False, "min_sentences": 3})

    assert (result.text, result.changes, result.reason) == (text, {}, "few_sentences")
    assert [str(measurement) for measurement in result.measurements] == ["few_sentences 2 < 3"]


def test_citation_markers_are_removed_before_lines_are_checked(verdict: Verdicts) -> None:
    result = verdict(
        "It is so.[1][citation needed] [edit]\nAs [12] said: [x].[]", c4={**LINES, "remove_citations": True}
    )

    assert result.text == "It is so.\nAs  said: [x]."
    assert result.changes == {"removed/citation": 5}


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
def test_sentence_ends_at_a_mark_before_a_blank_or_at_a_wide_mark(
    line: str, sentences: int, measured: Callable[..., dict[str, object]]
) -> None:
    marks = '.?!"”。！？'

    result = measured(line, c4={"remove_lines": False, "terminal_punctuation": marks, "min_sentences": 0})

    assert result == {"few_sentences": sentences}


@pytest.mark.parametrize(
    ("text", "reason", "value"),
    [
        ("Lorem Ipsum dolor sit amet.", "document_phrase", "lorem ipsum"),
        ("A heading with { in it\nAnd a sentence of five words.", "document_phrase", "{"),  # in a removed line
        ("This has a Bad Word in it.", "bad_word", "bad word"),
        ("Badminton is a good word.", None, None),
    ],
)
def test_phrases_or_bad_words_drop_a_page(text: str, reason: str | None, value: str | None, verdict: Verdicts) -> None:
    result = verdict(
        text, c4={**LINES, "drop_documents_with": ["lorem ipsum", "{"], "bad_words": ["bad word", "badly"]}
    )

    assert result.reason == reason
    assert [measurement.value for measurement in result.measurements if measurement.is_failed] == [value] * (
        value is not None
    )


def test_document_without_remaining_lines_is_dropped(verdict: Verdicts) -> None:
    assert verdict("Only headings\nAnd more", c4=LINES).reason == "lines_left"
    assert verdict("[1]\n[edit]", c4={"remove_lines": False, "remove_citations": True}).reason == "lines_left"


PIECES = ["word", "a", *'.!"”。？)»', "...", "JavaScript", "[3]", " ", " ", "\n", "\r\n", "\u3000"]


@given(text=st.lists(st.sampled_from(PIECES), max_size=200).map("".join) | st.text())
def test_results_equal_slow_loops(text: str) -> None:
    web = ENGLISH_WEB.content()["c4"]
    recipe = C4Recipe.model_validate({**web, "min_words_per_line": 2, "terminal_punctuation": '.?!"”。？'})

    result = evaluate(text, {}, FilterRecipe(c4=recipe))

    lines, removed, sentences = kept_lines(CITATION.sub("", text), recipe)
    assert result.text == "\n".join(lines)
    assert {name: count for name, count in result.changes.items() if name != "removed/citation"} == dict(removed)
    assert {m.reason: m.value for m in result.measurements}["few_sentences"] == sentences

"""All filters together, alone and in batches, equal slow and simple filters."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_filters import ENGLISH_WEB, plain_verdict

from pipeline_assets.corpus.filters.filter import Candidate
from pipeline_assets.corpus.filters.language import MAX_DETECTED_CHARACTERS, load_detector
from pipeline_assets.corpus.filters.recipe import FilterRecipe
from pipeline_assets.corpus.filters.verdict import apply_filters, evaluate

# Looser at the start, so that real texts and short ones reach the filters at the end.
WEB = ENGLISH_WEB.content()
LOOSE = FilterRecipe.model_validate(
    {
        **WEB,
        "length": {"min_characters": 1},
        "characters": {"max_symbol_ratio": "0.9"},
        "gopher_quality": None,
        "c4": {**WEB["c4"], "min_words_per_line": 2, "bad_words": ["bad", "worse word"], "min_sentences": 1},
    }
)
JAPANESE = FilterRecipe.model_validate(
    {
        "length": {"min_characters": 100},
        "repetition": {"max_duplicate_lines": "0.3", "max_duplicate_paragraphs": "0.3"},
        "boilerplate": {"phrases": ["利用規約", "続きを読む"], "lines": ["ホーム"], "max_line_fraction": "0.2"},
        "c4": {"remove_lines": True, "terminal_punctuation": "。！？", "min_sentences": 2},
        "masking": {"emails": True, "public_ips": True},
    }
)
SAMPLES = [
    "fineweb/fineweb_edu_texts.jsonl",
    "fineweb/fineweb_v1_300_partial.jsonl",
    "fineweb/fineweb2_jpn_100.jsonl",
    "c4/c4_rows.jsonl",
    "redpajama/arxiv.jsonl",
    "redpajama/cc_2023-06_refined.jsonl",
    "redpajama/stack_exchange_70.jsonl",
]


def batch_verdicts(texts: list[str], recipe: FilterRecipe) -> list[tuple[str | None, str]]:
    """Return reason and text of each document of a batch; dropped text as input."""
    candidates = [Candidate(text.encode(), {}) for text in texts]
    apply_filters(candidates, recipe)
    return [
        (candidate.failure.reason, text) if candidate.failure else (None, candidate.text.decode())
        for candidate, text in zip(candidates, texts, strict=True)
    ]


def plain_verdicts(texts: list[str], recipe: FilterRecipe) -> list[tuple[str | None, str]]:
    verdicts = [plain_verdict(text, recipe) for text in texts]
    return [(reason, text if reason else kept_text) for (reason, kept_text), text in zip(verdicts, texts, strict=True)]


def sample_texts(shared_data: Path) -> Iterator[str]:
    for name in SAMPLES:
        for line in (shared_data / name).read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["text"]
    for path in sorted((shared_data / "wikipedia").glob("*/*/wiki_*")):
        yield from re.split(r"</?doc.*?>\n?", path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(ENGLISH_WEB, id="english_web"),
        *(
            pytest.param(recipe, id=id, marks=pytest.mark.slow)
            for recipe, id in ((LOOSE, "loose"), (JAPANESE, "japanese"))
        ),
    ],
)
def test_sample_texts_get_the_verdict_of_slow_and_simple_filters(recipe: FilterRecipe, shared_data: Path) -> None:
    texts = [text[:4000] for text in sample_texts(shared_data)]
    assert len(texts) > 600

    verdicts = batch_verdicts(texts, recipe)

    assert verdicts == plain_verdicts(texts, recipe)
    assert 0.05 < sum(reason is None for reason, _ in verdicts) / len(verdicts) < 0.95


CHARACTERS = [*'ab.?!…#"”。！éÉß😀-•*{)»\0', "...", "日本", "e\u0301"]
BLANKS = [" ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\x85"]
WORDS = [
    *["the", "of", "and", "to", "word!", "bad", "[1]", "[edit]", "x@y.de", "8.8.8.8"],
    "worse word",
    "One long sentence.",
]
LINES = ["home\n", "all rights reserved", "Use Cookies", "lorem ipsum"]
PIECES = [*CHARACTERS, *BLANKS, *BLANKS, *WORDS, *LINES]
pieces = st.lists(st.sampled_from(PIECES), max_size=80).map("".join)


ONE_KIND = ["", "a", "\n", "🐻", "🐻" * 5000, "e\u0301" * 5000, "日本語" * 5000, "a" * 10_000, "a " * 10_000]


@settings(max_examples=150)
@example(texts=[*ONE_KIND, "\r\n" * 5000, "." * 9999])
@given(texts=st.lists(pieces | st.text(), max_size=5))
def test_any_texts_get_the_verdict_of_slow_and_simple_filters_alone_or_in_a_batch(texts: list[str]) -> None:
    verdicts = batch_verdicts(texts, LOOSE)

    assert verdicts == plain_verdicts(texts, LOOSE)
    for (reason, kept_text), text in zip(verdicts, texts, strict=True):
        alone = evaluate(text, {}, LOOSE)
        assert (alone.reason, text if alone.reason else alone.text) == (reason, kept_text)


@pytest.mark.slow
def test_document_of_50_megabytes_is_filtered_like_a_small_one() -> None:
    words = [f"word{number}" for number in range(2000)]
    line = " ".join(words) + ".\n"
    big = "A first line that is not like the others.\n" + line * (50_000_000 // len(line))

    result = evaluate(big, {}, FilterRecipe(length=LOOSE.length, repetition=LOOSE.repetition, masking=LOOSE.masking))

    copies = big.count("\n") - 2
    characters = sum(map(len, big.split()))
    assert result.reason == "duplicate_lines"
    values = {measurement.reason: measurement.value for measurement in result.measurements}
    assert values["duplicate_lines"] == copies / (copies + 2)
    assert values["top_2_gram"] == len("word0word1") * (copies + 1) / characters


def test_language_is_detected_after_cheap_filters_and_before_changes() -> None:
    recipe = FilterRecipe.model_validate({**ENGLISH_WEB.content(), "language": {"keep": ["en", "fr"]}})

    reasons = [measurement.reason for measurement in evaluate("Kein langer Text.\nThe end", {}, recipe).measurements]

    place = reasons.index("other_language")
    assert reasons[place - 1] == "boilerplate_lines"
    assert reasons[place + 1 :] == ["document_phrase", "few_sentences", "lines_left"]


@pytest.mark.parametrize("character", ["é", "日", "😀"])
def test_language_is_detected_from_the_first_characters_of_any_width(character: str) -> None:
    recipe = FilterRecipe.model_validate({"language": {"keep": ["de"], "threshold": "0"}})
    text = f"{character} die und das " * (MAX_DETECTED_CHARACTERS // 8)

    [measurement] = evaluate(text, {}, recipe).measurements

    language = load_detector("py3langid").detect(text)
    assert measurement.value == f"{language.code} {language.score}"
    assert measurement.limit == "de from 0"


def test_filters_after_a_failed_filter_run_only_for_a_single_document() -> None:
    result = evaluate("One line of five words.\n{", {}, ENGLISH_WEB)

    assert result.reason == "few_words"
    assert [str(measurement) for measurement in result.measurements if measurement.is_failed] == [
        "few_words 6 < 50",
        "stop_words 1 < 2",
        "document_phrase {",
        "few_sentences 1 < 3",
    ]

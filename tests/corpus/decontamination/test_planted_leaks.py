"""Precision and recall of decontamination on web pages with planted leaks."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from decontamination_build import decontaminate, items_set, read_evidence, read_texts, recipe, write_corpus
from plain_decontamination import split_words

Leak = Callable[[list[str], random.Random], str]


def load_texts(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_bytes().splitlines()]


@pytest.fixture
def pages(shared_data: Path) -> list[str]:
    """Return real pages of more than 60 words, in which no leak is planted."""
    return [text for text in load_texts(shared_data / "fineweb/fineweb_edu_texts.jsonl") if len(split_words(text)) > 60]


@pytest.fixture
def items(shared_data: Path) -> list[list[str]]:
    """Return passages of 6 to 70 words of other pages, without common n-grams."""
    passages, seen = [], set[tuple[str, ...]]()
    for number, text in enumerate(load_texts(shared_data / "c4/c4_rows.jsonl")):
        words = text.split()[: 6 + number * 7 % 65]
        normalized = split_words(" ".join(words))
        size = min(13, len(normalized))
        ngrams = {tuple(normalized[first : first + size]) for first in range(len(normalized) - size + 1)}
        if size >= 6 and not ngrams & seen:
            passages.append(words)
            seen |= ngrams
    return passages


def whole(words: list[str], _: random.Random) -> str:
    return " ".join(words)


def disguised(words: list[str], draw: random.Random) -> str:
    return "".join(
        (word.upper() if draw.random() < 0.5 else word.lower()) + draw.choice([" ", "\n", " – ", "  "])
        for word in words
    )


def truncated(words: list[str], _: random.Random) -> str:
    """Drop the last tenth of the words; 40 words keep 24 of their 28 n-grams."""
    return " ".join(words[: -max(len(words) // 10, 1)]) if len(split_words(" ".join(words))) >= 40 else " ".join(words)


def plant_leaks(pages: list[str], items: list[list[str]], leak: Leak) -> tuple[dict[str, str], dict[str, str]]:
    """Insert an item into every second page; return documents and items by id."""
    draw = random.Random(1)
    documents, truth = {}, {}
    for number, page in enumerate(pages):
        doc_id = f"page-{number}"
        documents[doc_id] = page
        if number % 2:
            item = draw.randrange(len(items))
            words = page.split(" ")
            place = draw.randrange(len(words))
            documents[doc_id] = " ".join([*words[:place], leak(items[item], draw), *words[place:]])
            truth[doc_id] = f"q{item}"
    return documents, truth


@pytest.mark.parametrize("leak", [whole, disguised, truncated])
@pytest.mark.parametrize("action", ["drop", "cut"])
def test_every_planted_item_is_found_and_nothing_else(
    action: str, leak: Leak, pages: list[str], items: list[list[str]], tmp_path: Path
) -> None:
    documents, truth = plant_leaks(pages, items, leak)
    quiz = items_set(tmp_path, "quiz", {f"q{number}": " ".join(words) for number, words in enumerate(items)})
    rules = recipe(action=action, min_item_overlap="0.75")

    result = decontaminate(tmp_path, write_corpus(tmp_path, documents, 100), [quiz], rules)

    assert len(truth) > 50
    assert {line.doc_id: line.item for line in read_evidence(result).values()} == truth
    texts = read_texts(result)
    assert {doc_id: text for doc_id, text in texts.items() if doc_id not in truth} == {
        doc_id: text for doc_id, text in documents.items() if doc_id not in truth
    }
    if action == "cut":
        assert {doc_id: split_words(texts[doc_id]) for doc_id in truth} == {
            doc_id: split_words(pages[int(doc_id.removeprefix("page-"))]) for doc_id in truth
        }
    else:
        assert texts.keys().isdisjoint(truth)

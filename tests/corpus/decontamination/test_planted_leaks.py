"""Precision and recall on web pages: leaks that are planted are found, all of them and nothing else, and go."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from decontamination_build import decontaminate, evidence_of, items_set, recipe, texts_of, write_corpus
from plain_decontamination import words_of

Leak = Callable[[list[str], random.Random], str]


def texts_in(path: Path) -> list[str]:
    return [json.loads(line)["text"] for line in path.read_bytes().splitlines()]


@pytest.fixture
def pages(shared_data: Path) -> list[str]:
    """Documents that hold no item."""
    return [text for text in texts_in(shared_data / "fineweb/fineweb_edu_texts.jsonl") if len(words_of(text)) > 60]


@pytest.fixture
def items(shared_data: Path) -> list[list[str]]:
    """Passages of other pages, from 6 to 70 words, no two with an n-gram in common."""
    found, seen = [], set[tuple[str, ...]]()
    for number, text in enumerate(texts_in(shared_data / "c4/c4_rows.jsonl")):
        words = text.split()[: 6 + number * 7 % 65]
        normalized = words_of(" ".join(words))
        size = min(13, len(normalized))
        ngrams = {tuple(normalized[first : first + size]) for first in range(len(normalized) - size + 1)}
        if size >= 6 and not ngrams & seen:
            found.append(words)
            seen |= ngrams
    return found


def whole(words: list[str], _: random.Random) -> str:
    return " ".join(words)


def disguised(words: list[str], draw: random.Random) -> str:
    return "".join(
        (word.upper() if draw.random() < 0.5 else word.lower()) + draw.choice([" ", "\n", " – ", "  "])
        for word in words
    )


def without_an_end(words: list[str], _: random.Random) -> str:
    """Nine in ten of its words: of an item of 40 words 24 n-grams of 28."""
    return " ".join(words[: -max(len(words) // 10, 1)]) if len(words_of(" ".join(words))) >= 40 else " ".join(words)


def planted(pages: list[str], items: list[list[str]], leak: Leak) -> tuple[dict[str, str], dict[str, str]]:
    """Documents by id, and of every other one the item that it holds."""
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


@pytest.mark.parametrize("leak", [whole, disguised, without_an_end])
@pytest.mark.parametrize("action", ["drop", "cut"])
def test_every_planted_item_is_found_and_nothing_else(
    action: str, leak: Leak, pages: list[str], items: list[list[str]], tmp_path: Path
) -> None:
    documents, truth = planted(pages, items, leak)
    quiz = items_set(tmp_path, "quiz", {f"q{number}": " ".join(words) for number, words in enumerate(items)})
    rules = recipe(action=action, min_item_overlap="0.75")

    result = decontaminate(tmp_path, write_corpus(tmp_path, documents, 100), [quiz], rules)

    assert len(truth) > 50
    assert {line.doc_id: line.item for line in evidence_of(result).values()} == truth
    left = texts_of(result)
    assert {doc_id: text for doc_id, text in left.items() if doc_id not in truth} == {
        doc_id: text for doc_id, text in documents.items() if doc_id not in truth
    }
    if action == "cut":
        assert {doc_id: words_of(left[doc_id]) for doc_id in truth} == {
            doc_id: words_of(pages[int(doc_id.removeprefix("page-"))]) for doc_id in truth
        }
    else:
        assert left.keys().isdisjoint(truth)

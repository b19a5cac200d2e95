"""Decontamination of random corpora, compared with plain Python."""

import random
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decontamination_build import decontaminate, items_set, read_evidence, read_texts, recipe, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_decontamination import PlainFate, fate, list_item_ngrams

from pipeline_assets.corpus.decontamination import decontaminate_corpus, item_index
from pipeline_assets.corpus.decontamination.recipe import ContaminatedLine
from pipeline_assets.corpus.dedup.words import NormalizedBatch, normalize

WORDS = ["a", "b", "Ä", "日本", "İx", "ß", "c_", "1"]
BLANKS = [" ", ", ", "\n", " — "]


def build_corpus(seed: int) -> tuple[list[str], list[str]]:
    """Build documents of random words with nested pieces of items, and the items."""
    chance = random.Random(seed)

    def words(max_words: int) -> list[str]:
        return chance.choices(WORDS, k=chance.randint(0, max_words))

    items = [words(8) for _ in range(chance.randint(1, 5))]
    documents = []
    for _ in range(chance.randint(1, 5)):
        document = words(20)
        place = 0
        for item in chance.choices(items, k=chance.randint(0, 3)):
            is_nested = place < len(document) and chance.random() < 0.5
            place = place + 1 if is_nested else chance.randint(0, len(document))
            document[place:place] = item[chance.choice([0, 0, 1]) :]
        documents.append(document)
    texts = ["".join(word + chance.choice(BLANKS) for word in document) for document in documents]
    return texts, [" ".join(item) for item in items]


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    size = draw(st.integers(1, 4))
    return {
        "ngram_words": size,
        "min_item_words": draw(st.integers(1, size)),
        "min_item_overlap": draw(st.sampled_from(["0.1", "0.5", "0.666666", "0.75", "1"])),
        "max_items_per_ngram": draw(st.integers(1, 4)),
        "action": draw(st.sampled_from(["drop", "cut"])),
        "margin_words": draw(st.sampled_from([0, 0, 1, 2])),
        "min_kept_words": draw(st.integers(1, 3)),
    }


LONG = "x y z w v u t s r q p o n"  # so that every set has an item and an n-gram to find
NEVER = "never contaminated"  # so that a document is always kept


def assert_plain_fates(documents: list[str], items: list[str], changes: dict[str, Any]) -> None:
    named = {f"q{number}": text for number, text in enumerate([*items, LONG])}
    corpus = {f"d{number}": text for number, text in enumerate([*documents, NEVER])}
    own = recipe(**changes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sets = [items_set(folder, "quiz", named)]
        result = decontaminate(folder, write_corpus(folder, corpus, 2), sets, own)
        evidence, texts = read_evidence(result), read_texts(result)

    sizes = {"ngram_words": own.ngram_words, "min_item_words": own.min_item_words, "cap": own.max_items_per_ngram}
    item_ngrams = list_item_ngrams(named, **sizes)
    margin, min_kept = (own.cut.margin_words, own.cut.min_kept_words) if own.cut else (None, 1)
    for doc_id, text in corpus.items():
        expected = fate(text, item_ngrams, overlap=Fraction(own.min_item_overlap), margin=margin, min_kept=min_kept)
        assert (doc_id in evidence) == (expected is not None)
        assert texts.get(doc_id) == (text if expected is None else expected.kept)
        if expected is not None:
            assert_same(evidence[doc_id], expected, text)


def assert_same(line: ContaminatedLine, expected: PlainFate, text: str) -> None:
    assert line.item == expected.item
    assert Fraction(line.shared_ngrams, line.item_ngrams) == expected.overlap
    assert line.overlap == float(expected.overlap)
    assert line.items == {"quiz": len(expected.items)}
    assert line.spans == list(expected.spans)
    assert line.excerpt and line.excerpt in text
    assert line.action == ("dropped" if expected.kept is None else "cut")


@settings(max_examples=30)
@given(st.integers(0, 2**64).map(build_corpus), rules())
def test_decontamination_equals_plain_python(corpus: tuple[list[str], list[str]], changes: dict[str, Any]) -> None:
    assert_plain_fates(*corpus, changes)


@settings(max_examples=25)
@given(st.integers(0, 2**64).map(build_corpus), rules())
def test_words_are_compared_if_hashes_collide(corpus: tuple[list[str], list[str]], changes: dict[str, Any]) -> None:
    """Word hashes have two values, so nearly every n-gram shares its key."""

    def colliding(texts: Sequence[bytes]) -> NormalizedBatch:
        batch = normalize(texts)
        return batch._replace(word_hashes=batch.word_hashes & np.uint64(1))

    with pytest.MonkeyPatch.context() as patch:
        for module in (item_index, decontaminate_corpus):
            patch.setattr(module, "normalize", colliding)
        assert_plain_fates(*corpus, changes)

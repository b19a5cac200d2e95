"""The oracle: random corpora of few words, so that everything happens, come out as plain Python says."""

import random
import tempfile
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decontamination_build import decontaminate, evidence_of, items_set, recipe, texts_of, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_decontamination import PlainFate, fate, ngrams_of_items

from pipeline_assets.corpus.decontamination import decontaminate_corpus, item_index
from pipeline_assets.corpus.decontamination.recipe import ContaminatedLine
from pipeline_assets.corpus.dedup.words import NormalizedBatch, normalize

WORDS = ["a", "b", "Ä", "日本", "İx", "ß", "c_", "1"]
BLANKS = [" ", ", ", "\n", " — "]


def made(seed: int) -> tuple[list[str], list[str]]:
    """Documents of random words with pieces of items in them, some inside others: what is left when those go is a piece
    too; and the items.
    """
    chance = random.Random(seed)

    def words(most: int) -> list[str]:
        return chance.choices(WORDS, k=chance.randint(0, most))

    items = [words(8) for _ in range(chance.randint(1, 5))]
    documents = []
    for _ in range(chance.randint(1, 5)):
        document = words(20)
        place = 0
        for item in chance.choices(items, k=chance.randint(0, 3)):
            is_inside_folder = place < len(document) and chance.random() < 0.5
            place = place + 1 if is_inside_folder else chance.randint(0, len(document))
            document[place:place] = item[chance.choice([0, 0, 1]) :]
        documents.append(document)
    texts = ["".join(word + chance.choice(BLANKS) for word in one) for one in documents]
    return texts, [" ".join(one) for one in items]


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


LONG = "x y z w v u t s r q p o n"  # by it some n-gram is always looked for, and every set has an item
NEVER = "never contaminated"  # and by this one something is always kept


def check(documents: list[str], items: list[str], changes: dict[str, Any]) -> None:
    named = {f"q{number}": text for number, text in enumerate([*items, LONG])}
    corpus = {f"d{number}": text for number, text in enumerate([*documents, NEVER])}
    own = recipe(**changes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sets = [items_set(folder, "quiz", named)]
        result = decontaminate(folder, write_corpus(folder, corpus, 2), sets, own)
        evidence, left = evidence_of(result), texts_of(result)

    sizes = {"ngram_words": own.ngram_words, "min_item_words": own.min_item_words, "cap": own.max_items_per_ngram}
    looked_for = ngrams_of_items(named, **sizes)
    margin, min_kept = (own.cut.margin_words, own.cut.min_kept_words) if own.cut else (None, 1)
    for doc_id, text in corpus.items():
        expected = fate(text, looked_for, overlap=Fraction(own.min_item_overlap), margin=margin, min_kept=min_kept)
        assert (doc_id in evidence) == (expected is not None)
        assert left.get(doc_id) == (text if expected is None else expected.kept)
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
@given(st.integers(0, 2**64).map(made), rules())
def test_documents_come_out_as_plain_python_says(corpus: tuple[list[str], list[str]], changes: dict[str, Any]) -> None:
    check(*corpus, changes)


@settings(max_examples=25)
@given(st.integers(0, 2**64).map(made), rules())
def test_words_decide_where_hashes_are_alike(corpus: tuple[list[str], list[str]], changes: dict[str, Any]) -> None:
    """A word's hash is one of two here: nearly every n-gram has the key of others."""

    def colliding(texts: Sequence[bytes]) -> NormalizedBatch:
        batch = normalize(texts)
        return batch._replace(word_hashes=batch.word_hashes & np.uint64(1))

    with pytest.MonkeyPatch.context() as patch:
        for module in (item_index, decontaminate_corpus):
            patch.setattr(module, "normalize", colliding)
        check(*corpus, changes)

"""Recall and precision on documents, made and real: labelled articles, planted edits, templates that must stay."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from dedup_build import decisions_of, deduplicate, recipe, write_corpus
from plain_dedup import PlainDocument, shingles
from real_samples import sample

from pipeline_assets.corpus.dedup.decision import Decision

Decisions = Callable[..., list[Decision]]


def articles(count: int) -> tuple[list[PlainDocument], set[frozenset[str]]]:
    """Articles, and the pairs of them that are labelled near duplicates."""
    lines = sample(f"dedup_eval/articles_{count}.train").read_text().splitlines()
    documents = [PlainDocument(doc_id, text) for doc_id, _, text in (line.partition(" ") for line in lines)]
    pairs = sample(f"dedup_eval/articles_{count}.truth").read_text().splitlines()
    return documents, {frozenset(pair.split()) for pair in pairs}


@pytest.mark.real
@pytest.mark.parametrize("count", [100, 1000, 2500])
def test_all_labelled_pairs_of_articles_are_found_and_nothing_else_goes(tmp_path: Path, count: int) -> None:
    documents, pairs = articles(count)

    assert pairs_found(tmp_path, documents) == pairs


def pairs_found(folder: Path, documents: list[PlainDocument]) -> set[frozenset[str]]:
    """Deduplicate the documents; return each dropped one with the one that it duplicates."""
    found = decisions_of(deduplicate(folder, write_corpus(folder / "c", documents, 300), recipe(threshold="0.5")))
    return {frozenset((one.doc_id, one.duplicate_of or "")) for one in found if one.decision != "kept"}


def made_words(draw: random.Random, count: int) -> list[str]:
    return [f"{draw.choice('bcdfgkl')}{draw.choice('aeiou')}{draw.randrange(2000)}" for _ in range(count)]


@pytest.mark.parametrize("percent", [2, 5, 10, 20])
def test_of_planted_edits_as_many_are_found_as_the_bands_promise_and_none_below_the_threshold_goes(
    decisions: Decisions, percent: int
) -> None:
    """Each is an original with so many of its words replaced, at random places; their sets of shingles say what is so.

    A pair of similarity s is proposed with probability 1 - (1 - s**rows)**bands by each cut of a signature, and by both
    with no more than twice the bands would give.
    """
    draw = random.Random(percent)
    documents = []
    for number in range(200):
        words = made_words(draw, 300)
        documents.append(PlainDocument(f"original-{number}", " ".join(words)))
        for place in draw.sample(range(300), 3 * percent):
            words[place] = f"edit{draw.randrange(10**6)}"
        documents.append(PlainDocument(f"edited-{number}", " ".join(words)))

    found = decisions(*documents, threshold="0.3", permutations=112, bands=28, rows=4)

    hits, of_one_cut, of_two = 0, [], []
    for original, edited, fate in zip(documents[::2], documents[1::2], found[1::2], strict=True):
        one, other = shingles(original.text, 5), shingles(edited.text, 5)
        similarity = len(one & other) / len(one | other)
        assert fate.similarity in (None, similarity)
        assert fate.decision == "kept" or (fate.duplicate_of == original.doc_id and similarity >= 0.3)
        if similarity >= 0.3:
            of_one_cut.append(1 - (1 - similarity**4) ** 28)
            of_two.append(1 - (1 - similarity**4) ** 56)
            hits += fate.decision == "near_duplicate"
    assert sum(of_one_cut) - _four_deviations(of_one_cut) <= hits <= sum(of_two) + _four_deviations(of_two)
    assert all(fate.decision == "kept" for fate in found[::2])


def _four_deviations(chances: list[float]) -> float:
    return 4 * sum(chance * (1 - chance) for chance in chances) ** 0.5 + 1


def test_pages_from_one_template_stay_where_their_own_text_is_more_than_the_template(decisions: Decisions) -> None:
    draw = random.Random(1)
    head, foot = " ".join(made_words(draw, 60)), " ".join(made_words(draw, 40))
    pages = [f"{head} {' '.join(made_words(draw, 80))} {foot}" for _ in range(200)]

    assert {one.decision for one in decisions(*pages)} == {"kept"}

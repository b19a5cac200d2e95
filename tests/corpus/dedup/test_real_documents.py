"""Recall and precision of deduplication on real and synthetic documents."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from dedup_build import deduplicate, list_decisions, recipe, write_corpus
from plain_dedup import PlainDocument, shingles
from real_samples import sample

from pipeline_assets.corpus.dedup.decision import Decision

Decisions = Callable[..., list[Decision]]


def articles(count: int) -> tuple[list[PlainDocument], set[frozenset[str]]]:
    """Read articles, and their pairs that are labelled near duplicates."""
    lines = sample(f"dedup_eval/articles_{count}.train").read_text().splitlines()
    documents = [PlainDocument(doc_id, text) for doc_id, _, text in (line.partition(" ") for line in lines)]
    pairs = sample(f"dedup_eval/articles_{count}.truth").read_text().splitlines()
    return documents, {frozenset(pair.split()) for pair in pairs}


@pytest.mark.real
@pytest.mark.parametrize("count", [100, 1000, 2500])
def test_exactly_the_labelled_pairs_of_articles_are_found(tmp_path: Path, count: int) -> None:
    documents, pairs = articles(count)

    assert find_pairs(tmp_path, documents) == pairs


def find_pairs(folder: Path, documents: list[PlainDocument]) -> set[frozenset[str]]:
    """Deduplicate documents; return the pairs of a dropped and its kept document."""
    fates = list_decisions(deduplicate(folder, write_corpus(folder / "c", documents, 300), recipe(threshold="0.5")))
    return {frozenset((fate.doc_id, fate.duplicate_of or "")) for fate in fates if fate.decision != "kept"}


def draw_words(draw: random.Random, count: int) -> list[str]:
    return [f"{draw.choice('bcdfgkl')}{draw.choice('aeiou')}{draw.randrange(2000)}" for _ in range(count)]


@pytest.mark.parametrize("percent", [2, 5, 10, 20])
def test_recall_of_planted_edits_matches_the_bands_and_the_threshold(decisions: Decisions, percent: int) -> None:
    """Each original has a copy with a share of its words replaced at random places.

    A pair of similarity s is proposed with probability 1 - (1 - s**rows)**bands by each cut of a signature, and by both
    with at most the probability of twice the bands.
    """
    draw = random.Random(percent)
    documents = []
    for number in range(200):
        words = draw_words(draw, 300)
        documents.append(PlainDocument(f"original-{number}", " ".join(words)))
        for place in draw.sample(range(300), 3 * percent):
            words[place] = f"edit{draw.randrange(10**6)}"
        documents.append(PlainDocument(f"edited-{number}", " ".join(words)))

    fates = decisions(*documents, threshold="0.3", permutations=112, bands=28, rows=4)

    hits, one_cut, two_cuts = 0, [], []
    for original, edited, fate in zip(documents[::2], documents[1::2], fates[1::2], strict=True):
        before, after = shingles(original.text, 5), shingles(edited.text, 5)
        similarity = len(before & after) / len(before | after)
        assert fate.similarity in (None, similarity)
        assert fate.decision == "kept" or (fate.duplicate_of == original.doc_id and similarity >= 0.3)
        if similarity >= 0.3:
            one_cut.append(1 - (1 - similarity**4) ** 28)
            two_cuts.append(1 - (1 - similarity**4) ** 56)
            hits += fate.decision == "near_duplicate"
    assert sum(one_cut) - _four_deviations(one_cut) <= hits <= sum(two_cuts) + _four_deviations(two_cuts)
    assert all(fate.decision == "kept" for fate in fates[::2])


def _four_deviations(chances: list[float]) -> float:
    return 4 * sum(chance * (1 - chance) for chance in chances) ** 0.5 + 1


def test_pages_of_one_template_are_kept_if_most_text_is_their_own(decisions: Decisions) -> None:
    draw = random.Random(1)
    head, foot = " ".join(draw_words(draw, 60)), " ".join(draw_words(draw, 40))
    pages = [f"{head} {' '.join(draw_words(draw, 80))} {foot}" for _ in range(200)]

    assert {fate.decision for fate in decisions(*pages)} == {"kept"}

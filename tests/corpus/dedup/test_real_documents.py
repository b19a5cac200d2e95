"""Recall and precision of deduplication on real and synthetic documents."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from dedup_build import deduplicate, list_decisions, recipe, write_corpus
from plain_dedup import PlainDocument
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


def test_pages_of_one_template_are_kept_if_most_text_is_their_own(decisions: Decisions) -> None:
    draw = random.Random(1)
    head, foot = " ".join(draw_words(draw, 60)), " ".join(draw_words(draw, 40))
    pages = [f"{head} {' '.join(draw_words(draw, 80))} {foot}" for _ in range(200)]

    assert {fate.decision for fate in decisions(*pages)} == {"kept"}

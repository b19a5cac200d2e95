"""Which documents are contaminated, by which items, and what of them has to go."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.decontamination.item_index import ItemIndex, Items
from pipeline_assets.corpus.decontamination.ngram_search import Found, propose, verify
from pipeline_assets.corpus.decontamination.recipe import CutRecipe
from pipeline_assets.corpus.decontamination.words import Words, between, only, words_of
from pipeline_assets.corpus.dedup.words import NormalizedBatch


class _Pairs(NamedTuple):
    """Documents and items of which they hold n-grams, sorted; how many different ones; int64."""

    documents: NDArray[np.int64]
    items: NDArray[np.int64]
    shared: NDArray[np.int64]


@dataclass(frozen=True)
class Contamination:
    """What is wrong with one document.

    Attributes:
        number: of the document in its batch.
        items: by which it is contaminated, ascending.
        shared: how many different n-grams of each it holds.
        best: the item of whose n-grams it holds most, as a fraction, the first of several; its place in `items`.
        first_word: at which an n-gram of that one begins first.
        is_removed: of each word, whether it has to go: those in n-grams of the items, and what the recipe cuts besides.
    """

    number: int
    items: NDArray[np.int64]
    shared: NDArray[np.int64]
    best: int
    first_word: int
    is_removed: NDArray[np.bool_]


def contaminations(batch: NormalizedBatch, index: ItemIndex, cut: CutRecipe | None) -> list[Contamination]:
    """The contaminated documents of a batch, in order."""
    found = propose(batch.word_hashes, batch.first_words, index.table)
    if not len(found.words):
        return []
    words = words_of(batch)
    pairs = _contaminated(verify(found, words, index.table), batch.first_words, index.items)
    bounds = batch.first_words.tolist()
    return [
        _contamination(number, between(words, bounds[number], bounds[number + 1]), index, cut)
        for number in np.unique(pairs.documents).tolist()
    ]


def _contamination(number: int, words: Words, index: ItemIndex, cut: CutRecipe | None) -> Contamination:
    found = _search(words, index)
    own = _contaminated(found, _as_one(words), index.items)
    best = int(np.argmax(own.shared / index.items.ngrams[own.items]))
    is_of_best = _are_of(found.ngrams, own.items[best : best + 1], index.items)
    is_removed = _removed(words, found, own.items, index, cut)
    return Contamination(number, own.items, own.shared, best, int(found.words[is_of_best][0]), is_removed)


def _removed(
    words: Words, found: Found, items: NDArray[np.int64], index: ItemIndex, cut: CutRecipe | None
) -> NDArray[np.bool_]:
    """Which words have to go.

    What stood on both sides of a cut stands side by side afterwards, and may make an n-gram there. So it is searched
    and cut again, until nothing of any item is found by which the text was contaminated at any time.
    """
    is_removed = np.zeros(len(words.hashes), bool)
    margin = 0 if cut is None else cut.margin_words
    while True:
        kept = np.flatnonzero(~is_removed)
        is_of_items = _are_of(found.ngrams, items, index.items)
        first, sizes = found.words[is_of_items], index.table.sizes[found.ngrams[is_of_items]]
        steps = np.zeros(len(kept) + 1, np.int64)
        np.add.at(steps, np.maximum(first - margin, 0), 1)
        np.add.at(steps, np.minimum(first + sizes + margin, len(kept)), -1)
        is_removed[kept[np.cumsum(steps[:-1]) > 0]] = True
        if cut is None or not len(first):
            return is_removed
        left = only(words, ~is_removed)
        found = _search(left, index)
        items = np.union1d(items, _contaminated(found, _as_one(left), index.items).items)


def _as_one(words: Words) -> NDArray[np.int64]:
    """The bounds of a batch of one document."""
    return np.array([0, len(words.hashes)], np.int64)


def _search(words: Words, index: ItemIndex) -> Found:
    return verify(propose(words.hashes, _as_one(words), index.table), words, index.table)


def _contaminated(found: Found, first_words: NDArray[np.int64], items: Items) -> _Pairs:
    """Documents that hold enough of items."""
    documents = np.searchsorted(first_words, found.words, side="right") - 1
    count = len(items.first_items) - 1
    documents, ngrams = np.divmod(np.unique(documents * count + found.ngrams), count)
    places, owners = _places(ngrams, items)
    pairs, shared = np.unique(documents[owners] * len(items.ngrams) + items.items[places], return_counts=True)
    documents, numbers = np.divmod(pairs, len(items.ngrams))
    is_enough = shared >= items.needed[numbers]
    return _Pairs(documents[is_enough], numbers[is_enough], shared[is_enough])


def _are_of(ngrams: NDArray[np.int64], wanted: NDArray[np.int64], items: Items) -> NDArray[np.bool_]:
    """Which n-grams one of the wanted items has."""
    places, owners = _places(ngrams, items)
    is_wanted = np.isin(items.items[places], wanted)
    return np.bincount(owners[is_wanted], minlength=len(ngrams)) > 0


def _places(ngrams: NDArray[np.int64], items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places in `items.items` of all items of n-grams, and which of the n-grams each is of."""
    counts = items.first_items[ngrams + 1] - items.first_items[ngrams]
    owners = np.repeat(np.arange(len(ngrams)), counts)
    return items.first_items[ngrams][owners] + np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners], owners

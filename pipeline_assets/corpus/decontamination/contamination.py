"""Contamination of documents by evaluation items."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.decontamination.item_index import ItemIndex, Items
from pipeline_assets.corpus.decontamination.ngrams import (
    NgramMatches,
    Words,
    propose_ngrams,
    split_words,
    verify_ngrams,
)
from pipeline_assets.corpus.decontamination.recipe import CutRecipe
from pipeline_assets.corpus.dedup.words import NormalizedBatch


@dataclass(frozen=True)
class Contamination:
    """Contamination of one document.

    `best_item` is the number of the item that has the largest fraction of its n-grams in the document; on ties, the
    lowest number.
    `is_removed` is a mask of the words to remove, shape (words,): the words of the items' n-grams. If documents are
    cut, the mask includes the margins around these words, and n-grams that appear where a cut joins two texts.
    """

    document_index: int  # in its batch
    item_numbers: NDArray[np.int64]  # of the contaminating items, ascending
    best_item: int
    shared_ngrams: int  # number of distinct n-grams of the best item in the document
    first_word: int  # index of the first word in the document at which an n-gram of the best item begins
    is_removed: NDArray[np.bool_]


def find_contaminations(batch: NormalizedBatch, index: ItemIndex, cut: CutRecipe | None) -> list[Contamination]:
    """Find the contaminated documents of a batch, in order, and the words to remove.

    Without `cut`, whole documents will be dropped, so `is_removed` marks the matches only as evidence.
    """
    proposed = propose_ngrams(batch.word_hashes, batch.first_words, index.table)
    if not len(proposed.first_words):
        return []
    words, bounds = split_words(batch), batch.first_words
    matches = verify_ngrams(proposed, words, index.table)
    contaminated = list[Contamination]()
    for document_index in np.unique(np.searchsorted(bounds, matches.first_words, side="right") - 1).tolist():
        first, stop = bounds[document_index : document_index + 2].tolist()
        span = slice(*np.searchsorted(matches.first_words, (first, stop)).tolist())
        in_document = NgramMatches(matches.first_words[span] - first, matches.ngrams[span])
        item_numbers, shared_ngrams = _contaminating_items(in_document, index.items)
        if len(item_numbers):
            position = int(np.argmax(shared_ngrams / index.items.ngrams[item_numbers]))
            best, shared = int(item_numbers[position]), int(shared_ngrams[position])
            is_best = _belongs_to_items(in_document.ngrams, item_numbers[position : position + 1], index.items)
            first_word = int(in_document.first_words[is_best][0])
            is_removed = _words_to_remove(words.slice(first, stop), in_document, item_numbers, index, cut)
            contaminated.append(Contamination(document_index, item_numbers, best, shared, first_word, is_removed))
    return contaminated


def _words_to_remove(
    words: Words, matches: NgramMatches, item_numbers: NDArray[np.int64], index: ItemIndex, cut: CutRecipe | None
) -> NDArray[np.bool_]:
    """Return a mask of the words to remove, see `Contamination.is_removed`.

    With a `CutRecipe`, the remaining text is searched again after each cut, because the words on both sides of a cut
    may form a new n-gram. Cutting ends when the remaining text contains no n-gram of the items found so far.
    """
    is_removed = np.zeros(len(words.hashes), bool)
    margin = 0 if cut is None else cut.margin_words
    while True:
        # Positions in `matches` count the remaining words only; `kept` maps them to the whole text.
        kept = np.flatnonzero(~is_removed)
        is_item_match = _belongs_to_items(matches.ngrams, item_numbers, index.items)
        first, sizes = matches.first_words[is_item_match], index.table.sizes[matches.ngrams[is_item_match]]
        # Add 1 where a match with its margin begins, and -1 after its end: the running sum counts the matches that
        # cover each word.
        changes = np.zeros(len(kept) + 1, np.int64)
        np.add.at(changes, np.maximum(first - margin, 0), 1)
        np.add.at(changes, np.minimum(first + sizes + margin, len(kept)), -1)
        is_removed[kept[np.cumsum(changes[:-1]) > 0]] = True
        if cut is None or not len(first):
            return is_removed
        remaining = words.keep(~is_removed)
        proposed = propose_ngrams(remaining.hashes, np.array([0, len(remaining.hashes)]), index.table)
        matches = verify_ngrams(proposed, remaining, index.table)
        item_numbers = np.union1d(item_numbers, _contaminating_items(matches, index.items)[0])


def _contaminating_items(matches: NgramMatches, items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the items that contaminate a document.

    Returns:
        Numbers of the items, ascending; for each item, the number of its distinct n-grams in the document.
    """
    positions, _ = _item_positions(np.unique(matches.ngrams), items)
    numbers, shared = np.unique(items.items[positions].astype(np.int64), return_counts=True)
    is_enough = shared >= items.needed[numbers]
    return numbers[is_enough], shared[is_enough]


def _belongs_to_items(ngrams: NDArray[np.int64], item_numbers: NDArray[np.int64], items: Items) -> NDArray[np.bool_]:
    """Return a mask of the n-grams that occur in at least one of the items."""
    positions, owners = _item_positions(ngrams, items)
    items_per_ngram = np.bincount(owners[np.isin(items.items[positions], item_numbers)], minlength=len(ngrams))
    return items_per_ngram > 0


def _item_positions(ngrams: NDArray[np.int64], items: Items) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the items that contain each n-gram.

    Returns:
        Two arrays with an entry for each n-gram and item that contains it: index in `items.items`, index in `ngrams`.
    """
    counts = items.first_items[ngrams + 1] - items.first_items[ngrams]  # items of each n-gram
    owners = np.repeat(np.arange(len(ngrams)), counts)
    # Item k of an n-gram is at the n-gram's first position plus k. The results of n-gram i begin at cumsum - count, so
    # k is the number of a result minus this beginning.
    return items.first_items[ngrams][owners] + np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners], owners

"""Decontamination in plain Python: compares n-grams at each word, unhashed.

Follows the rule in `decontamination.recipe`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Ngram = tuple[str, ...]
Ngrams = Mapping[str, frozenset[Ngram]]


@dataclass(frozen=True)
class PlainFate:
    """Fate of a contaminated document; `kept` is None if it is dropped."""

    item: str
    overlap: Fraction
    items: frozenset[str]
    spans: tuple[tuple[int, int], ...]
    kept: str | None


def split_words(text: str) -> list[str]:
    return ["".join(character.lower()[0] for character in word) for word in re.findall(r"\w+", text)]


def list_item_ngrams(items: Mapping[str, str], *, ngram_words: int, min_item_words: int, cap: int) -> Ngrams:
    """Return each item's n-grams without common ones; equal items share theirs."""
    words = {name: tuple(split_words(text)) for name, text in items.items()}
    words = {name: own for name, own in words.items() if len(own) >= min_item_words}
    different = {own: frozenset(_ngrams(own, min(ngram_words, len(own)))) for own in words.values()}
    every = [ngram for own in different.values() for ngram in own]
    common = {ngram for ngram in set(every) if every.count(ngram) > cap}
    return {name: different[own] - common for name, own in words.items()}


def _ngrams(words: Sequence[str], size: int) -> Iterator[Ngram]:
    return (tuple(words[first : first + size]) for first in range(len(words) - size + 1))


def fate(text: str, items: Ngrams, *, overlap: Fraction, margin: int | None, min_kept: int) -> PlainFate | None:
    """Return the fate of a text; None if clean. `margin` None drops documents."""
    words = split_words(text)
    places = list(range(len(words)))
    shares = _shares(words, items)
    found = {name for name, share in shares.items() if share >= overlap}
    if not found:
        return None
    best = max(shares[name] for name in found)
    contaminating = frozenset(found)
    removed: set[int] = set()
    while matching := _covered([words[place] for place in places], found, items, margin or 0):
        removed |= {places[number] for number in matching}
        if margin is None:
            break
        places = [place for place in places if place not in removed]
        remaining_shares = _shares([words[place] for place in places], items)
        found |= {name for name, share in remaining_shares.items() if share >= overlap}
    spans = tuple(_spans(text, removed))
    return PlainFate(
        item=next(name for name in items if name in contaminating and shares[name] == best),
        overlap=best,
        items=contaminating,
        spans=spans,
        kept=None if margin is None or len(words) - len(removed) < min_kept else _without(text, spans),
    )


def _shares(words: Sequence[str], items: Ngrams) -> dict[str, Fraction]:
    sizes = {len(ngram) for ngrams in items.values() for ngram in ngrams}
    own = {ngram for size in sizes for ngram in _ngrams(words, size)}
    return {name: Fraction(len(ngrams & own), len(ngrams)) for name, ngrams in items.items() if ngrams}


def _covered(words: Sequence[str], found: set[str], items: Ngrams, margin: int) -> set[int]:
    covered: set[int] = set()
    for ngram in {ngram for name in found for ngram in items[name]}:
        for first in range(len(words) - len(ngram) + 1):
            if tuple(words[first : first + len(ngram)]) == ngram:
                covered |= set(range(max(first - margin, 0), min(first + len(ngram) + margin, len(words))))
    return covered


def _spans(text: str, removed: set[int]) -> Iterator[tuple[int, int]]:
    spans = [match.span() for match in re.finditer(r"\w+", text)]
    for place in sorted(removed):
        if place - 1 not in removed:
            last = place
            while last + 1 in removed:
                last += 1
            yield spans[place][0], spans[last][1]


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text

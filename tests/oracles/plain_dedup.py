"""Deduplication in plain Python, which compares every pair of documents."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True)
class PlainDocument:
    """Fields of a document that deduplication reads."""

    doc_id: str
    text: str
    source: str = "notes"
    quality: float | None = None


@dataclass(frozen=True)
class PlainDecision:
    """Decision about a document; `similarity` to the kept document."""

    doc_id: str
    decision: str
    duplicate_of: str | None = None
    similarity: Fraction | None = None
    containment: Fraction | None = None
    copy_of: str | None = None


def normalized(text: str) -> str:
    return " ".join("".join(character.lower()[0] for character in word) for word in re.findall(r"\w+", text))


def shingles(text: str, n: int) -> set[tuple[str, ...]]:
    words = normalized(text).split()
    return {tuple(words[start : start + n]) for start in range(len(words) - n + 1)}


def decide(
    documents: Sequence[PlainDocument],
    *,
    mode: str,
    scope: str,
    selection: str,
    threshold: Fraction,
    n: int,
    seen: Sequence[PlainDocument] = (),
) -> list[PlainDecision]:
    """Decide by the greedy rule over all pairs; all seen documents are kept."""
    new = range(len(seen), len(seen) + len(documents))
    documents = [*seen, *documents]
    order = [*range(len(seen)), *sorted(new, key=lambda number: (_criterion(documents[number], selection), number))]
    decisions: dict[int, PlainDecision] = {}
    copies: dict[int, int] = {}
    first_numbers: dict[tuple[str, str], int] = {}
    kept: list[int] = []
    for number in order:
        document = documents[number]
        place = document.source if scope == "per-source" else ""
        text = normalized(document.text) or document.text
        is_copy = mode != "near" and first_numbers.setdefault((place, text), number) != number
        if number < len(seen):
            kept.append(number)
            decisions[number] = PlainDecision(document.doc_id, "kept")
            continue
        if is_copy:
            copies[number] = first_numbers[place, text]
            continue
        found = list(_near(number, kept, documents, scope, threshold, n)) if mode != "exact" else []
        if not found:
            kept.append(number)
            decisions[number] = PlainDecision(document.doc_id, "kept")
            continue
        best = max(similarity for similarity, _, _ in found)
        similarity, containment, other = next(match for match in found if match[0] == best)
        decisions[number] = PlainDecision(document.doc_id, "near_duplicate", other, similarity, containment)
    for number, first in copies.items():
        doc_id, first_id = documents[number].doc_id, documents[first].doc_id
        fate = decisions[first]
        if fate.decision == "kept":
            fate = PlainDecision(first_id, "exact_duplicate", first_id, Fraction(1), Fraction(1))
        decisions[number] = replace(fate, doc_id=doc_id, copy_of=first_id)
    return [decisions[number] for number in new]


def _criterion(document: PlainDocument, selection: str) -> float:
    if selection == "longest":
        return -len(document.text.encode())
    if selection == "quality":
        return float("inf") if document.quality is None else -document.quality
    return 0


def _near(
    number: int, kept: Sequence[int], documents: Sequence[PlainDocument], scope: str, threshold: Fraction, n: int
) -> Iterator[tuple[Fraction, Fraction, str]]:
    """Yield (similarity, containment, id) of near kept documents, in their order."""
    own = shingles(documents[number].text, n)
    for other in kept:
        if scope == "per-source" and documents[other].source != documents[number].source:
            continue
        theirs = shingles(documents[other].text, n)
        if not own or not theirs:
            continue
        shared = len(own & theirs)
        similarity = Fraction(shared, len(own | theirs))
        if similarity >= threshold:
            yield similarity, Fraction(shared, len(own)), documents[other].doc_id

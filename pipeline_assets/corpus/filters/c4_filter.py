"""The filter that looks at lines: those that fail leave the text, and with too few sentences left the document goes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline_assets.corpus.filters.c4_lines import REMOVED, KeptLines, LineLimits, keep_lines, without_citations
from pipeline_assets.corpus.filters.code_points import character_classes
from pipeline_assets.corpus.filters.counting import Batch, batch_of
from pipeline_assets.corpus.filters.phrase_search import first_phrases, lines_with_phrases
from pipeline_assets.corpus.filters.phrases import Scope, build_automaton
from pipeline_assets.corpus.filters.recipe import C4Recipe
from pipeline_assets.corpus.filters.verdict import Candidate, Measurement

DOCUMENT_PHRASE, BAD_WORD, FEW_SENTENCES, LINES_LEFT = "document_phrase", "bad_word", "few_sentences", "lines_left"


class C4Filter:
    """What `C4Recipe` asks of lines and documents."""

    def __init__(self, recipe: C4Recipe) -> None:
        self._recipe = recipe
        self._classes = character_classes(recipe.terminal_punctuation or "")
        self._limits = LineLimits(
            recipe.terminal_punctuation is not None, recipe.min_words_per_line or 0, recipe.max_word_characters or 0
        )
        self._line_phrases = build_automaton([(phrase, Scope.ANYWHERE) for phrase in recipe.remove_lines_with])
        self._unwanted = [
            (reason, phrases, build_automaton([(phrase, scope) for phrase in phrases]))
            for reason, phrases, scope in (
                (DOCUMENT_PHRASE, recipe.drop_documents_with, Scope.ANYWHERE),
                (BAD_WORD, recipe.bad_words, Scope.WORDS),
            )
            if phrases
        ]

    def apply(self, candidates: Sequence[Candidate]) -> None:
        """Fails documents, and takes from all what the recipe removes."""
        for check in self._checks(candidates):
            for document in np.flatnonzero(check.is_failed).tolist():
                candidates[document].fail(check.measurement(document))

    def measure(self, candidate: Candidate) -> list[Measurement]:
        """What each rule sees in a document, from which it takes what the recipe removes."""
        return [check.measurement(0) for check in self._checks([candidate])]

    def _checks(self, candidates: Sequence[Candidate]) -> list["_Check"]:
        batch = batch_of([candidate.text for candidate in candidates])
        checks = []
        for reason, phrases, automaton in self._unwanted:
            found = first_phrases(batch.text, batch.offsets, automaton, self._classes.of_code_point)
            checks.append(_Check(reason, found, None, found >= 0, (*phrases, None)))  # -1 is None
        if self._recipe.remove_citations and _remove_citations(candidates):
            batch = batch_of([candidate.text for candidate in candidates])
        kept = self._kept_lines(batch)
        least = self._recipe.min_sentences
        if least is not None:
            checks.append(_Check(FEW_SENTENCES, kept.sentences, least, kept.sentences < least))
        if self._recipe.remove_lines:
            _remove_lines(candidates, kept)
        if self._recipe.remove_lines or self._recipe.remove_citations:
            left = kept.lines - kept.removed.sum(axis=1) * self._recipe.remove_lines
            checks.append(_Check(LINES_LEFT, left, 1, left < 1))
        return checks

    def _kept_lines(self, batch: Batch) -> KeptLines:
        wanted = np.full(len(batch.offsets) - 1, len(self._recipe.remove_lines_with) > 0)
        inside, _ = lines_with_phrases(
            batch.text, batch.offsets, self._line_phrases, self._classes.of_code_point, wanted
        )
        return keep_lines(batch.text, batch.offsets, self._classes, inside, self._limits)


class _Check(NamedTuple):
    """A rule held against a batch; what is measured are numbers, or places in a list of phrases."""

    reason: str
    measured: NDArray[np.integer]
    limit: int | None
    is_failed: NDArray[np.bool_]
    phrases: tuple[str | None, ...] | None = None

    def measurement(self, document: int) -> Measurement:
        number = int(self.measured[document])
        value = number if self.phrases is None else self.phrases[number]
        return Measurement(self.reason, value, self.limit, bool(self.is_failed[document]))


def _remove_citations(candidates: Sequence[Candidate]) -> bool:
    """Takes the markers from the texts; whether there was one."""
    total = 0
    for candidate in candidates:
        candidate.text, removed = without_citations(candidate.text)
        candidate.count("removed/citation", removed)
        total += removed
    return total > 0


def _remove_lines(candidates: Sequence[Candidate], kept: KeptLines) -> None:
    text, offsets = kept.text.tobytes(), kept.offsets.tolist()
    for document, candidate in enumerate(candidates):
        candidate.text = text[offsets[document] : offsets[document + 1]]
    for document, reason in np.argwhere(kept.removed).tolist():
        candidates[document].count(f"removed_lines/{REMOVED[reason]}", int(kept.removed[document, reason]))
